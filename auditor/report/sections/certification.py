"""Launch states: repeatability, every launch that was tried, every comparison that was made."""

from __future__ import annotations

from markupsafe import Markup

from auditor.model.judgement import ChoiceDiff, PairCertificate
from auditor.model.launch import Launch
from auditor.model.plan import AuditPlan
from auditor.model.record import AuditRecord
from auditor.report import numbers
from auditor.report.charts import sprt
from auditor.report.parts import (
    STATUS_TONE,
    Block,
    Cell,
    Code,
    Figure,
    Fold,
    Note,
    Section,
    Table,
    Tone,
    Value,
    mono,
    series,
)
from auditor.report.visible import block

MOST_CHOICES = 60
_PRINT_TONE: dict[str, Tone] = {"equal": "good", "differ": "warn", "missing": "mute"}
_LAUNCH_TONE: dict[str, Tone] = {"failed": "bad", "died": "bad", "starting": "warn"}


def section(record: AuditRecord) -> Section:
    judgement = record.judgement
    blocks: list[Block] = [_launches(record)]
    blocks += [_log(launch) for launch in record.launches if launch.log_tail or launch.error]
    if judgement.repeatability:
        blocks.append(_repeatability(record))
    if not judgement.certificates:
        blocks.append(Note("No pair of launches was compared.", "warn"))
    styles = series(record.plan)
    last = {c.arm: i for i, c in enumerate(judgement.certificates)}
    for i, certificate in enumerate(judgement.certificates):
        style = styles.get(certificate.arm, 2)
        blocks.append(_certificate(i, certificate, record.plan, style, final=last[certificate.arm] == i))
    intro = (
        "A server's numerics are fixed when it starts. Byte-exact agreement between two servers says "
        "something of a draft head only when both are in the same launch state, so every launch and every "
        "attempt is listed."
    )
    return Section("certification", "Certification of launch states", intro, tuple(blocks))


def _launches(record: AuditRecord) -> Table:
    prints = {f.launch: f.digest for f in record.fingerprints}
    rows: list[tuple[Value, ...]] = []
    for launch in record.launches:
        caches = f"copied from {launch.cache_from}" if launch.cache_from else "own, cold"
        rows.append(
            (
                mono(launch.id),
                Cell(launch.state, _LAUNCH_TONE.get(launch.state, ""), badge=launch.state in _LAUNCH_TONE),
                numbers.integer(launch.attempt),
                numbers.seconds(launch.started_s),
                numbers.seconds(launch.ready_s),
                launch.device or numbers.ABSENT,
                caches if not launch.restart_of else f"{caches}; restart of {launch.restart_of}",
                numbers.integer(launch.diary.kv_blocks),
                mono((launch.diary.compile_hash or numbers.ABSENT)[:12]),
                mono(prints.get(launch.id, numbers.ABSENT)[:12]),
            )
        )
    return Table(
        "Every launch in order of start, failed ones included.",
        (
            "Launch",
            "State",
            "Attempt",
            "Started at",
            "Ready after",
            "Device",
            "Caches",
            "KV blocks",
            "Compile hash",
            "Fingerprint",
        ),
        tuple(rows),
        frozenset({2, 3, 4, 7}),
    )


def _log(launch: Launch) -> Fold:
    text = Markup("\n").join(block(line) for line in launch.log_tail) or block("(no log lines were kept)")
    where = f"Last lines of {launch.log}" if launch.log else "Last lines of its log"
    reason = launch.error or "no error was quoted"
    return Fold(
        f"{launch.id} {launch.state}: {reason}", (Code(where, text),), _LAUNCH_TONE.get(launch.state, "")
    )


def _repeatability(record: AuditRecord) -> Table:
    rows: list[tuple[Value, ...]] = []
    for r in record.judgement.repeatability:
        p = r.agreement
        rows.append(
            (
                mono(r.launch),
                Cell(numbers.proportion(p), "good" if p.n and p.k == p.n else "bad"),
                numbers.interval_percent(p.clopper_pearson95),
                numbers.listing(r.disagreeing, 6) or "none",
            )
        )
    return Table(
        "Repeatability: the same certification prompts twice at batch 1 on the same server.",
        ("Launch", "Equal to itself", "95% interval", "Differing prompts"),
        tuple(rows),
    )


