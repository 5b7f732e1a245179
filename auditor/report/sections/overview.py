"""What was asked, what was measured, what could not be verified; gates; findings."""

from __future__ import annotations

from collections.abc import Sequence

from auditor.model.judgement import Finding, Gate
from auditor.model.plan import Arm, AuditPlan, CorpusUse
from auditor.model.record import AuditRecord
from auditor.model.study import LaunchStudy
from auditor.report import numbers
from auditor.report.parts import Block, Cell, Note, Pairs, Section, Table, Tone, Value, mono, status

STAGE_NAMES = {
    "certify": "certification",
    "batch1": "batch-1 agreement",
    "load": "load (batch invariance)",
    "replay": "solo replay",
    "accuracy": "task accuracy",
    "calibrate": "second pass (scores)",
    "self-draft": "self-draft control",
}


def asked(plan: AuditPlan) -> tuple[tuple[str, Value], ...]:
    """The plan in the order in which a reader asks."""
    engine = plan.engine
    items: list[tuple[str, Value]] = [("Target", f"{plan.target} ({plan.target_kind})")]
    items += [(f"Arm {arm.name}", _arm(arm)) for arm in plan.arms if _arm(arm) != arm.name]
    items.append(("Engine", "attached servers" if plan.attached else " ".join((engine.kind, *engine.args))))
    items.append(("Pinning", "somebody else's servers" if plan.attached else plan.pin))
    c = plan.certification
    items.append(
        (
            "Certification",
            f"at most {c.prompts} prompts of {c.max_tokens} tokens, SPRT p0 {c.p0} against p1 {c.p1}, "
            f"error rates {c.alpha} and {c.beta}, at most {c.attempts} launches an arm",
        )
    )
    a = plan.agreement
    items.append(("Batch-1 agreement", "; ".join(map(_corpus, a.corpora)) if a else "not asked for"))
    if plan.forensics is not None and plan.forensics.controls:
        items.append(("Controls where an arm diverges", ", ".join(plan.forensics.controls)))
    i = plan.invariance
    if i is None:
        items.append(("Batch invariance", "not asked for"))
    else:
        levels = ", ".join(map(str, i.levels))
        items.append(("Batch invariance", f"{i.prompts} prompts, {levels} requests in flight, twice each"))
    t = plan.accuracy
    if t is None:
        items.append(("Task accuracy", "not asked for"))
    else:
        items.append(
            (
                "Task accuracy",
                f"{_corpus(t.corpus)}, {t.shots} shots, {t.concurrency} in flight, "
                f"margin {numbers.margin(t.margin)}, α {t.alpha}",
            )
        )
    items.append(("Gates", ", ".join(plan.gates)))
    if plan.baseline is not None:
        drop = numbers.percent(plan.baseline.max_acceptance_drop)
        items.append(("Baseline", f"{plan.baseline.path}, acceptance length down by {drop} at most"))
    items.append(("Seed", mono(str(plan.seed))))
    return tuple(items)


def _arm(arm: Arm) -> str:
    parts: list[str] = [arm.role]
    if arm.draft is not None:
        parts.append(f"method {arm.draft.method}")
        if arm.draft.path:
            parts.append(f"draft {arm.draft.path}")
    if arm.url:
        parts.append(f"at {arm.url}")
    if arm.target:
        parts.append(f"own target {arm.target}")
    if arm.extra_args:
        parts.append("own flags " + " ".join(arm.extra_args))
    return ", ".join(parts)


def _corpus(use: CorpusUse) -> str:
    much = "all" if use.limit is None else f"{use.limit:,} problems"
    return f"{use.name} ({much}, cap {use.max_tokens:,} tokens)"


