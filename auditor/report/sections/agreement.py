"""Byte-exact agreement at batch 1, the noise floor and the calibration of rescoring."""

from __future__ import annotations

from collections.abc import Sequence

from auditor.model.base import Interval
from auditor.model.judgement import Agreement, Calibration, Hazard, WidthControl
from auditor.model.record import AuditRecord
from auditor.report import numbers
from auditor.report.charts import agreement as charts
from auditor.report.parts import Block, Cell, Figure, Fold, Grid, Note, Section, Table, Value, series


def section(record: AuditRecord) -> Section:
    rows = record.judgement.agreement
    if not rows:
        why = "was not asked for" if record.plan.agreement is None else "was not measured"
        return Section("agreement", "Agreement at batch 1", "", (Note(f"Batch-1 agreement {why}."),))
    styles = series(record.plan)
    order = {arm.name: i for i, arm in enumerate(record.plan.arms)}
    corpora = tuple(dict.fromkeys(a.corpus for a in rows))
    groups = {
        c: sorted((a for a in rows if a.corpus == c), key=lambda a: order.get(a.arm, 99)) for c in corpora
    }
    blocks: list[Block] = [
        Table(
            "Completions with the reference's token ids, length and finish reason; the control beside them.",
            (
                "Corpus",
                "Arm",
                "Agree",
                "95% interval",
                "Control, same prompts",
                "95% interval",
                "Minus control (Tango 95%)",
                "McNemar",
                "Errors",
            ),
            tuple(_row(a) for c in corpora for a in groups[c]),
            frozenset({8}),
            note="Intervals are Clopper–Pearson; no disagreement in n means at most 3/n, never identical.",
        ),
        Grid(
            tuple(
                Figure(
                    f"{c}: agreement with Wilson 95% intervals",
                    charts.forest(c, groups[c], styles),
                    _forest(groups[c]),
                )
                for c in corpora
            )
        ),
    ]
    curves = [c for c in corpora if any(a.survival for a in groups[c])]
    if curves:
        blocks.append(
            Grid(
                tuple(
                    Figure(
                        f"{c}: survival of agreement by token index",
                        charts.survival(c, [a for a in groups[c] if a.survival], styles),
                        _survival(groups[c]),
                    )
                    for c in curves
                )
            )
        )
    hazards = _hazards([a for c in corpora for a in groups[c]])
    if hazards is not None:
        blocks.append(hazards)
    intro = (
        "One request in flight, greedy, natural stopping. The control is a second launch without "
        "speculation: what it loses against the reference, no draft head can be blamed for."
    )
    return Section("agreement", "Agreement at batch 1", intro, tuple(blocks))


def _row(a: Agreement) -> tuple[Value, ...]:
    agree = numbers.proportion(a.agreement)
    if a.zero_bound is not None:
        agree += f", at most {numbers.percent(a.zero_bound)} differ"
    return (
        a.corpus,
        Cell(a.arm),
        agree,
        numbers.interval_percent(a.agreement.clopper_pearson95),
        numbers.proportion(a.control),
        numbers.interval_percent(a.control.clopper_pearson95 if a.control else None),
        numbers.interval_points(a.tango95),
        "p " + numbers.p_value(a.mcnemar_exact) if a.mcnemar_exact is not None else numbers.ABSENT,
        Cell(f"{a.errors:,} of {a.planned:,}", "warn" if a.errors else ""),
    )


def _forest(rows: Sequence[Agreement]) -> Table:
    return Table(
        "Share of completions that agree with the reference.",
        ("Arm", "Agree", "Wilson 95%"),
        tuple(
            (a.arm, numbers.proportion(a.agreement), numbers.interval_percent(a.agreement.wilson95))
            for a in rows
        ),
    )


def _survival(rows: Sequence[Agreement]) -> Table:
    """The curve at the powers of two: enough to check the plot."""
    last = max(p.token for a in rows for p in a.survival)
    at = [2**k for k in range(20) if 2**k <= last] or [1]
    out: list[tuple[Value, ...]] = []
    for a in rows:
        if not a.survival:
            continue
        for token in at:
            before = [p for p in a.survival if p.token <= token]
            p = before[-1] if before else None
            out.append(
                (
                    a.arm,
                    numbers.integer(token),
                    numbers.percent(p.survival) if p else "no divergence yet",
                    numbers.interval_percent(Interval(low=p.low, high=p.high) if p else None),
                    numbers.integer(p.at_risk) if p else numbers.ABSENT,
                )
            )
    return Table(
        "The curve at powers of two; at risk as of the last divergence before it.",
        ("Arm", "Token", "Still in agreement", "95% band", "At risk"),
        tuple(out),
        frozenset({1, 2, 3, 4}),
        note=f"A line ends at its last divergence and is drawn while at least {charts.FEWEST} are at risk.",
    )


