"""The verdict's rule, on tables whose right answer is known."""

from __future__ import annotations

import pytest

from auditor.stats import paired
from auditor.stats.equivalence import PairedEquivalence, assess
from auditor.stats.table import MissingAnswers, PairedTable


def table(both: int, candidate_only: int, reference_only: int, neither: int) -> PairedTable:
    return PairedTable(
        both=both, candidate_only=candidate_only, reference_only=reference_only, neither=neither
    )


@pytest.mark.parametrize(
    ("counts", "margin", "verdict"),
    [
        pytest.param((860, 0, 52, 407), 0.05, "equivalent but different", id="0 against 52 of 1319"),
        pytest.param((860, 52, 0, 407), 0.05, "equivalent but different", id="52 against 0"),
        pytest.param((876, 30, 36, 377), 0.05, "equivalent", id="5% discordant"),
        pytest.param((820, 40, 92, 367), 0.05, "not equivalent", id="worse by 4 points"),
        pytest.param((820, 92, 40, 367), 0.05, "not equivalent", id="better by 4 points is a fault"),
        pytest.param((846, 0, 66, 407), 0.05, "not equivalent", id="worse by exactly 5 points"),
        pytest.param((30, 0, 60, 10), 0.05, "not equivalent", id="few pairs, interval wholly beyond"),
        pytest.param((912, 0, 0, 407), 0.05, "equivalent", id="H4: no discordant pair"),
        pytest.param((190, 4, 9, 47), 0.02, "inconclusive", id="H2: 250 pairs cannot show 2 points"),
        pytest.param((1025, 15, 30, 249), 0.01, "not equivalent", id="H1: fails at 1 point"),
        pytest.param((1025, 15, 30, 249), 0.03, "equivalent but different", id="H1: within 3 points"),
        pytest.param((140, 7, 14, 39), 0.05, "inconclusive", id="200 pairs that equal arms fail to show too"),
        pytest.param((300, 8, 20, 72), 0.05, "not equivalent", id="400 pairs, and the arms differ"),
        pytest.param((40, 0, 0, 12), 0.05, "inconclusive", id="52 pairs, none discordant: by design"),
        pytest.param((45, 0, 0, 14), 0.05, "equivalent", id="59 pairs, none discordant"),
        pytest.param((0, 0, 0, 1319), 0.05, "void", id="both arms at 0%"),
        pytest.param((164, 0, 0, 0), 0.05, "void", id="both arms at 100%"),
        pytest.param((0, 0, 0, 10), 0.05, "void", id="void before too few"),
        pytest.param((0, 20, 0, 180), 0.05, "void", id="reference at the floor, candidate above it"),
    ],
)
def test_verdict(counts: tuple[int, int, int, int], margin: float, verdict: str) -> None:
    result = assess(table(*counts), margin)
    assert result.verdict == verdict, result.reason
    assert result.verdict.within_margin == verdict.startswith("equivalent")


@pytest.mark.parametrize("counts", [(80, 0, 2, 38), (100, 3, 5, 42), (120, 6, 9, 65)])
def test_the_score_test_alone_is_not_enough(counts: tuple[int, int, int, int]) -> None:
    """Tables that the score test passes by a hair; its true size exceeds 5%, and the exact test says no."""
    result = assess(table(*counts))
    assert result.score.p < 0.05 < result.exact.p
    assert not result.verdict.within_margin


def test_h1_paired_wald_figures_and_what_the_score_test_makes_of_them() -> None:
    """1055 against 1040 of 1319: published with the paired Wald interval −1.97 … −0.30 points.

    The score interval reaches −2.02, so at a margin of 2 points the two disagree; the verdict follows the
    score and the exact test.
    """
    result = assess(table(1025, 15, 30, 249), 0.02)
    assert result.paired_wald_ci90 == pytest.approx((-0.0197, -0.0030), abs=5e-5)
    assert result.mcnemar.exact == pytest.approx(0.036, abs=5e-4)
    assert result.score.ci90.lower == pytest.approx(-0.0202, abs=5e-5)
    assert result.smallest_margin == pytest.approx(0.0202, abs=5e-5)
    assert result.verdict == "not equivalent"
    assert min(result.score.p, result.exact.p) > 0.05