def measured(record: AuditRecord) -> tuple[tuple[str, Value], ...]:
    """Phases by stage with how they ended, launches, time."""
    items: list[tuple[str, Value]] = []
    for stage, name in STAGE_NAMES.items():
        phases = [p for p in record.phases if p.stage == stage]
        if phases:
            done = sum(p.state == "done" for p in phases)
            planned = sum(p.planned for p in phases)
            tone: Tone = "" if done == len(phases) else "warn"
            text = f"{numbers.counts(done, len(phases))} phases done, {planned:,} requests planned"
            items.append((name.capitalize(), Cell(text, tone)))
        elif stage == "calibrate" and record.scores:
            items.append((name.capitalize(), f"{len(record.scores):,} positions scored"))
        elif stage == "self-draft":
            continue  # rare, and only where somebody asked for it and something diverged
        else:
            items.append((name.capitalize(), Cell("nothing", "mute")))
    bad = sum(launch.state in ("failed", "died") for launch in record.launches)
    items.append(("Launches", f"{len(record.launches)}, of which {bad} failed or died"))
    items.append(("Time", numbers.seconds(end_of(record))))
    return tuple(items)


def end_of(record: AuditRecord | LaunchStudy) -> float:
    """Seconds from the audit's origin to the last thing recorded."""
    ends = [n.ended_s for n in record.notes]
    ends += [p.ended_s if p.ended_s is not None else p.started_s for p in record.phases]
    for launch in record.launches:
        ready = launch.started_s + (launch.ready_s or 0.0)
        ends.append(launch.ended_s if launch.ended_s is not None else ready)
    return max(ends, default=0.0)


def unverified(record: AuditRecord) -> tuple[str, ...]:
    """Everything this record cannot vouch for, one phrase each."""
    out: list[str] = []
    phrases: dict[str, list[str]] = {}
    for launch in record.launches:
        for phrase in launch.unverified:
            phrases.setdefault(phrase, []).append(launch.id)
    out += [f"{phrase} ({numbers.listing(ids)})" for phrase, ids in phrases.items()]
    if record.plan.engine.trust_remote_code:
        out.append("custom code from the model folder ran in the engine (--trust-remote-code)")
    out += [
        f"{i.name}: its files could not be read, so it has no digest"
        for i in record.identities
        if not i.digest
    ]
    for phase in record.phases:
        if phase.state != "done":
            out.append(f"phase {phase.id} is {phase.state}: {phase.reason or 'it did not end'}")
        elif phase.reason:
            out.append(f"phase {phase.id}: {phase.reason}")
    for gate in record.judgement.gates:
        if gate.status == "NOT RUN":
            out.append(f"gate {gate.name} was not run")
    if record.status != "complete":
        out.append(f"the audit is {record.status}: {record.error or 'no reason recorded'}")
    for note in record.resumed:
        out.append(f"the audit was resumed at {numbers.seconds(note.offset_s)}: {note.note}")
    return tuple(out)


def gates(rows: Sequence[Gate]) -> Section:
    """One line a gate: status, what was measured (counts first), the bound, what to do next."""
    table = Table(
        "Gates of the plan; every one must pass.",
        ("Gate", "Status", "Measured", "Bound", "What to do"),
        tuple(
            (Cell(g.name, mono=True), status(g.status), g.figure, g.bound, g.remedy or "nothing")
            for g in rows
        ),
    )
    blocks: tuple[Block, ...] = (
        (table,) if rows else (Note("The plan has no gates: that is not a pass.", "bad"),)
    )
    return Section("gates", "Gates", "", blocks)


_ORDER = {"error": 0, "warning": 1, "note": 2}
_TONES: dict[str, Tone] = {"error": "bad", "warning": "warn", "note": "mute"}


def in_order(rows: Sequence[Finding]) -> list[Finding]:
    """Errors first; otherwise as found. Findings of the run and of judging that are equal appear once."""
    return sorted(dict.fromkeys(rows), key=lambda f: _ORDER[f.severity])


def findings(record: AuditRecord) -> Section:
    rows = in_order((*record.findings, *record.judgement.findings))
    if not rows:
        return Section("findings", "Findings", "", (Note("No findings."),))
    table = Table(
        f"{len(rows)} findings, errors first.",
        ("Finding", "About", "Seen", "Expected", "What to do"),
        tuple(
            (Cell(f.code, _TONES[f.severity], mono=True), f.subject, f.seen, f.expected, f.remedy)
            for f in rows
        ),
    )
    return Section("findings", "Findings", "", (table,))


def limits(record: AuditRecord) -> tuple[str, ...]:
    return record.judgement.verdict.limits


def plan_pairs(record: AuditRecord) -> tuple[Pairs, Pairs]:
    return Pairs(asked(record.plan)), Pairs(measured(record))