def _certificate(i: int, c: PairCertificate, plan: AuditPlan, style: int, *, final: bool) -> Fold:
    facts: tuple[tuple[Value, ...], ...] = (
        ("Fingerprints", Cell(c.fingerprints, _PRINT_TONE[c.fingerprints])),
        ("Sequential test", Cell(f"{c.sprt_decision}, log likelihood ratio {numbers.signed(c.sprt_llr)}")),
        (
            "Agreement on all certification prompts",
            f"{numbers.proportion(c.agreement)}, 95% "
            f"{numbers.interval_percent(c.agreement.clopper_pearson95)}",
        ),
        ("Outcomes in the seeded order", mono(_groups(c.sprt_outcomes) or "not run")),
    )
    blocks: list[Block] = [
        Table(f"{c.other} against {c.reference}", ("What", "Seen"), facts),
    ]
    if c.sprt_outcomes:
        title = f"Sequential test of {c.other} against {c.reference}"
        chart = sprt.path(str(i), title, c.sprt_outcomes, plan.certification, style)
        caption = "Log likelihood ratio after each prompt; it stops at a bound."
        blocks.append(Figure(caption, chart, _path(c, plan)))
    if c.fingerprint_diffs:
        blocks.append(
            Table(
                "Fingerprint prompts whose float32 bits differ.",
                ("Prompt", "Values that differ", "Largest |Δ logprob|, nats"),
                tuple(
                    (mono(d.prompt), numbers.counts(d.differing, d.values), numbers.rate(d.max_abs))
                    for d in c.fingerprint_diffs
                ),
                frozenset({1, 2}),
            )
        )
    blocks.append(_settings(c))
    if c.choices:
        blocks.append(_choices(c.choices))
    which = "" if final else " (superseded by a later attempt)"
    return Fold(
        f"{c.other} against {c.reference}{which}: {c.why}",
        tuple(blocks),
        STATUS_TONE[c.state],
        c.state,
        open=final and c.state != "SAME STATE",
    )


def _path(c: PairCertificate, plan: AuditPlan) -> Table:
    totals = sprt.totals(c.sprt_outcomes, plan.certification)
    return Table(
        "The path of the test.",
        ("Prompt", "Completions", "Log likelihood ratio"),
        tuple(
            (str(i), "equal" if outcome == "1" else "differ", numbers.signed(total))
            for i, (outcome, total) in enumerate(zip(c.sprt_outcomes, totals[1:], strict=True), 1)
        ),
        frozenset({0, 2}),
    )


def _groups(outcomes: str) -> str:
    """`1111111111 110` in tens: a line that can be counted."""
    return " ".join(outcomes[i : i + 10] for i in range(0, len(outcomes), 10))


_KIND_TONE: dict[str, Tone] = {"not comparable": "bad", "listed": "warn", "allowed": ""}


def _settings(c: PairCertificate) -> Block:
    if not c.settings:
        return Note("No resolved setting differs between the two launches.")
    return Table(
        "Resolved settings that differ.",
        ("Setting", "Reference", "Other", "Kind"),
        tuple(
            (
                mono(s.name),
                mono(s.reference or "absent"),
                mono(s.other or "absent"),
                Cell(s.kind, _KIND_TONE[s.kind]),
            )
            for s in c.settings
        ),
    )


def _choices(choices: tuple[ChoiceDiff, ...]) -> Table:
    shown = choices[:MOST_CHOICES]
    rest = len(choices) - len(shown)
    return Table(
        f"{len(choices):,} kernels were tuned differently.",
        ("Kernel", "Key", "Reference chose", "Other chose", "Race on the reference, µs"),
        tuple(
            (
                mono(d.kernel),
                mono(d.key),
                mono(d.reference or "absent"),
                mono(d.other or "absent"),
                "not timed"
                if d.race_us is None
                else " against ".join(numbers.number(v, 3) for v in d.race_us),
            )
            for d in shown
        ),
        note=f"{rest:,} more are in audit.json." if rest else "",
    )
