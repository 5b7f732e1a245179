"""Power, size and sample size: against full enumeration, and against simulation within its own error."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multinomial

from auditor.stats import paired
from auditor.stats.exact import exact_critical_value, score_test_size
from auditor.stats.interval import one_sided_z
from auditor.stats.power import analyse_power, equivalence_power, sample_size

REPLICATES = 20_000
SEED = 20_261_130


def simulated_tables(n: int, discordance: float, difference: float) -> tuple[np.ndarray, np.ndarray]:
    rates = ((discordance + difference) / 2, (discordance - difference) / 2, 1 - discordance)
    drawn = np.random.default_rng(SEED).multinomial(n, rates, size=REPLICATES)
    return drawn[:, 0].astype(float), drawn[:, 1].astype(float)


def within_error(found: float, expected: float) -> bool:
    """Four standard errors of a simulated share: a false alarm in 16,000 seeds, and the seed is fixed."""
    return abs(found - expected) <= 4 * math.sqrt(expected * (1 - expected) / REPLICATES) + 1 / REPLICATES


@pytest.mark.parametrize(
    ("n", "margin", "discordance", "difference"),
    [(164, 0.05, 0.05, 0.0), (250, 0.05, 0.1, 0.01), (1319, 0.02, 0.05, 0.005), (1319, 0.03, 0.2, -0.01)],
)
def test_power_is_what_simulation_finds(n: int, margin: float, discordance: float, difference: float) -> None:
    b, c = simulated_tables(n, discordance, difference)
    for exact_too in (False, True) if n < 1000 else (False,):
        critical = max(one_sided_z(0.05), exact_critical_value(n, margin)) if exact_too else one_sided_z(0.05)
        low = paired.score_statistics(b, c, n, -margin) >= critical - 1e-9
        high = paired.score_statistics(b, c, n, margin) <= -critical + 1e-9
        power = equivalence_power(n, margin, discordance, difference, with_exact_test=exact_too)
        assert within_error(float(np.mean(low & high)), power)


@pytest.mark.parametrize("discordance", [0.05, 0.1, 0.3, 0.8])
def test_simulated_error_at_the_margin_stays_within_the_size(discordance: float) -> None:
    """At δ = −Δ exactly, the exact test's error is ≤ 5% and the score test's ≤ its computed largest size."""
    n, margin = 164, 0.05
    b, c = simulated_tables(n, discordance, -margin)
    statistics = paired.score_statistics(b, c, n, -margin)
    error = 4 * math.sqrt(0.05 * 0.95 / REPLICATES)
    assert np.mean(statistics >= one_sided_z(0.05)) <= score_test_size(n, margin) + error
    assert np.mean(statistics >= exact_critical_value(n, margin)) <= 0.05 + error


@pytest.mark.parametrize(
    ("n", "margin", "discordance", "difference"),
    [(12, 0.3, 0.4, 0.1), (30, 0.2, 0.2, 0.0), (30, 0.15, 0.1, -0.1)],
)
def test_power_equals_full_enumeration(n: int, margin: float, discordance: float, difference: float) -> None:
    rates = ((discordance + difference) / 2, (discordance - difference) / 2, 1 - discordance)
    z = one_sided_z(0.05)
    expected = sum(
        float(multinomial.pmf((b, c, n - b - c), n, rates))
        for b in range(n + 1)
        for c in range(n - b + 1)
        if paired.score_statistic(b, c, n, -margin) >= z and paired.score_statistic(b, c, n, margin) <= -z
    )
    assert equivalence_power(n, margin, discordance, difference) == pytest.approx(expected, abs=1e-10)


@given(
    st.integers(1, 300),
    st.sampled_from((0.02, 0.05, 0.2)),
    st.floats(0, 1),
    st.floats(-1, 1),
)
@settings(max_examples=60)
def test_power_is_a_probability_and_symmetric(
    n: int, margin: float, discordance: float, share: float
) -> None:
    difference = share * discordance
    power = equivalence_power(n, margin, discordance, difference)
    assert 0.0 <= power <= 1.0
    assert equivalence_power(n, margin, discordance, -difference) == pytest.approx(power, abs=1e-9)


def test_the_guard_never_adds_power() -> None:
    for n in (40, 164):
        both = equivalence_power(n, 0.05, 0.08, with_exact_test=True)
        assert both <= equivalence_power(n, 0.05, 0.08) + 1e-12


def test_no_power_below_the_least_n() -> None:
    assert equivalence_power(52, 0.05, 0.0, with_exact_test=True) == 0.0
    assert equivalence_power(59, 0.05, 0.0, with_exact_test=True) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("target", "margin", "discordance", "difference"),
    [(0.8, 0.05, 0.05, 0.0), (0.9, 0.02, 0.05, 0.0), (0.8, 0.05, 0.1, 0.02)],
)
def test_sample_size_holds_from_there_on(
    target: float, margin: float, discordance: float, difference: float
) -> None:
    n = sample_size(target, margin, discordance, difference)
    assert n is not None
    assert equivalence_power(n - 1, margin, discordance, difference) < target
    for further in range(n, n + 25):
        assert equivalence_power(further, margin, discordance, difference) >= target


@pytest.mark.parametrize(
    ("margin", "discordance", "difference"), [(0.02, 0.1, 0.02), (0.02, 0.1, 0.05), (0.0001, 0.5, 0.0)]
)
def test_no_sample_size(margin: float, discordance: float, difference: float) -> None:
    assert sample_size(0.8, margin, discordance, difference) is None


def test_analysis_of_the_planned_audit() -> None:
    plan = analyse_power(1319, 0.05, 0.05)
    assert plan.power_both_tests > 0.999
    assert plan.floor_margin == pytest.approx(paired.floor_margin(65.95, 1319))
    assert plan.minimum_n == 59
    assert plan.n80 is not None
    assert plan.n90 is not None
    assert plan.minimum_n < plan.n80 < plan.n90 < 1319


@pytest.mark.parametrize(
    "arguments", [(0, 0.05, 0.1, 0.0), (100, 0.0, 0.1, 0.0), (100, 0.05, 1.1, 0.0), (100, 0.05, 0.1, 0.2)]
)
def test_impossible_plans(arguments: tuple[int, float, float, float]) -> None:
    with pytest.raises(ValueError, match=r"expected .*\.$"):
        analyse_power(*arguments)