def _hazards(rows: Sequence[Agreement]) -> Fold | None:
    out: list[tuple[Value, ...]] = []
    for a in rows:
        for h in a.hazard:
            out.append(
                (
                    a.corpus,
                    a.arm,
                    _bin(h),
                    f"{h.divergences:,} in {h.exposure:,}",
                    numbers.rate(h.rate),
                    f"[{numbers.rate(h.interval95.low)}, {numbers.rate(h.interval95.high)}]"
                    if h.interval95
                    else numbers.ABSENT,
                )
            )
    if not out:
        return None
    table = Table(
        "Hazard of a first divergence: divergences over tokens exposed, Garwood 95%.",
        ("Corpus", "Arm", "Tokens", "Divergences in tokens", "Rate a token", "95% interval"),
        tuple(out),
        frozenset({3, 4, 5}),
    )
    return Fold("Hazard of a first divergence by token bin", (table,))


def _bin(h: Hazard) -> str:
    if h.end is None:
        return "all" if h.start == 1 else f"from {h.start:,}"
    return f"{h.start:,}" if h.start == h.end else f"{h.start:,}–{h.end:,}"


def _usable(c: Calibration) -> Cell:
    if not c.n:
        return Cell("not measured", "mute")
    return Cell("yes", "good") if c.usable else Cell("no", "warn")


def noise(record: AuditRecord) -> Section:
    """What the engine moves a logprob by without a drafter, and whether rescoring may be believed."""
    floor = record.judgement.noise_floor
    blocks: list[Block] = []
    if floor is None:
        blocks.append(Note("The noise floor was not measured; margins are not evidence here.", "warn"))
    else:
        blocks.append(
            Table(
                "The noise floor: largest |Δ logprob| seen without a drafter.",
                ("Source", "Values", "Nats"),
                (
                    (
                        "reference against control, same forced tokens",
                        numbers.integer(floor.reference_control_n),
                        numbers.rate(floor.reference_control_max),
                    ),
                    (
                        "decoding against rescoring on the reference",
                        numbers.integer(floor.decode_rescore_n),
                        numbers.rate(floor.decode_rescore_max),
                    ),
                    (
                        f"one unit in the last place, {floor.dtype or 'served dtype'}, at the logits' size",
                        numbers.ABSENT,
                        numbers.rate(floor.ulp),
                    ),
                    (
                        Cell("floor in use"),
                        "",
                        Cell(numbers.rate(floor.floor))
                        if floor.floor is not None
                        else Cell("none: margins are not evidence", "warn"),
                    ),
                ),
                frozenset({1, 2}),
            )
        )
    if record.judgement.width_controls:
        blocks.append(_width_controls(record.judgement.width_controls))
    calibration = record.judgement.calibration
    if calibration:
        blocks.append(
            Table(
                "Calibration: does rescoring reproduce what the reference itself decoded?",
                ("Tokens", "Reproduced", "Usable"),
                tuple(
                    (
                        f"from {c.bin_start:,}" if c.bin_end is None else f"{c.bin_start:,}–{c.bin_end:,}",
                        numbers.of(c.reproduced, c.n),
                        _usable(c),
                    )
                    for c in calibration
                ),
            )
        )
    elif floor is not None:
        blocks.append(Note("Rescoring was not calibrated.", "warn"))
    return Section("noise", "Noise floor and calibration", "", tuple(blocks))


def _width_controls(rows: Sequence[WidthControl]) -> Table:
    return Table(
        "Drafter-free control: the target at k + 1 tokens a forward pass, forced along the reference's "
        "completions.",
        (
            "Arm",
            "Width",
            "Prompts on which the arm diverged",
            "Prompts on which the control does",
            "Only the arm",
            "Only the control",
            "Arm more often",
            "Tokens replaced",
            "Its flips are evidence",
        ),
        tuple(
            (
                Cell(w.arm),
                numbers.integer(w.width),
                numbers.proportion(w.candidate),
                numbers.proportion(w.control),
                numbers.integer(w.candidate_only),
                numbers.integer(w.control_only),
                "p " + numbers.p_value(w.p_more, 0.01),
                numbers.of(w.replaced, w.tokens) + (f", {w.errors:,} paths failed" if w.errors else ""),
                Cell("yes", "good") if w.usable else Cell("no, over 10% replaced", "warn"),
            )
            for w in rows
        ),
        frozenset({1, 4, 5}),
        note="One-sided exact McNemar. The control is one more launch of the target in "
        "chunks of that width; its own prefill kernels are the price of having no drafter.",
    )
