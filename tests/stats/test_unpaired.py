"""Independent proportions against other implementations and a numeric likelihood."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import xlog1py, xlogy
from statsmodels.stats.proportion import confint_proportions_2indep

from auditor.stats import unpaired


def test_coefficient_that_a_widely_used_package_has_wrong() -> None:
    assert unpaired.farrington_manning_tost(160, 164, 158, 164).p == pytest.approx(0.04188, abs=5e-6)


def test_the_studys_figures_round_as_published() -> None:
    result = unpaired.wald_tost(905, 1319, 912, 1319)
    assert result.p is not None
    assert result.smallest_margin is not None
    assert result.floor_margin is not None
    assert round(result.se, 4) == 0.0180
    assert round(result.p, 4) == 0.0066
    assert round(result.smallest_margin, 3) == 0.035
    assert round(result.floor_margin, 3) == 0.030


COUNTS = st.tuples(st.integers(1, 400), st.integers(1, 400)).flatmap(
    lambda sizes: st.tuples(
        st.integers(0, sizes[0]), st.just(sizes[0]), st.integers(0, sizes[1]), st.just(sizes[1])
    )
)


@given(COUNTS, st.sampled_from((-0.2, -0.05, 0.05, 0.3)))
@settings(max_examples=60)
def test_restricted_proportions_maximise_the_likelihood(
    counts: tuple[int, int, int, int], delta: float
) -> None:
    x1, n1, x2, n2 = counts
    r1, r2 = unpaired._restricted_proportions(x1, n1, x2, n2, delta)
    assert r1 - r2 == pytest.approx(delta, abs=1e-9)

    def loss(p1: float) -> float:
        p2 = min(max(p1 - delta, 0.0), 1.0)
        return -float(xlogy(x1, p1) + xlog1py(n1 - x1, -p1) + xlogy(x2, p2) + xlog1py(n2 - x2, -p2))

    bounds = (max(0.0, delta), min(1.0, 1.0 + delta))
    best = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-12}).fun
    assert loss(r1) <= best + 1e-7 * max(1.0, abs(best))


@given(COUNTS)
@settings(max_examples=60)
def test_arms_exchanged(counts: tuple[int, int, int, int]) -> None:
    x1, n1, x2, n2 = counts
    one = unpaired.farrington_manning_tost(x1, n1, x2, n2)
    other = unpaired.farrington_manning_tost(x2, n2, x1, n1)
    assert one.p_lower == pytest.approx(other.p_upper, rel=1e-6, abs=1e-12)
    assert 0.0 <= one.p <= 1.0
    lower, upper = unpaired.score_interval_independent(x1, n1, x2, n2, 0.9)
    assert lower - 1e-9 <= x1 / n1 - x2 / n2 <= upper + 1e-9
    assert lower >= -1.0
    assert upper <= 1.0


@pytest.mark.parametrize("counts", [(905, 1319, 912, 1319), (30, 80, 12, 40), (5, 56, 1, 29)])
def test_wald_interval_equals_statsmodels(counts: tuple[int, int, int, int]) -> None:
    wald = confint_proportions_2indep(*counts, method="wald", compare="diff", alpha=0.1)
    assert unpaired.wald_interval(*counts, 0.9) == pytest.approx(wald, abs=1e-9)


def test_no_variance_is_undefined_not_certain() -> None:
    result = unpaired.wald_tost(164, 164, 164, 164)
    assert result.se == 0.0
    assert (result.z_lower, result.p, result.smallest_margin) == (None, None, None)
    assert unpaired.farrington_manning_tost(164, 164, 164, 164).p > 0.001
    assert unpaired.power_independent(1.0, 100, 0.05) == 1.0


def test_extreme_arms() -> None:
    assert unpaired.score_interval_independent(10, 10, 0, 10, 0.95).upper == 1.0
    assert unpaired.score_interval_independent(0, 10, 10, 10, 0.95).lower == -1.0
    assert unpaired.farrington_manning_tost(10, 10, 0, 10, -0.99, 0.999).p > 0.3


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [((5, 4, 1, 4), -0.05, 0.05), ((1, 4, 1, 0), -0.05, 0.05), ((1, 4, 1, 4), 0.1, 0.1)],
)
def test_impossible_input(counts: tuple[int, int, int, int], low: float, high: float) -> None:
    with pytest.raises(ValueError, match="expected"):
        unpaired.wald_tost(*counts, low, high)
    with pytest.raises(ValueError, match="expected"):
        unpaired.farrington_manning_tost(*counts, low, high)
