"""Margins: which logprobs are evidence, and what they say."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.judge.margin import Floor, Reading, Ruling, read_margin, rule
from auditor.model.completion import TokenLogprob

FLOOR = Floor(nats=0.25)
REF, CAND, THIRD = 40, 41, 7


def reading(
    top: dict[int, float | None], *, chosen: int | None = REF, own: int = REF, launch: str = "reference-1"
) -> Reading:
    listed = tuple(TokenLogprob(token=t, logprob=p) for t, p in top.items())
    return read_margin(
        launch=launch, top=listed, reference_token=REF, other_token=CAND, chosen=chosen, own_token=own
    )


def ruled(top: dict[int, float | None], other: Reading | None = None, **how: int | None) -> Ruling:
    return rule(reading(top, **how), other, FLOOR, CAND)  # type: ignore[arg-type]


ROWS: list[tuple[str, dict[int, float | None], str]] = [
    ("equal", {REF: -1.0, CAND: -1.0}, "exact tie"),
    ("one step", {REF: -1.0, CAND: -1.125}, "near tie"),
    ("at the floor", {REF: -1.0, CAND: -1.25}, "near tie"),
    ("beyond", {REF: -1.0, CAND: -1.26}, "unexplained"),
    ("far beyond", {REF: -0.02, CAND: -4.12}, "unexplained"),
    ("not listed but bounded", {REF: -0.1, THIRD: -3.0}, "unexplained"),
    ("not listed, bound too weak", {REF: -1.0, THIRD: -1.1}, "unknown"),
    ("neither listed", {THIRD: -0.1, 8: -2.0}, "unknown"),
    ("constant zeros", {REF: 0.0, CAND: 0.0}, "unknown"),
    ("all alike", {REF: -2.0, CAND: -2.0, THIRD: -2.0}, "unknown"),
    ("clamped", {REF: -0.1, CAND: -9999.0}, "unknown"),
    ("NaN", {REF: -0.1, CAND: None}, "unknown"),
    ("infinite", {REF: -0.1, CAND: -math.inf}, "unknown"),
    ("positive", {REF: 0.5, CAND: -3.0}, "unknown"),
    ("empty", {}, "unknown"),
]


@pytest.mark.parametrize(("top", "cls"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS])
def test_rows(top: dict[int, float | None], cls: str) -> None:
    assert ruled(top).cls == cls


def test_nobody_scored() -> None:
    assert rule(None, None, FLOOR, CAND).cls == "unknown"


def test_no_floor_no_evidence() -> None:
    found = rule(reading({REF: -1.0, CAND: -1.0}), None, Floor(nats=None, problem="uncalibrated"), CAND)
    assert found.cls == "unknown"
    assert "uncalibrated" in found.why


def test_a_flip_within_the_floor_is_a_tie_and_says_so() -> None:
    found = ruled({CAND: -1.0, REF: -1.125}, chosen=CAND)
    assert (found.cls, found.flip) == ("near tie", True)
    assert "plain reference picks the candidate's token" in found.why


def test_a_flip_beyond_the_floor_clears_the_head() -> None:
    found = ruled({CAND: -0.2, REF: -1.9}, chosen=CAND)
    assert (found.cls, found.flip) == ("unknown", True)
    assert "not the head" in found.why


def test_a_third_token_makes_the_rescoring_no_evidence() -> None:
    assert ruled({THIRD: -0.1, REF: -3.0, CAND: -3.0}, chosen=THIRD).cls == "unknown"


def test_a_three_way_tie_is_a_tie() -> None:
    assert ruled({THIRD: -1.5, REF: -1.625, CAND: -1.625}, chosen=THIRD).cls == "exact tie"


def test_a_candidate_whose_own_logits_are_elsewhere_contradicts_a_tie() -> None:
    theirs = reading({CAND: -0.01, REF: -5.0}, chosen=CAND, own=CAND, launch="eagle3-1")
    found = ruled({REF: -1.0, CAND: -1.0}, theirs)
    assert found.cls == "unexplained"
    assert "different logits" in found.why


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ({REF: -0.02, CAND: -4.12}, "verification or cache fault"),
        ({CAND: -0.02, REF: -4.12}, "the targets differ"),
    ],
)
def test_unexplained_names_whose_logits_disagree(theirs: dict[int, float | None], said: str) -> None:
    assert said in ruled({REF: -0.02, CAND: -4.12}, reading(theirs, own=CAND, launch="eagle3-1")).why


def test_a_step_of_an_unknown_dtype_is_unknown() -> None:
    floor = Floor(nats=0.03, unknown_step=0.25)
    assert rule(reading({REF: -1.0, CAND: -1.125}), None, floor, CAND).cls == "unknown"
    assert rule(reading({REF: -1.0, CAND: -1.5}), None, floor, CAND).cls == "unexplained"


@given(st.floats(-20, -1e-6), st.floats(-20, -1e-6))
def test_the_margin_is_the_difference_and_antisymmetric(one: float, two: float) -> None:
    if math.exp(one) + math.exp(two) > 1.0:
        return
    mine = reading({REF: one, CAND: two}).margin
    swapped = reading({REF: two, CAND: one}).margin
    assert mine.margin == one - two
    assert swapped.margin is not None
    assert mine.margin == -swapped.margin
