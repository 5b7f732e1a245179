"""Batch invariance, solo replay, and what speculation did in each phase."""

from __future__ import annotations

from collections.abc import Sequence

from auditor.model.judgement import Activity, Invariance
from auditor.model.record import AuditRecord
from auditor.report import numbers
from auditor.report.charts import acceptance, invariance
from auditor.report.parts import (
    Block,
    Cell,
    Figure,
    Fold,
    Grid,
    Note,
    Section,
    Table,
    Tone,
    Value,
    mono,
    series,
)


def section(record: AuditRecord) -> Section:
    rows = record.judgement.invariance
    blocks: list[Block] = []
    if not rows:
        why = "was not asked for" if record.plan.invariance is None else "was not measured"
        blocks.append(Note(f"Batch invariance {why}."))
    else:
        blocks += _curves(record, rows)
    replays = record.judgement.replay
    if replays:
        blocks.append(
            Table(
                "Solo replay: batch-1 completions asked for again after the load.",
                ("Arm", "Unchanged", "95% interval", "Differing prompts"),
                tuple(
                    (
                        r.arm,
                        Cell(
                            numbers.proportion(r.agreement),
                            "good" if r.agreement.n and r.agreement.k == r.agreement.n else "bad",
                        ),
                        numbers.interval_percent(r.agreement.clopper_pearson95),
                        numbers.listing(r.differing, 6) or "none",
                    )
                    for r in replays
                ),
            )
        )
    elif rows:
        blocks.append(Note("Solo replay after the load was not measured.", "warn"))
    intro = (
        "Each server against its own batch-1 completions. No stock server is invariant to its batch, so the "
        "reference's own curve lies under each candidate's."
    )
    return Section("invariance", "Batch invariance under load", intro, tuple(blocks))


def _curves(record: AuditRecord, rows: Sequence[Invariance]) -> list[Block]:
    styles = series(record.plan)
    reference = next((a.name for a in record.plan.arms if a.role == "reference"), "")
    arms = list(dict.fromkeys(r.arm for r in rows))
    shown = [a for a in arms if a != reference] or arms
    base = [r for r in rows if r.arm == reference]
    figures = tuple(
        Figure(
            f"{arm}: completions equal to its own batch-1 ones",
            invariance.curve(arm, [r for r in rows if r.arm == arm], base, styles),
            _curve([r for r in rows if r.arm in (arm, reference)]),
        )
        for arm in shown
    )
    table = Table(
        "One line an arm and level; both runs of the level together.",
        (
            "Arm",
            "Asked",
            "Achieved",
            "Equal to batch 1",
            "95% interval",
            "Reference, same level",
            "Minus reference, 90% over all levels",
            "Run to run",
        ),
        tuple(_row(r) for r in rows),
        frozenset({1, 2}),
    )
    conditions = Table(
        "Under which the level ran.",
        ("Arm", "Asked", "Distinct completions a prompt", "Acceptance length", "Preemptions", "Errors"),
        tuple(_conditions(r) for r in rows),
        frozenset({1, 2, 3, 4, 5}),
    )
    return [Grid(figures), table, Fold("Conditions of each level", (conditions,))]


def _curve(rows: Sequence[Invariance]) -> Table:
    return Table(
        "Share of completions equal to the same server's batch-1 completion.",
        ("Arm", "Asked", "Achieved", "Equal", "Wilson 95%"),
        tuple(
            (
                r.arm,
                numbers.integer(r.level),
                numbers.integer(r.achieved),
                numbers.proportion(r.self_agreement),
                numbers.interval_percent(r.self_agreement.wilson95),
            )
            for r in rows
        ),
        frozenset({1, 2}),
    )


def _row(r: Invariance) -> tuple[Value, ...]:
    achieved: Tone = "" if r.held else "warn"
    label = numbers.integer(r.achieved) if r.achieved is not None else "not sampled"
    return (
        r.arm,
        numbers.integer(r.level),
        Cell(label if r.held else f"{label}, not held", achieved),
        numbers.proportion(r.self_agreement),
        numbers.interval_percent(r.self_agreement.clopper_pearson95),
        numbers.proportion(r.reference),
        numbers.interval_points(r.difference90),
        numbers.proportion(r.run_to_run),
    )


def _conditions(r: Invariance) -> tuple[Value, ...]:
    return (
        r.arm,
        numbers.integer(r.level),
        numbers.number(r.distinct_mean),
        numbers.number(r.acceptance_length),
        Cell(
            numbers.integer(r.preemptions) if r.preemptions is not None else "not exposed",
            "warn" if r.preemptions is None or r.preemptions else "",
        ),
        Cell(numbers.integer(r.errors), "warn" if r.errors else ""),
    )


