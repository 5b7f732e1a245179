"""First divergence: other implementations, closed forms, and what a comparison may and may not see."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import poisson
from statsmodels.duration.survfunc import SurvfuncRight

from auditor.stats import survival
from auditor.stats.survival import Observations

DATA = st.lists(st.tuples(st.integers(1, 600), st.booleans()), min_size=1, max_size=60).map(
    lambda rows: Observations(tuple(t for t, _ in rows), tuple(e for _, e in rows))
)
SIX_MP = Observations(
    (6, 6, 6, 7, 10, 13, 16, 22, 23, 6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35),
    (True,) * 9 + (False,) * 12,
)


@given(DATA)
@settings(max_examples=60)
def test_curve_equals_statsmodels(data: Observations) -> None:
    points = survival.kaplan_meier(data)
    if not points:
        assert data.divergences == 0
        return
    other = SurvfuncRight(np.array(data.times), np.array(data.events, dtype=int))
    assert [p.time for p in points] == list(other.surv_times)
    assert [p.survival for p in points] == pytest.approx(list(other.surv_prob), abs=1e-12)
    for point, se in zip(points, other.surv_prob_se, strict=True):
        if point.se is None:
            assert point.survival == 0.0
        else:
            assert point.se == pytest.approx(float(se), abs=1e-9)


@given(DATA)
@settings(max_examples=60)
def test_curve_falls_and_lies_in_its_interval(data: Observations) -> None:
    previous = 1.0
    for point in survival.kaplan_meier(data):
        assert 0.0 <= point.survival < previous
        previous = point.survival
        if point.interval is not None:
            assert 0.0 <= point.interval.lower <= point.survival <= point.interval.upper <= 1.0


def test_log_log_interval_of_the_published_data() -> None:
    """Kalbfleisch & Prentice's interval for 6-MP at 10 weeks: 0.5032 to 0.8894, as R's survival prints it."""
    at_ten = next(point for point in survival.kaplan_meier(SIX_MP) if point.time == 10)
    assert at_ten.interval == pytest.approx((0.5032, 0.8894), abs=5e-5)


@given(DATA, st.integers(1, 600))
@settings(max_examples=60)
def test_restricted_mean_is_the_area_under_the_curve(data: Observations, horizon: int) -> None:
    tau = min(horizon, max(data.times))
    points = survival.kaplan_meier(data)
    area = sum(
        math.prod(1 - p.divergences / p.at_risk for p in points if p.time <= token) for token in range(tau)
    )
    found = survival.restricted_mean(data, tau)
    assert found.mean == pytest.approx(area, rel=1e-9)
    assert found.mean <= tau + 1e-9
    assert found.se >= 0.0


def test_restricted_mean_without_censoring_is_the_mean() -> None:
    times = (3, 8, 8, 15)
    found = survival.restricted_mean(Observations(times, (True,) * 4), 15)
    assert found.mean == pytest.approx(np.mean(times))
    # Greenwood's variance of an uncensored mean is the population variance over n.
    assert found.se == pytest.approx(np.std(times) / 2)


def test_no_divergence_is_the_whole_horizon() -> None:
    data = Observations((100, 50, 80), (False, False, False))
    assert survival.kaplan_meier(data) == ()
    assert survival.restricted_mean(data, 100).mean == 100
    hazard = survival.hazard(data)
    assert hazard.rate == 0.0
    assert hazard.interval is not None
    assert hazard.interval.lower == 0.0
    assert hazard.interval.upper > 0.0


@given(DATA)
@settings(max_examples=60)
def test_bins_partition_the_divergences_and_the_tokens(data: Observations) -> None:
    bins = survival.binned_hazard(data)
    assert [(b.first, b.last) for b in bins] == [(1, 1), (2, 16), (17, 64), (65, 256), (257, None)]
    assert sum(b.divergences for b in bins) == data.divergences
    assert sum(b.exposure for b in bins) == data.exposure
    for one in bins:
        assert (one.rate is None) == (one.exposure == 0)


def test_bin_edges_belong_to_their_bins() -> None:
    data = Observations((1, 16, 17, 256, 257), (True,) * 5)
    assert [b.divergences for b in survival.binned_hazard(data)] == [1, 1, 1, 1, 1]
    assert [b.exposure for b in survival.binned_hazard(data)] == [5, 60, 97, 384, 1]


@given(st.integers(0, 200), st.floats(1, 1e6))
@settings(max_examples=60)
def test_garwood_inverts_the_poisson_tails(events: int, exposure: float) -> None:
    lower, upper = survival.garwood(events, exposure)
    assert lower <= events / exposure <= upper
    assert float(poisson.cdf(events, upper * exposure)) == pytest.approx(0.025, abs=1e-9)
    if events:
        assert float(poisson.sf(events - 1, lower * exposure)) == pytest.approx(0.025, abs=1e-9)


def test_rate_ratio_mirrors_and_has_no_false_certainty() -> None:
    one, other = survival.rate_ratio(11, 36_000, 25, 34_000), survival.rate_ratio(25, 34_000, 11, 36_000)
    assert one.ratio is not None
    assert other.ratio == pytest.approx(1 / one.ratio)
    assert other.interval == pytest.approx((1 / one.interval.upper, 1 / one.interval.lower))
    assert one.p == pytest.approx(other.p)
    nothing = survival.rate_ratio(0, 1000, 0, 1000)
    assert (nothing.ratio, nothing.interval, nothing.p) == (None, (0.0, math.inf), 1.0)
    one_sided = survival.rate_ratio(5, 1000, 0, 1000)
    assert one_sided.ratio is None
    assert one_sided.interval.upper == math.inf
    assert one_sided.interval.lower > 0.0


def simulated(rate: float, n: int, seed: int, cap: int = 400) -> Observations:
    times = np.random.default_rng(seed).geometric(rate, n)
    return Observations(tuple(int(min(t, cap)) for t in times), tuple(bool(t <= cap) for t in times))


def test_comparison_sees_a_worse_arm_and_not_an_equal_one() -> None:
    reference = simulated(0.001, 300, 1)
    worse = survival.compare_arms(simulated(0.006, 300, 2), reference, seed=11, resamples=500)
    assert worse.restricted_mean_interval.upper < 0 < worse.rate_interval.lower
    assert worse.restricted_mean_interval.lower < worse.restricted_mean_difference
    assert worse.restricted_mean_difference < worse.restricted_mean_interval.upper
    assert worse.rate_ratio.p < 1e-6
    same = survival.compare_arms(simulated(0.001, 300, 3), reference, seed=11, resamples=500)
    assert same.restricted_mean_interval.lower < 0 < same.restricted_mean_interval.upper


def test_identical_arms_differ_by_exactly_nothing() -> None:
    """Prompts are resampled for both arms together: what they share cancels in every resample."""
    arm = simulated(0.004, 80, 5)
    result = survival.compare_arms(arm, arm, seed=3, resamples=200)
    assert result.restricted_mean_interval == pytest.approx((0.0, 0.0), abs=1e-12)
    assert result.rate_interval == pytest.approx((0.0, 0.0), abs=1e-12)


def test_the_seed_alone_decides_the_bootstrap() -> None:
    one, other = simulated(0.004, 80, 5), simulated(0.004, 80, 6)
    first, again, another = (
        survival.compare_arms(one, other, seed=seed, resamples=200) for seed in (3, 3, 4)
    )
    assert first == again
    assert first.rate_interval != another.rate_interval
    assert first.rate_difference == another.rate_difference


def test_bootstrap_of_unit_weights_is_the_estimate() -> None:
    """The vectorised restricted mean of a resample that draws every prompt once is the plain one."""
    arm = simulated(0.01, 50, 9)
    found = survival._weighted_means(arm, 300, np.ones((1, 50)))
    assert found[0] == pytest.approx(survival.restricted_mean(arm, 300).mean)


def test_common_horizon() -> None:
    long, short = Observations((900, 20), (False, True)), Observations((300, 700), (True, False))
    assert survival.longest_horizon(long, short) == 700
    with pytest.raises(ValueError, match="at most 700"):
        survival.restricted_mean(short, 701)
    with pytest.raises(ValueError, match="at least one"):
        survival.longest_horizon()


def test_impossible_input() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Observations((0,), (True,))
    for times, events in (((), ()), ((1, 2), (True,))):
        with pytest.raises(ValueError, match="as many of both"):
            Observations(times, events)
    with pytest.raises(ValueError, match="same prompts"):
        survival.compare_arms(SIX_MP, Observations((1,), (True,)), seed=1)
    with pytest.raises(ValueError, match="positive"):
        survival.garwood(1, 0.0)
