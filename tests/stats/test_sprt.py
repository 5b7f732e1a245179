"""The sequential test: boundaries, stopping, and characteristics against enumeration and simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditor.stats.sprt import Decision, SequentialTest, decide, operating_characteristics

PROTOCOL = SequentialTest()


def outcomes(digits: str) -> list[bool]:
    return [digit == "1" for digit in digits]


@pytest.mark.parametrize(
    ("digits", "decision", "n"),
    [
        ("1" * 11, "SAME STATE", 11),
        ("1" * 10, "CONTINUE", 10),
        ("1" * 40, "SAME STATE", 11),
        ("000", "OTHER STATE", 3),
        ("00", "CONTINUE", 2),
        ("1000", "CONTINUE", 4),
        ("10000", "OTHER STATE", 5),
        ("0" + "1" * 15, "SAME STATE", 16),
        ("", "CONTINUE", 0),
        ("1110" * 16, "INTERMEDIATE", 64),
    ],
)
def test_decision_and_where_it_falls(digits: str, decision: str, n: int) -> None:
    outcome = decide(PROTOCOL, outcomes(digits))
    assert (outcome.decision, outcome.n) == (decision, n)
    assert outcome.score == pytest.approx(PROTOCOL.score(outcome.agreements, n - outcome.agreements))


def test_the_protocols_constants() -> None:
    assert PROTOCOL.agreement_step == pytest.approx(0.641854, abs=5e-7)
    assert PROTOCOL.disagreement_step == pytest.approx(-2.302585, abs=5e-7)
    assert (PROTOCOL.upper, -PROTOCOL.lower) == pytest.approx((6.906755, 6.906755), abs=5e-7)


def test_boundaries_hold_wherever_a_decision_falls() -> None:
    """SAME lies on or above intercept + slope·n, and the counts named as least are least."""
    for disagreements in range(6):
        n = PROTOCOL.least_n_for_same(disagreements)
        assert PROTOCOL.score(n - disagreements, disagreements) >= PROTOCOL.upper
        assert PROTOCOL.score(n - disagreements - 1, disagreements) < PROTOCOL.upper
        assert n - disagreements >= PROTOCOL.intercept + PROTOCOL.slope * n
    for agreements in range(12):
        least = PROTOCOL.least_disagreements_for_other(agreements)
        assert PROTOCOL.score(agreements, least) <= PROTOCOL.lower
        assert PROTOCOL.score(agreements, least - 1) > PROTOCOL.lower


@pytest.mark.parametrize("p", [0.0, 0.3, 0.5, 0.85, 0.95, 1.0])
def test_characteristics_equal_the_sum_over_every_sequence(p: float) -> None:
    test = SequentialTest(alpha=0.05, beta=0.1, truncate=12)
    found = operating_characteristics(test, p)
    chance = dict.fromkeys(Decision, 0.0)
    expected_n = 0.0
    for sequence in itertools.product((False, True), repeat=test.truncate):
        weight = math.prod(p if outcome else 1 - p for outcome in sequence)
        outcome = decide(test, sequence)
        chance[outcome.decision] += weight
        expected_n += weight * outcome.n
    assert (found.same, found.other, found.undecided, found.expected_n) == pytest.approx(
        (chance[Decision.SAME], chance[Decision.OTHER], chance[Decision.INTERMEDIATE], expected_n), abs=1e-12
    )
    assert chance[Decision.CONTINUE] == 0.0


def test_simulation_agrees() -> None:
    replicates, p = 4000, 0.8
    drawn = np.random.default_rng(7).random((replicates, PROTOCOL.truncate)) < p
    results = [decide(PROTOCOL, row) for row in drawn]
    found = operating_characteristics(PROTOCOL, p)
    for decision, expected in (
        (Decision.SAME, found.same),
        (Decision.OTHER, found.other),
        (Decision.INTERMEDIATE, found.undecided),
    ):
        share = sum(result.decision is decision for result in results) / replicates
        assert abs(share - expected) < 4 * math.sqrt(expected * (1 - expected) / replicates)


@given(
    st.floats(0.05, 0.9),
    st.floats(0.01, 0.09),
    st.floats(0.001, 0.2),
    st.floats(0.001, 0.2),
    st.integers(1, 80),
)
@settings(max_examples=60)
def test_error_rates_stay_within_walds_bounds(
    p0: float, step: float, alpha: float, beta: float, truncate: int
) -> None:
    """P(SAME | p0) ≤ α/(1 − β) and P(OTHER | p1) ≤ β/(1 − α), truncated or not; the three always sum to 1."""
    test = SequentialTest(p0=p0, p1=p0 + step, alpha=alpha, beta=beta, truncate=truncate)
    null, alternative = operating_characteristics(test, test.p0), operating_characteristics(test, test.p1)
    assert null.same <= alpha / (1 - beta) + 1e-12
    assert alternative.other <= beta / (1 - alpha) + 1e-12
    for row in (null, alternative):
        assert row.same + row.other + row.undecided == pytest.approx(1.0, abs=1e-12)
        assert 1.0 <= row.expected_n <= truncate + 1e-9


def test_the_protocols_test_errs_less_than_its_nominal_rates() -> None:
    assert operating_characteristics(PROTOCOL, 0.5).same < 0.001
    assert operating_characteristics(PROTOCOL, 0.95).other < 0.001
    assert operating_characteristics(PROTOCOL, 0.5).undecided < 1e-4


@pytest.mark.parametrize(
    "arguments",
    [
        {"p0": 0.95, "p1": 0.5},
        {"p0": 0.5, "p1": 0.5},
        {"p1": 1.0},
        {"alpha": 0.0},
        {"beta": 0.5},
        {"truncate": 0},
    ],
)
def test_impossible_tests(arguments: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        SequentialTest(**arguments)  # type: ignore[arg-type]