_ACTIVITY_TONE: dict[str, Tone] = {
    "ran": "good",
    "never ran": "bad",
    "unknown": "warn",
    "restarted": "bad",
    "not speculative": "mute",
}


def speculation(record: AuditRecord) -> Section:
    """Acceptance per phase and position; tokens a second per arm in the same windows."""
    rows = record.judgement.activity
    if not rows:
        return Section("speculation", "Speculation and speed", "", (Note("No counters were read.", "warn"),))
    speculative = [a for a in rows if a.status != "not speculative"]
    blocks: list[Block] = []
    charts = _positions(speculative)
    if charts:
        blocks.append(Grid(charts))
    if speculative:
        bound = record.plan.min_acceptance_length
        blocks.append(
            Table(
                "Counters read immediately before and after each phase.",
                (
                    "Arm",
                    "Phase",
                    "Drafts",
                    "Draft tokens",
                    "Accepted",
                    "Acceptance length",
                    "By position",
                    "Status",
                ),
                tuple(
                    (
                        a.arm,
                        mono(a.phase),
                        numbers.integer(a.drafts),
                        numbers.integer(a.draft_tokens),
                        numbers.integer(a.accepted),
                        numbers.against(a.acceptance_length, bound),
                        _rates(a),
                        Cell(a.status, _ACTIVITY_TONE[a.status], badge=True),
                    )
                    for a in speculative
                ),
                frozenset({2, 3, 4, 5}),
            )
        )
    speed = _speed(record, rows)
    if speed is not None:
        blocks.append(speed)
    return Section("speculation", "Speculation and speed", "", tuple(blocks))


def _rates(a: Activity) -> str:
    if a.per_position is None:
        return "not exposed"
    return numbers.listing((numbers.percent(r, 0) for r in a.per_position), 16)


def _positions(rows: Sequence[Activity]) -> tuple[Figure, ...]:
    """For each arm and stage the phase with the most drafts."""
    best: dict[tuple[str, str], Activity] = {}
    for a in rows:
        key = (a.arm, a.phase.split("/", 1)[0])
        if a.per_position and (key not in best or (a.drafts or 0) > (best[key].drafts or 0)):
            best[key] = a
    figures: list[Figure] = []
    for arm in dict.fromkeys(a.arm for a in rows):
        lines = [(b.phase, b.per_position) for (name, _), b in best.items() if name == arm and b.per_position]
        if lines:
            caption = f"{arm}: acceptance by draft position; the phase of each stage with the most drafts"
            figures.append(Figure(caption, acceptance.by_position(arm, lines), _acceptance(lines)))
    return tuple(figures)


def _acceptance(lines: Sequence[tuple[str, tuple[float, ...]]]) -> Table:
    width = max(len(rates) for _, rates in lines)
    return Table(
        "Share of drafts whose token at that position was accepted.",
        ("Phase", *(str(k) for k in range(1, width + 1))),
        tuple(
            (mono(name), *(numbers.percent(r) for r in rates), *[numbers.ABSENT] * (width - len(rates)))
            for name, rates in lines
        ),
        frozenset(range(1, width + 1)),
    )


def _speed(record: AuditRecord, rows: Sequence[Activity]) -> Table | None:
    """Generated tokens a second, one line a piece of work, one column an arm."""
    arms = [a.name for a in record.plan.arms]
    work: dict[str, dict[str, float | None]] = {}
    for a in rows:
        parts = a.phase.split("/")
        key = "/".join((parts[0], *parts[2:])) if len(parts) > 1 else a.phase
        if a.tokens_per_s is not None:
            work.setdefault(key, {})[a.arm] = a.tokens_per_s
    if not work:
        return None
    reference = next((a.name for a in record.plan.arms if a.role == "reference"), "")

    def cell(speeds: dict[str, float | None], arm: str) -> str:
        speed, base = speeds.get(arm), speeds.get(reference)
        if speed is None:
            return numbers.ABSENT
        shown = numbers.number(speed, 1)
        return shown if arm == reference or not base else f"{shown} (×{numbers.against(speed / base, 1.0)})"

    return Table(
        "Generated tokens a second while at least one request was in flight; × is against the reference.",
        ("Work", *arms),
        tuple((mono(key), *(cell(speeds, arm) for arm in arms)) for key, speeds in work.items()),
        frozenset(range(1, len(arms) + 1)),
        note="A by-product of the audit, not a benchmark: one run each, in the order of the audit.",
    )
