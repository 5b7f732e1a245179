"""Properties that hold for every legal table, and the exact test against full enumeration of small ones."""

from __future__ import annotations

import math
from dataclasses import astuple

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multinomial

from auditor.stats import paired
from auditor.stats.equivalence import EquivalenceVerdict, assess
from auditor.stats.exact import (
    exact_critical_value,
    exact_p_lower,
    exact_tost,
    least_candidate_only,
    score_test_size,
)
from auditor.stats.interval import one_sided_z
from auditor.stats.table import PairedTable

MARGINS = st.sampled_from((0.01, 0.02, 0.05, 0.1, 0.3))


@st.composite
def tables(draw: st.DrawFn, largest: int = 2000) -> PairedTable:
    n = draw(st.integers(1, largest))
    cuts = sorted(draw(st.lists(st.integers(0, n), min_size=3, max_size=3)))
    sizes = [right - left for left, right in zip([0, *cuts], [*cuts, n], strict=True)]
    return PairedTable(both=sizes[0], candidate_only=sizes[1], reference_only=sizes[2], neither=sizes[3])


def finite(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(finite, value))
    return not isinstance(value, float) or not math.isnan(value)


@given(st.integers(0, 300), st.integers(0, 300))
def test_the_one_sided_mcnemar_is_half_of_the_two_sided_below_and_their_sum_is_more_than_one(
    b: int, c: int
) -> None:
    lower, higher = paired.mcnemar_lower(b, c), paired.mcnemar_lower(c, b)
    assert lower + higher >= 1.0 - 1e-12, "the observed split counts for both"
    if b < c:
        assert 2.0 * lower == pytest.approx(paired.mcnemar(b, c).exact)
    assert paired.mcnemar_lower(b, c + 1) <= lower


def test_the_one_sided_mcnemar_by_hand() -> None:
    assert paired.mcnemar_lower(0, 5) == pytest.approx(1 / 32)
    assert paired.mcnemar_lower(1, 4) == pytest.approx(6 / 32)
    assert paired.mcnemar_lower(0, 0) == 1.0


@given(tables(), MARGINS)
@settings(max_examples=60)
def test_exchanging_the_arms_mirrors_every_figure(table: PairedTable, margin: float) -> None:
    b, c, n = table.candidate_only, table.reference_only, table.n
    low, high = paired.score_interval(b, c, n, 0.9)
    mirrored = paired.score_interval(c, b, n, 0.9)
    assert mirrored == pytest.approx((-high, -low), abs=1e-12)
    assert paired.score_p_lower(b, c, n, margin) == pytest.approx(
        paired.score_p_upper(c, b, n, margin), rel=1e-9
    )
    assert paired.mcnemar(b, c) == paired.mcnemar(c, b)
    newcombe = paired.newcombe10(table, 0.95)
    assert paired.newcombe10(table.exchanged(), 0.95) == pytest.approx(
        (-newcombe.upper, -newcombe.lower), abs=1e-12
    )


@given(tables(), st.sampled_from((0.8, 0.9, 0.95, 0.99)))
@settings(max_examples=60)
def test_intervals_contain_the_estimate_and_stay_within_one(table: PairedTable, confidence: float) -> None:
    b, c, n = table.candidate_only, table.reference_only, table.n
    for interval in (
        paired.score_interval(b, c, n, confidence),
        paired.newcombe10(table, confidence),
    ):
        assert -1.0 <= interval.lower <= table.difference + 1e-12
        assert table.difference - 1e-12 <= interval.upper <= 1.0
    assert paired.score_interval(b, c, n, 0.999).lower <= paired.score_interval(b, c, n, confidence).lower


@given(tables(), MARGINS, st.sampled_from((0.01, 0.05, 0.1)))
@settings(max_examples=60)
def test_p_value_and_interval_agree(table: PairedTable, margin: float, alpha: float) -> None:
    b, c, n = table.candidate_only, table.reference_only, table.n
    lower, upper = paired.score_interval(b, c, n, 1 - 2 * alpha)
    p_lower, p_upper = paired.score_p_lower(b, c, n, margin), paired.score_p_upper(b, c, n, margin)
    if abs(p_lower - alpha) > 1e-9:
        assert (p_lower < alpha) == (lower > -margin)
    if abs(p_upper - alpha) > 1e-9:
        assert (p_upper < alpha) == (upper < margin)


