"""What a run prints when it is over: verdict, each claim, findings with remedies, where the report lies."""

from __future__ import annotations

import textwrap

from auditor.model.judgement import AccuracyTest, Agreement, Invariance, WidthControl
from auditor.model.record import AuditRecord
from auditor.report import numbers
from auditor.report.progress import Progress, Step
from auditor.report.visible import plain

__all__ = ["Progress", "Step", "summary"]

WIDTH = 80
MOST_FINDINGS = 8
_RANK = {"error": 0, "warning": 1, "note": 2}


def summary(record: AuditRecord, report: str = "") -> str:
    """The last lines of a run, at most 80 columns wide (a long path or command is never broken).

    `report` is the path of the report. Plain text: no colour, no control character of anybody.
    """
    judgement, verdict = record.judgement, record.judgement.verdict
    lines = [f"{verdict.name} (exit code {verdict.exit_code})", *_wrap(verdict.reason, "  ")]
    if record.plan.target_kind != "trained":
        lines += _wrap(
            f"target: {record.plan.target_kind}; its numbers say nothing of a production model", "  "
        )
    if judgement.gates:
        lines += ["", "Gates"]
        for gate in judgement.gates:
            lines += _wrap(f"{gate.name}: {gate.figure}", f"  {gate.status:<12} ", " " * 15)
            if gate.status != "PASS" and gate.remedy:
                lines += _wrap(f"what to do: {gate.remedy}", " " * 15)
    claims = [*map(_agreement, judgement.agreement), *map(_width, judgement.width_controls)]
    claims += map(_accuracy, judgement.accuracy)
    candidates = {arm.name for arm in record.plan.candidates}
    claims += [_invariance(i) for i in judgement.invariance if i.arm in candidates]
    if claims:
        lines += ["", "Claims"]
        for claim in claims:
            lines += _wrap(claim, "  ", "    ")
    found = sorted(dict.fromkeys((*record.findings, *judgement.findings)), key=lambda f: _RANK[f.severity])
    if found:
        lines += ["", "Findings"]
        for f in found[:MOST_FINDINGS]:
            about = f" ({f.subject})" if f.subject else ""
            lines += _wrap(f"{f.severity}: {f.code}{about}: {f.seen}", "  ", "    ")
            lines += _wrap(f"what to do: {f.remedy}", "    ", "      ")
        if len(found) > MOST_FINDINGS:
            lines.append(f"  and {len(found) - MOST_FINDINGS} more in the report")
    if report:
        lines += ["", f"Report: {plain(report)}"]
    return "\n".join(lines) + "\n"


def _agreement(a: Agreement) -> str:
    control = f"; control {numbers.proportion(a.control)}" if a.control else ""
    interval = numbers.interval_percent(a.agreement.clopper_pearson95)
    return f"{a.arm}, {a.corpus}: {numbers.proportion(a.agreement)} agree, 95% {interval}{control}"


def _width(w: WidthControl) -> str:
    return (
        f"{w.arm}, of the prompts sampled {numbers.proportion(w.candidate)} diverge; without a drafter at "
        f"{w.width} tokens a pass {numbers.proportion(w.control)}"
    )


def _accuracy(t: AccuracyTest) -> str:
    return (
        f"{t.arm}, accuracy: {t.candidate_only:,} gained, {t.reference_only:,} lost of {t.n:,}, "
        f"{numbers.points(t.estimate)}, 90% {numbers.interval_points(t.ci90)}, "
        f"margin {numbers.margin(t.margin)}: {t.verdict}"
    )


def _invariance(i: Invariance) -> str:
    held = "" if i.held else f" (not held, median {numbers.integer(i.achieved)})"
    base = f"; reference {numbers.proportion(i.reference)}" if i.reference else ""
    return f"{i.arm}, {i.level} in flight{held}: {numbers.proportion(i.self_agreement)} as at batch 1{base}"


def _wrap(text: str, first: str, rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        plain(text),
        WIDTH,
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
