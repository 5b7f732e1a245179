"""Grades one GSM8K-style answer by three rules, because the rule matters (a public pair: 92.0 and 61.7).

strict    the last `#### N` before any next question: the verdict's rule
flexible  the last number before any next question
vllm      the last run of digits anywhere, signs and decimals dropped, as vLLM's own evaluation does
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Literal

from auditor.model.base import Model

AnswerStatus = Literal["correct", "wrong", "no-answer", "truncated", "error"]

# A minus belongs to the number only where nothing that could be subtracted from stands before it.
_SIGN = r"(?:(?<![\w)\]])[-\u2212]\s?)?"
_NUMBER = _SIGN + r"(?:[$€£]\s?[-\u2212]?)?(?:[0-9][0-9,]*(?:\.[0-9]+)?|\.[0-9]+)"
_FLEXIBLE = re.compile(_NUMBER)
_STRICT = re.compile(r"####[\s*\\$_`]*(" + _NUMBER + ")")
_QUESTION = re.compile(r"\bQuestion:|^[^\S\n]*Q:", re.MULTILINE)
_DIGITS = re.compile(r"[0-9]+")


class Grade(Model, frozen=True, kw_only=True):
    """One answer under the three rules."""

    status: AnswerStatus
    """By the strict rule."""
    answer: str | None
    """What the strict rule extracted, as a plain number."""
    flexible: str | None
    flexible_correct: bool
    vllm: str | None
    vllm_correct: bool
    note: str = ""


def grade(
    completion: str | None, gold: str, *, finish_reason: str | None = None, error: str | None = None
) -> Grade:
    """Grades `completion` against `gold` (`18`, or a worked answer that ends in `#### 18`).

    A failed request (`error`) is never a wrong answer; an empty completion is no answer; a completion cut at
    the cap before it gave one is truncated. ValueError when `gold` holds no number.
    """
    want = gold_number(gold)
    if error is None and completion is None and finish_reason in ("error", "abort"):
        error = f"finish reason {finish_reason}"
    if error is not None:
        return _grade("error", note=error)
    text = completion or ""
    cut = before_next_question(text)
    strict, flexible, digits = _strict(cut), _last(_FLEXIBLE, cut), _last(_DIGITS, text.replace(",", ""))
    found = None if strict is None else number(strict.group(1))
    status, note = _status(found, want, finish_reason, text, strict)
    loose = None if flexible is None else number(flexible)
    own = _last(_DIGITS, gold.replace(",", ""))
    return Grade(
        status=status,
        answer=None if found is None else _plain(found),
        flexible=None if loose is None else _plain(loose),
        flexible_correct=loose is not None and loose == want,
        vllm=digits,
        vllm_correct=digits is not None and own is not None and Decimal(digits) == Decimal(own),
        note=note,
    )


def gold_number(gold: str) -> Decimal:
    """The number after the last `#### `, or the gold itself. ValueError without one."""
    marked = _strict(gold)
    value = number(marked.group(1)) if marked else number(gold)
    if value is None:
        raise ValueError(f"the gold {gold[:40]!r} holds no number: expected a number or a text with '#### N'")
    return value


def number(text: str) -> Decimal | None:
    """`$1,234.50`, `−6`, `41.00` as a decimal; None without a digit."""
    plain = text.replace("\u2212", "-").strip()
    plain = re.sub(r"[,$€£\s]", "", plain).rstrip(".")
    if not re.search(r"[0-9]", plain):
        return None
    try:
        value = Decimal(plain)
    except InvalidOperation:
        return None
    return value if value.is_finite() else None


def before_next_question(text: str) -> str:
    """The text up to the next `Question:` or `Q:`; one that opens the text is the model's restatement."""
    for found in _QUESTION.finditer(text):
        if text[: found.start()].strip():
            return text[: found.start()]
    return text


def _status(
    found: Decimal | None,
    want: Decimal,
    finish_reason: str | None,
    text: str,
    strict: re.Match[str] | None,
) -> tuple[AnswerStatus, str]:
    capped = finish_reason == "length"
    if found is None:
        if not text.strip():
            return "no-answer", "empty completion, cut at the cap" if capped else "empty completion"
        return ("truncated", "cut at the cap before an answer") if capped else ("no-answer", "")
    if found == want:
        return "correct", ""
    if capped and strict is not None and strict.end() == len(text.rstrip()):
        return "truncated", "cut at the cap inside the answer"
    return "wrong", ""


def _grade(status: AnswerStatus, note: str) -> Grade:
    return Grade(
        status=status,
        answer=None,
        flexible=None,
        flexible_correct=False,
        vllm=None,
        vllm_correct=False,
        note=note,
    )


def _strict(text: str) -> re.Match[str] | None:
    last = None
    for last in _STRICT.finditer(text):  # noqa: B007 - the last match is the result
        pass
    return last


def _last(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.findall(text)
    return found[-1] if found else None


def _plain(value: Decimal) -> str:
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