def test_h2_figures() -> None:
    result = assess(table(190, 4, 9, 47), 0.02)
    assert result.paired_wald_ci90 == pytest.approx((-0.0436, 0.0036), abs=5e-5)
    assert result.mcnemar.exact == pytest.approx(0.27, abs=5e-3)
    assert result.floor_margin > 0.02


def test_h4_interval_without_discordance_is_not_a_point() -> None:
    result = assess(table(912, 0, 0, 407), 0.05)
    assert result.paired_wald_ci90 == (0.0, 0.0)
    assert result.score.ci95.upper == pytest.approx(0.0029, abs=5e-5)
    assert result.score.ci95.lower == -result.score.ci95.upper


def test_agreement_indicators_need_no_band() -> None:
    every_pair_agrees = table(164, 0, 0, 0)
    assert assess(every_pair_agrees, band=None).verdict == "equivalent"


ANSWERED = (870, 30, 36, 373)
FEW = MissingAnswers(
    candidate_when_reference_right=3,
    candidate_when_reference_wrong=2,
    reference_when_candidate_right=2,
    reference_when_candidate_wrong=2,
    both=1,
)


def test_missing_answers_widen_both_directions() -> None:
    complete, partial = assess(table(*ANSWERED)), assess(table(*ANSWERED), missing=FEW)
    assert partial.n == complete.n + FEW.total
    assert partial.missing == 10
    assert partial.score.ci90.lower < complete.score.ci90.lower
    assert partial.score.ci90.upper > complete.score.ci90.upper
    assert partial.estimate == complete.estimate
    assert partial.estimate_range.lower < table(*ANSWERED).difference < partial.estimate_range.upper
    assert partial.verdict == "equivalent"


def test_missing_answers_that_decide_are_inconclusive_not_a_failure() -> None:
    lost = MissingAnswers(both=100)
    assert assess(table(800, 30, 36, 353)).verdict == "equivalent"
    result = assess(table(800, 30, 36, 353), missing=lost)
    assert result.verdict == "inconclusive"
    assert "missing" in result.reason


def test_missing_answers_cannot_excuse_a_clear_loss() -> None:
    result = assess(table(600, 0, 300, 400), missing=MissingAnswers(both=10))
    assert result.verdict == "not equivalent"


@pytest.mark.parametrize(
    "field", ["candidate_when_reference_right", "reference_when_candidate_wrong", "both"]
)
def test_every_missing_answer_that_could_hurt_does(field: str) -> None:
    base = assess(table(*ANSWERED)).score.p_lower
    assert assess(table(*ANSWERED), missing=MissingAnswers(**{field: 5})).score.p_lower > base


def test_nothing_answered_by_both_arms() -> None:
    result = assess(table(0, 0, 0, 0), missing=MissingAnswers(both=100))
    assert result.estimate is None
    assert result.reference_accuracy is None
    assert result.verdict == "void"
    with pytest.raises(ValueError, match="at least one pair"):
        assess(table(0, 0, 0, 0))


def test_verdict_uses_the_level_it_is_given() -> None:
    counts = table(876, 26, 40, 377)
    assert assess(counts, 0.02, alpha=0.05).verdict == "inconclusive"
    assert assess(counts, 0.02, alpha=0.2).verdict.within_margin
    assert assess(counts, 0.05, alpha=0.01).smallest_margin > assess(counts, 0.05).smallest_margin


@pytest.mark.parametrize("band", [(0.5, 0.5), (-0.1, 0.9), (0.2, 1.1)])
def test_impossible_band(band: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="band"):
        assess(table(*ANSWERED), band=band)


def test_floor_margin_is_what_an_even_split_would_have_shown() -> None:
    result: PairedEquivalence = assess(table(843, 63, 69, 344))
    assert result.floor_margin == pytest.approx(paired.smallest_margin(66, 66, 1319), abs=1e-12)