@given(tables(), st.floats(-0.999, 0.999))
@settings(max_examples=60)
def test_the_statistic_rises_with_b_and_falls_with_c(table: PairedTable, delta0: float) -> None:
    b, c, n = table.candidate_only, table.reference_only, table.n
    here = paired.score_statistic(b, c, n, delta0)
    slack = 1e-9 * max(1.0, abs(here))
    if b + c < n:
        assert paired.score_statistic(b + 1, c, n, delta0) >= here - slack
        assert paired.score_statistic(b, c + 1, n, delta0) <= here + slack
    assert paired.score_statistic(b, c, n, min(delta0 + 0.01, 1.0)) <= here + slack


@given(tables(largest=60), MARGINS)
@settings(max_examples=30)
def test_an_assessment_has_no_nan_and_no_impossible_probability(table: PairedTable, margin: float) -> None:
    result = assess(table, margin)
    assert finite(astuple(result))
    for p in (result.score.p, result.exact.p, result.mcnemar.exact, result.mcnemar.mid_p):
        assert 0.0 <= p <= 1.0
    assert result.verdict in EquivalenceVerdict
    assert result.reason
    assert not result.verdict.within_margin or max(result.score.p, result.exact.p) < 0.05


@given(st.integers(1, 40), st.data())
@settings(max_examples=30)
def test_exact_p_falls_as_the_candidate_gains_an_item(n: int, data: st.DataObject) -> None:
    b = data.draw(st.integers(0, n - 1))
    c = data.draw(st.integers(0, n - 1 - b))
    here = exact_p_lower(b, c, n, 0.05)
    assert exact_p_lower(b + 1, c, n, 0.05) <= here + 1e-9
    assert exact_p_lower(b, c + 1, n, 0.05) >= here - 1e-9


