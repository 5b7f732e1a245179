"""The page and the last lines of `audit diff`, from the comparison alone."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from auditor.model.baseline import AcceptanceChange, Change, Condition, RunDiff, StateChange
from auditor.report import numbers
from auditor.report.html import lay_out
from auditor.report.parts import Section, Tone
from auditor.report.sections import diff as sections
from auditor.report.view import TARGET_LABELS
from auditor.report.visible import plain

WIDTH = 80
_TONE: dict[str, Tone] = {"no regression": "good", "regression": "bad"}
_MEANING = {
    "no regression": "By the rule nothing is worse. That is no proof of equality: the intervals say what is "
    "still possible.",
    "regression": "By the rule something is worse in the run after than in the run before.",
    "inconclusive": "Too little evidence to say whether something is worse.",
    "not comparable": "The two runs have too little in common for the rule.",
}


@dataclass(frozen=True, slots=True)
class Page:
    title: str
    tone: Tone
    headline: str
    exit_code: int
    reason: str
    meaning: str
    facts: tuple[str, ...]
    label: str
    sections: tuple[Section, ...]


def render(found: RunDiff) -> str:
    """HTML of the comparison: one self-contained file, the same bytes for the same comparison."""
    return lay_out("diff.html.j2", page(found))


def page(found: RunDiff) -> Page:
    kind = found.after.target_kind
    return Page(
        title=f"{found.outcome}: {sections.run_name(found.after)} against {sections.run_name(found.before)}",
        tone=_TONE.get(found.outcome, "warn"),
        headline=found.outcome[0].upper() + found.outcome[1:],
        exit_code=found.exit_code,
        reason=found.reason,
        meaning=_MEANING[found.outcome],
        facts=(
            f"before: {sections.run_name(found.before)}, {found.before.date or 'no date'}",
            f"after: {sections.run_name(found.after)}, {found.after.date or 'no date'}",
        ),
        label="" if kind == "trained" else TARGET_LABELS.get(kind, f"{kind} target"),
        sections=(
            sections.conditions(found),
            sections.states(found),
            sections.findings(found),
            sections.shares(found),
            sections.classes(found),
            sections.acceptance(found),
            sections.accuracy(found),
            sections.gates(found),
        ),
    )


def summary(found: RunDiff, report: str = "") -> str:
    """What `audit diff` prints, at most 80 columns (a path is never broken); plain text."""
    head = f"{found.outcome.upper()} (exit code {found.exit_code})"
    lines = [head, *_wrap(found.reason, "  "), ""]
    for word, run in (("before", found.before), ("after ", found.after)):
        lines += _wrap(
            f"{word}  {sections.run_name(run)}, {run.date or 'no date'}: {run.verdict or 'no verdict'}",
            "",
            "        ",
        )
    if found.after.target_kind != "trained":
        lines += _wrap(f"target: {found.after.target_kind}", "")
    lines += _part("Not alike", (_condition(c) for c in found.conditions if c.bearing != "listed"))
    listed = sum(c.bearing == "listed" for c in found.conditions)
    if listed:
        lines.append(f"  and {listed} differences without a known bearing")
    lines += _part("Launch states", map(_state, found.states))
    lines += _part("Shares, after against before", map(_share, found.changes))
    lines += _part(
        "Divergences (flips of the drafter-free reference are left out)",
        (
            f"{c.arm}, {c.cls}: {c.after} after {c.before}{' (new fault)' if c.new_fault else ''}"
            for c in found.classes
        ),
    )
    lines += _part("Acceptance length", map(_speed, found.acceptance))
    lines += _part(
        "Gates that changed",
        (
            f"{g.name}: {g.after or 'absent'} after {g.before or 'absent'}"
            for g in found.gates
            if g.before != g.after
        ),
    )
    for arm in found.arms:
        for word, said in (
            ("Worse", arm.regressions),
            ("Not decided", arm.undecided),
            ("Not measured", arm.missing),
            ("No worse", arm.compared),
        ):
            lines += _part(f"{word}: {arm.arm}", said)
    lines += _part(
        f"Changed beyond chance ({found.tests} paired tests, Holm's method)",
        found.beyond_chance or ("nothing",),
    )
    lines += _part("Not compared, or with limits", found.not_compared)
    if report:
        lines += ["", f"Page: {plain(report)}"]
    return "\n".join(lines) + "\n"


def _part(title: str, said: Iterable[str]) -> Iterator[str]:
    found = list(said)
    if found:
        yield ""
        yield plain(title)
        for text in found:
            yield from _wrap(text, "  ")


def _condition(condition: Condition) -> str:
    word = sections.BEARING[condition.bearing][0]
    shown = (numbers.ABSENT if v is None else v[:60] for v in (condition.before, condition.after))
    return f"{condition.what}: {' -> '.join(shown)} ({word})"


def _state(found: StateChange) -> str:
    states = f"{found.after_state or 'no state'} after {found.before_state or 'no state'}; "
    known = states if found.before_state or found.after_state else ""
    return f"{sections.arm_name(found)}: {known}fingerprints {found.fingerprints}"


def _share(change: Change) -> str:
    how = f"p {numbers.p_value(change.p)}" if change.paired else "unpaired"
    interval = numbers.interval_points(change.interval95)
    return (
        f"{change.arm}, {change.what}, {change.subject}: {numbers.proportion(change.after)} after "
        f"{numbers.proportion(change.before)}, {numbers.points(change.difference)}, 95% {interval}, {how}"
    )


def _speed(change: AcceptanceChange) -> str:
    shown = f"{numbers.number(change.after, 4)} after {numbers.number(change.before, 4)}"
    relative = "" if change.relative is None else f" ({numbers.signed(change.relative, 2, 100)}%)"
    return f"{change.arm}, {change.kind}: {shown}{relative}{f'; {change.note}' if change.note else ''}"


def _wrap(text: str, first: str, rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        plain(text),
        WIDTH,
        initial_indent=first,
        subsequent_indent=first + "  " if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
