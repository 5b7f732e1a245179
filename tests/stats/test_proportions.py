"""Intervals of one proportion: other implementations, exact coverage, and optional stopping."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from statsmodels.stats.proportion import proportion_confint

from auditor.stats import proportions

PAIRS = st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
METHODS = (
    proportions.clopper_pearson,
    proportions.wilson,
    proportions.jeffreys,
    proportions.confidence_sequence,
)


@given(PAIRS, st.sampled_from((0.8, 0.95, 0.999)))
@settings(max_examples=60)
def test_every_interval_contains_the_estimate_and_mirrors(pair: tuple[int, int], confidence: float) -> None:
    k, n = pair
    for method in METHODS:
        lower, upper = method(k, n, confidence)
        assert 0.0 <= lower <= k / n <= upper <= 1.0
        assert (lower == 0.0) == (k == 0)
        assert (upper == 1.0) == (k == n)
        mirrored = method(n - k, n, confidence)
        assert mirrored == pytest.approx((1 - upper, 1 - lower), abs=1e-9)


@given(PAIRS)
@settings(max_examples=60)
def test_the_confidence_sequence_is_wider_than_clopper_pearson(pair: tuple[int, int]) -> None:
    fixed, any_time = proportions.clopper_pearson(*pair), proportions.confidence_sequence(*pair)
    assert any_time.lower <= fixed.lower + 1e-12
    assert any_time.upper >= fixed.upper - 1e-12


@given(PAIRS)
@settings(max_examples=60)
def test_bounds_rise_with_the_successes(pair: tuple[int, int]) -> None:
    k, n = pair
    if k < n:
        for method in METHODS:
            assert method(k, n).lower <= method(k + 1, n).lower + 1e-12
            assert method(k, n).upper <= method(k + 1, n).upper + 1e-12


@pytest.mark.parametrize(("k", "n"), [(1, 3), (153, 164), (2, 140), (700, 1319)])
@pytest.mark.parametrize("name", ["beta", "wilson", "jeffreys"])
def test_equal_to_statsmodels(k: int, n: int, name: str) -> None:
    method = {"beta": METHODS[0], "wilson": METHODS[1], "jeffreys": METHODS[2]}[name]
    assert method(k, n) == pytest.approx(proportion_confint(k, n, method=name), abs=1e-10)


@pytest.mark.parametrize(("k", "n"), [(3, 10), (153, 164)])
def test_clopper_pearson_inverts_the_binomial_tails(k: int, n: int) -> None:
    lower, upper = proportions.clopper_pearson(k, n)
    with mpmath.workdps(30):

        def tail(p: float, counts: range) -> mpmath.mpf:
            return mpmath.fsum(
                mpmath.binomial(n, j) * mpmath.mpf(p) ** j * (1 - mpmath.mpf(p)) ** (n - j) for j in counts
            )

        assert float(tail(lower, range(k, n + 1))) == pytest.approx(0.025, abs=1e-10)
        assert float(tail(upper, range(k + 1))) == pytest.approx(0.025, abs=1e-10)


def test_coverage_of_clopper_pearson_is_never_below_nominal() -> None:
    n = 30
    intervals = [proportions.clopper_pearson(k, n) for k in range(n + 1)]
    for p in np.linspace(0.01, 0.99, 197):
        covered = [k for k, (lower, upper) in enumerate(intervals) if lower <= p <= upper]
        assert binom.pmf(covered, n, p).sum() >= 0.95 - 1e-12


def test_no_disagreement_in_n_means_at_most_three_in_n() -> None:
    for n in (30, 1000, 100_000):
        assert 2.8 / n < proportions.upper_bound(0, n) < 3 / n


def test_stopping_when_it_looks_good_breaks_clopper_pearson_and_not_the_sequence() -> None:
    """Launch until the interval excludes the true rate, at most 60 times: the chance of that, exactly."""
    p, longest = 0.5, 60

    def ever_excluded(method: object) -> float:
        assert callable(method)
        alive, excluded = np.array([1.0]), 0.0
        for n in range(1, longest + 1):
            moved = np.concatenate((alive * (1 - p), [0.0])) + np.concatenate(([0.0], alive * p))
            out = np.array([not lower <= p <= upper for lower, upper in (method(k, n) for k in range(n + 1))])
            excluded += float(moved[out].sum())
            alive = np.where(out, 0.0, moved)
        return excluded

    assert ever_excluded(proportions.confidence_sequence) <= 0.05
    assert ever_excluded(proportions.clopper_pearson) > 0.08


@pytest.mark.parametrize(("k", "n"), [(-1, 5), (6, 5), (0, 0), (0, -1), (1.5, 5)])
def test_impossible_counts(k: int, n: int) -> None:
    for method in (*METHODS, proportions.lower_bound, proportions.upper_bound):
        with pytest.raises(ValueError, match="expected"):
            method(k, n)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, float("nan")])
def test_impossible_confidence(confidence: float) -> None:
    for method in METHODS:
        with pytest.raises(ValueError, match="expected"):
            method(1, 2, confidence)


def test_standard_error_needs_two() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        proportions.sample_standard_error(0.5, 1)