def enumerated_p_lower(b: int, c: int, n: int, margin: float, points: int = 3000) -> float:
    """sup over s of P(T ≥ t) by summing the trinomial over every table, T from the numeric likelihood."""
    all_b, all_c = (axis.ravel() for axis in np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij"))
    legal = all_b + all_c <= n
    all_b, all_c = all_b[legal], all_c[legal]
    statistics = np.array(
        [paired.score_statistic(int(x), int(y), n, -margin) for x, y in zip(all_b, all_c, strict=True)]
    )
    extreme = statistics >= paired.score_statistic(b, c, n, -margin) - 1e-9
    counts = np.stack((all_b, all_c, n - all_b - all_c), axis=1)[extreme]
    best = 0.0
    for s in np.linspace(0, (1 - margin) / 2, points):
        cells = (s, s + margin, max(0.0, 1 - 2 * s - margin))
        best = max(best, float(multinomial.pmf(counts, n, cells).sum()))
    return best


@pytest.mark.parametrize(
    ("b", "c", "n", "margin"),
    [(0, 0, 5, 0.3), (2, 1, 8, 0.2), (0, 3, 12, 0.1), (5, 0, 12, 0.05), (1, 1, 20, 0.15), (12, 0, 12, 0.05)],
)
def test_exact_p_equals_full_enumeration(b: int, c: int, n: int, margin: float) -> None:
    assert exact_p_lower(b, c, n, margin) == pytest.approx(enumerated_p_lower(b, c, n, margin), rel=1e-4)


def test_the_rejection_region_has_no_hole() -> None:
    """`least_candidate_only` bisects: right only if every table with a larger b is in the region too."""
    for n, margin, statistic in ((7, 0.3, 0.5), (25, 0.05, 1.3), (40, 0.1, 2.0)):
        least = least_candidate_only(n, margin, statistic)
        for c in range(n + 1):
            inside = [paired.score_statistic(b, c, n, -margin) >= statistic - 1e-9 for b in range(n - c + 1)]
            assert inside == [b >= least[c] for b in range(n - c + 1)]


@pytest.mark.parametrize(
    ("b", "c", "n", "delta0"), [(3, 7, 40, -0.1), (0, 1, 44, -0.1), (9, 3, 32, 0.05), (0, 0, 50, 0.05)]
)
def test_statistic_equals_the_numeric_restricted_likelihood(b: int, c: int, n: int, delta0: float) -> None:
    """T from a maximum of the trinomial likelihood found by search, at 30 digits."""
    with mpmath.workdps(30):
        low, high = mpmath.mpf(max(0.0, -delta0)), mpmath.mpf(1 - delta0) / 2

        def log_likelihood(q: mpmath.mpf) -> mpmath.mpf:
            cells = ((b, q + delta0), (c, q), (n - b - c, 1 - 2 * q - delta0))
            return mpmath.fsum(k * mpmath.log(p) if p > 0 else -mpmath.inf for k, p in cells if k)

        for _ in range(200):
            left, right = low + (high - low) / 3, high - (high - low) / 3
            low, high = (left, high) if log_likelihood(left) < log_likelihood(right) else (low, right)
        q = (low + high) / 2
        expected = (b - c - n * delta0) / mpmath.sqrt(n * (2 * q + delta0 * (1 - delta0)))
    assert paired.score_statistic(b, c, n, delta0) == pytest.approx(float(expected), abs=1e-9)


@pytest.mark.parametrize("n", [59, 164])
def test_the_critical_value_separates_tables_by_exact_p(n: int) -> None:
    critical = exact_critical_value(n, 0.05)
    assert critical >= one_sided_z(0.05) - 1e-6 or score_test_size(n, 0.05) <= 0.05
    for b, c in ((0, 0), (1, 0), (0, 1), (2, 1), (3, 0), (6, 1)):
        rejects = exact_p_lower(b, c, n, 0.05) < 0.05
        assert rejects == (paired.score_statistic(b, c, n, -0.05) >= critical - 1e-5)


def test_no_table_of_52_pairs_can_be_equivalent_at_five_points() -> None:
    """The least n by design is a bound on what the exact test can show, not a convention."""
    assert paired.minimum_n(0.05) == 59
    assert exact_tost(0, 0, 58, 0.05).p > 0.05
    assert exact_tost(0, 0, 59, 0.05).p == pytest.approx(0.95**59, rel=1e-6)


def test_large_n_limits() -> None:
    """For n → ∞ the score, Wald and Newcombe intervals and the exact and score p values come together."""
    n, b, c = 400_000, 10_000, 10_300
    score = paired.score_interval(b, c, n, 0.95)
    assert paired.wald(b, c, n, 0.95) == pytest.approx(score, abs=1e-6)
    assert paired.agresti_min(b, c, n, 0.95) == pytest.approx(score, abs=1e-6)
    table = PairedTable(both=300_000, candidate_only=b, reference_only=c, neither=n - 300_000 - b - c)
    assert paired.newcombe10(table, 0.95) == pytest.approx(score, abs=1e-5)
    assert exact_p_lower(200, 215, 6000, 0.01) == pytest.approx(
        paired.score_p_lower(200, 215, 6000, 0.01), rel=0.2
    )


def test_floor_margin_shrinks_with_n_and_grows_with_discordance() -> None:
    floors = [paired.floor_margin(0.05 * n, n) for n in (100, 500, 1319, 10_000)]
    assert floors == sorted(floors, reverse=True)
    assert paired.floor_margin(10, 1000) < paired.floor_margin(20, 1000)


@pytest.mark.parametrize(
    "call",
    [
        lambda: paired.score_statistic(-1, 0, 10, 0.0),
        lambda: paired.score_statistic(6, 5, 10, 0.0),
        lambda: paired.score_statistic(0, 0, 0, 0.0),
        lambda: paired.score_statistic(1, 0, 10, 1.5),
        lambda: paired.score_p_lower(1, 0, 10, 0.0),
        lambda: paired.score_interval(1, 0, 10, 1.0),
        lambda: paired.mcnemar(1.5, 2),  # type: ignore[arg-type]
        lambda: paired.floor_margin(11, 10),
        lambda: paired.minimum_n(1.0),
        lambda: exact_p_lower(1, 0, 10, float("nan")),
        lambda: exact_critical_value(10, 0.05, 0.5),
        lambda: PairedTable(both=-1, candidate_only=0, reference_only=0, neither=3),
    ],
)
def test_impossible_input_is_one_sentence(call: object) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=r"expected .*\.$"):
        call()
