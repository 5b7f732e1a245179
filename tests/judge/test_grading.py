"""Grading: a table of answers under three rules, and properties."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.judge.grading import gold_number, grade, number

ROWS = [
    # completion, gold, finish, status, strict answer, flexible correct, vLLM correct
    ("#### 18", "18", "stop", "correct", "18", True, True),
    ("#### 18.00", "18", "stop", "correct", "18", True, False),
    ("#### $41.00.", "41", "stop", "correct", "41", True, False),
    ("#### 1,234", "1234", "stop", "correct", "1234", True, True),
    ("so 1,234 it is #### 1234", "1,234", "stop", "correct", "1234", True, True),
    ("#### -6", "-6", "stop", "correct", "-6", True, True),
    ("#### \u22126", "-6", "stop", "correct", "-6", True, True),
    ("#### 6", "-6", "stop", "wrong", "6", False, True),
    ("Answer: \u22126", "-6", "stop", "no-answer", None, True, True),
    ("#### **18**", "18", "stop", "correct", "18", True, True),
    ("#### 20 - 2 = 18", "18", "stop", "wrong", "20", True, True),
    ("10-4 makes 6\n#### 6", "6", "stop", "correct", "6", True, True),
    ("a range of 5-6", "6", "stop", "no-answer", None, True, True),
    ("#### 0.5", ".5", "stop", "correct", "0.5", True, True),
    ("#### unknown", "18", "stop", "no-answer", None, False, False),
    ("#### 18 and then #### ?", "18", "stop", "correct", "18", True, True),
    ("That makes 72, all told, which fills the barn.", "72", "stop", "no-answer", None, True, True),
    (", , ,", "72", "stop", "no-answer", None, False, False),
    ("Example: #### 5. Ours: #### 18", "18", "stop", "correct", "18", True, True),
    ("#### 18\n\nQuestion: Ann has 4. #### 7", "18", "stop", "correct", "18", True, False),
    ("#### 18\nQ: next?\nA: #### 7", "18", "stop", "correct", "18", True, False),
    ("Question: what?\nAnswer: #### 18", "18", "stop", "correct", "18", True, True),
    ("", "18", "length", "no-answer", None, False, False),
    (None, "18", "length", "no-answer", None, False, False),
    ("we first add", "18", "length", "truncated", None, False, False),
    ("we get 1#### 1", "18", "length", "truncated", "1", False, False),
    ("#### 7 apples and", "18", "length", "wrong", "7", False, False),
    ("#### 18", "18", "length", "correct", "18", True, True),
    ("#### 18", "… worked …\n#### 18", "stop", "correct", "18", True, True),
]


@pytest.mark.parametrize(("text", "gold", "finish", "status", "answer", "flexible", "vllm"), ROWS)
def test_rows(
    text: str | None, gold: str, finish: str, status: str, answer: str | None, flexible: bool, vllm: bool
) -> None:
    found = grade(text, gold, finish_reason=finish)
    assert (found.status, found.answer) == (status, answer)
    assert (found.flexible_correct, found.vllm_correct) == (flexible, vllm)


def test_a_failed_request_is_an_error() -> None:
    found = grade(None, "18", error="timeout")
    assert (found.status, found.note, found.flexible_correct) == ("error", "timeout", False)


def test_an_aborted_request_is_an_error() -> None:
    assert grade(None, "18", finish_reason="abort").status == "error"


def test_a_gold_without_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="holds no number"):
        grade("#### 1", "none")


@given(st.text(), st.integers(-(10**6), 10**6), st.sampled_from(["stop", "length", None]))
def test_grading_never_crashes(text: str, gold: int, finish: str | None) -> None:
    grade(text, str(gold), finish_reason=finish)


@given(st.text(alphabet="#-\u2212$,.0123456789 \nQuestion:"), st.integers(0, 99))
def test_grading_never_crashes_on_what_looks_like_answers(text: str, gold: int) -> None:
    found = grade(text, str(gold), finish_reason="stop")
    assert (found.status == "correct") == (found.answer is not None and Decimal(found.answer) == gold)


@given(st.decimals(-(10**6), 10**6, places=2))
def test_a_marked_number_is_found_again(value: Decimal) -> None:
    assert gold_number(f"reasons\n#### {value:,}") == value
    assert grade(f"reasons\n#### {value:,}", str(value)).status == "correct"


def test_number_needs_a_digit() -> None:
    assert number(",") is None
    assert number("$") is None
    assert number("$1,234.50") == Decimal("1234.5")
