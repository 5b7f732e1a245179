"""A record as the page that is laid out: everything worked out, nothing marked up but plots and texts."""

from __future__ import annotations

from dataclasses import dataclass

from auditor.model.record import AuditRecord, Evidence
from auditor.report.parts import STATUS_TONE, Pairs, Section, Tone
from auditor.report.sections import (
    accuracy,
    agreement,
    certification,
    divergences,
    load,
    overview,
    provenance,
)

TARGET_LABELS = {
    "toy": "Toy target: a tiny model made for demonstrations. The machinery is real; the numbers say "
    "nothing about a production model.",
    "random-weight": "Random-weight target: its weights were never trained. Agreement and launch states mean "
    "what they say; task accuracy and acceptance do not.",
}
MEANING = {
    "PASS": "Every gate of the plan passed.",
    "FAIL": "A gate failed: do not ship this head on this evidence.",
    "INVALID": "The plan or the command line is wrong; nothing was measured.",
    "UNCERTIFIED": "The servers were not shown to be in one launch state: byte agreement proves nothing.",
    "INCONCLUSIVE": "Too little evidence to pass or to fail.",
    "ERROR": "The audit did not finish; what was measured is kept and can be resumed.",
}


@dataclass(frozen=True, slots=True)
class Page:
    title: str
    name: str
    date: str
    verdict: str
    tone: Tone
    exit_code: int
    reason: str
    meaning: str
    label: str
    """What kind of target it is, where that limits every number; empty for a trained one."""
    interrupted: str
    facts: tuple[str, ...]
    asked: Pairs
    measured: Pairs
    unverified: tuple[str, ...]
    limits: tuple[str, ...]
    before: tuple[Section, ...]
    explorer: divergences.Explorer
    after: tuple[Section, ...]


def page(record: AuditRecord, evidence: Evidence, most_divergences: int) -> Page:
    """Pure: the same record and completions give the same page."""
    verdict, plan = record.judgement.verdict, record.plan
    asked, measured = overview.plan_pairs(record)
    label = (
        ""
        if plan.target_kind == "trained"
        else TARGET_LABELS.get(plan.target_kind, f"{plan.target_kind} target")
    )
    interrupted = ""
    if record.status != "complete":
        interrupted = f"This audit is {record.status}: {record.error or 'no reason was recorded'}."
    return Page(
        title=f"{verdict.name}: {plan.name}",
        name=plan.name,
        date=record.date,
        verdict=verdict.name,
        tone=STATUS_TONE[verdict.name],
        exit_code=verdict.exit_code,
        reason=verdict.reason,
        meaning=MEANING[verdict.name],
        label=label,
        interrupted=interrupted,
        facts=_facts(record),
        asked=asked,
        measured=measured,
        unverified=overview.unverified(record),
        limits=verdict.limits,
        before=(
            overview.gates(record.judgement.gates),
            overview.findings(record),
            certification.section(record),
            agreement.section(record),
        ),
        explorer=divergences.explorer(record, evidence, most_divergences),
        after=(
            agreement.noise(record),
            load.section(record),
            accuracy.section(record),
            load.speculation(record),
            provenance.time(record),
            provenance.provenance(record),
        ),
    )


def _facts(record: AuditRecord) -> tuple[str, ...]:
    """The line under the verdict: target, candidates, engine, host, date."""
    versions = sorted({launch.engine_version for launch in record.launches if launch.engine_version})
    candidates = ", ".join(a.name for a in record.plan.candidates) or "no candidate"
    host = record.environment.devices[0] if record.environment.devices else record.environment.cpu
    facts = (
        f"target {record.plan.target}",
        f"candidate {candidates}",
        ", ".join(versions),
        host,
        record.date,
    )
    return tuple(f for f in facts if f)
