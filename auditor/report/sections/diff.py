"""Sections of the page of `audit diff`: conditions first, then what changed, then every figure."""

from __future__ import annotations

from collections.abc import Sequence

from auditor.model.baseline import AcceptanceChange, Change, Condition, RunDiff, RunLabel, StateChange
from auditor.report import numbers
from auditor.report.charts import forest
from auditor.report.parts import (
    Block,
    Cell,
    Figure,
    Heading,
    Note,
    Pairs,
    Section,
    Table,
    Tone,
    Value,
    mono,
    status,
)

BEARING: dict[str, tuple[str, Tone]] = {
    "blocks": ("not comparable", "bad"),
    "confounds": ("may be the reason", "warn"),
    "subject": ("what is compared", "good"),
    "listed": ("listed", "mute"),
}
_MOST_CONDITIONS = 200
_LONGEST = 44
"""Characters of a value; the JSON has it in full."""


def run_name(label: RunLabel) -> str:
    return label.run or label.name


def findings(found: RunDiff) -> Section:
    blocks: list[Block] = []
    rows: list[tuple[Value, ...]] = []
    for arm in found.arms:
        for word, tone, said in (
            ("worse", "bad", arm.regressions),
            ("not decided", "warn", arm.undecided),
            ("not measured", "warn", arm.missing),
            ("no worse", "good", arm.compared),
        ):
            rows += [(arm.arm, Cell(word, tone, badge=True), text) for text in said]  # type: ignore[arg-type]
    blocks.append(
        Table("What the rule says, by candidate.", ("Candidate", "Outcome", "Figure"), tuple(rows))
        if rows
        else Note("The run after has no candidate that was measured.", "warn")
    )
    blocks.append(Heading("Changed beyond chance"))
    blocks += [Note(text, "warn") for text in found.beyond_chance]
    if not found.beyond_chance:
        blocks.append(
            Note(
                f"Nothing in {found.tests} paired tests, by Holm's method at 5% for those of candidates "
                "together and for those of reference and control together."
            )
        )
    blocks.append(Heading("What cannot be compared, and what limits a comparison"))
    blocks += [Note(text) for text in found.not_compared] or [
        Note("Nothing: both runs measured the same on the same prompts.")
    ]
    intro = (
        "A regression: agreement or accuracy lower on the same prompts (one-sided exact McNemar p < 0.05), "
        "accuracy not shown to be within the margin, acceptance length down by more than "
        f"{numbers.percent(found.max_acceptance_drop)}, a class of faults that is new, or a gate that fails "
        "now."
    )
    return Section("changes", "What changed", intro, tuple(blocks))


def conditions(found: RunDiff) -> Section:
    audits = Pairs(
        tuple(
            (f"{word}: {run_name(run)}", Cell(run.audit_sha256 or numbers.ABSENT, mono=True))
            for word, run in (("Before", found.before), ("After", found.after))
        )
    )
    shown = found.conditions[:_MOST_CONDITIONS]
    rest = len(found.conditions) - len(shown)
    table: Block = Note("Weights, engine, settings, plan and host are alike as far as they are known.")
    if shown:
        table = Table(
            "Everything that is not alike.",
            ("What", "Bearing", "Before", "After"),
            tuple((mono(c.what), _bearing(c), _value(c.before), _value(c.after)) for c in shown),
            note=f"{rest} more are in the JSON." if rest else "",
        )
    intro = (
        "Looked at first: what changed can come from these instead of from the draft. Beneath the table "
        "stands the SHA-256 of each run's audit.json."
    )
    return Section("conditions", "Conditions", intro, (table, audits))


def _value(text: str | None) -> Value:
    if text is None:
        return numbers.ABSENT
    return mono(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…")


def _bearing(condition: Condition) -> Cell:
    word, tone = BEARING[condition.bearing]
    return Cell(word, tone, badge=True)


def states(found: RunDiff) -> Section:
    rows = tuple(
        (
            arm_name(s),
            status(s.before_state) if s.before_state else numbers.ABSENT,
            status(s.after_state) if s.after_state else numbers.ABSENT,
            Cell(s.fingerprints, "warn" if s.fingerprints == "differ" else ""),
            f"{s.before_attempts}",
            f"{s.after_attempts}",
        )
        for s in found.states
    )
    columns = ("Arm", "State before", "State after", "Fingerprints", "Launches before", "Launches after")
    table = Table("", columns, rows, frozenset({4, 5}))
    intro = (
        "The launch of each arm that counts: its state against its own run's reference, and its "
        "fingerprint in both runs. Different fingerprints mean other numerics: a change may be the launch's."
    )
    return Section("states", "Launch states", intro, (table,))


def arm_name(found: StateChange) -> str:
    return found.arm if found.arm == found.before_arm else f"{found.arm} (before: {found.before_arm})"


def shares(found: RunDiff) -> Section:
    if not found.changes:
        return Section(
            "shares",
            "Agreement, accuracy, load",
            "",
            (Note("Neither agreement nor accuracy is in both runs."),),
        )
    styles = {s.arm: n for n, s in enumerate(found.states)}
    figure = Figure(
        "After minus before, 95% intervals; hollow: unpaired.",
        forest.plot(found.changes, styles),
        _intervals(found.changes),
        wide=True,
    )
    intro = (
        "Shares of prompts that agree with the run's own reference at batch 1, of problems solved, and of "
        "prompts whose every completion under load equals the batch-1 one. Pairs are the prompts that both "
        "runs asked."
    )
    return Section("shares", "Agreement, accuracy, load", intro, (figure, _change_table(found.changes)))


def _intervals(changes: Sequence[Change]) -> Table:
    return Table(
        "",
        ("Arm", "What", "On", "Difference", "95% interval"),
        tuple(
            (c.arm, c.what, c.subject, numbers.points(c.difference), numbers.interval_points(c.interval95))
            for c in changes
        ),
        frozenset({3, 4}),
    )


def _change_table(changes: Sequence[Change]) -> Table:
    return Table(
        "Prompts gained and lost are those that one run alone has right.",
        ("Arm", "What", "On", "Before", "After", "Gained", "Lost", "McNemar p", "Holm's p"),
        tuple(
            (
                c.arm,
                c.what,
                c.subject,
                numbers.proportion(c.before),
                numbers.proportion(c.after),
                numbers.integer(c.gained) if c.paired else Cell("unpaired", "warn"),
                numbers.integer(c.lost),
                numbers.p_value(c.p),
                Cell(numbers.p_value(c.p_holm), "warn" if c.p_holm is not None and c.p_holm < 0.05 else ""),
            )
            for c in changes
        ),
        frozenset({3, 4, 5, 6, 7, 8}),
    )


def classes(found: RunDiff) -> Section:
    rows = tuple(
        (
            c.arm,
            c.cls,
            numbers.integer(c.before),
            numbers.integer(c.after),
            Cell("new fault", "bad", badge=True) if c.new_fault else c.note,
        )
        for c in found.classes
    )
    block: Block = Note("No divergence on a prompt that both runs asked.")
    if rows:
        block = Table("", ("Arm", "Class", "Before", "After", ""), rows, frozenset({2, 3}))
    intro = (
        "Divergences on the prompts that both runs asked; flips of the drafter-free reference are left out."
    )
    return Section("classes", "Divergence classes", intro, (block,))


def acceptance(found: RunDiff) -> Section:
    block: Block = Note("No kind of phase has an acceptance length in both runs.")
    if found.acceptance:
        block = Table(
            "Tokens a step by kind of phase.",
            ("Arm", "Phases", "Before", "After", "Change", ""),
            tuple(
                (
                    s.arm,
                    mono(s.kind),
                    numbers.number(s.before, 4),
                    numbers.number(s.after, 4),
                    _drop(s, found.max_acceptance_drop),
                    s.note,
                )
                for s in found.acceptance
            ),
            frozenset({2, 3, 4}),
            note="From both runs' counters. No test is made: steps of one completion are not independent.",
        )
    return Section("acceptance", "Acceptance length", "", (block,))


def _drop(change: AcceptanceChange, most: float) -> Value:
    if change.relative is None:
        return numbers.ABSENT
    worse = change.comparable and change.relative < -most
    shown = numbers.against(change.relative, -most, 0.0, scale=100)
    return Cell(("+" if change.relative > 0 else "") + shown + "%", "bad" if worse else "")


def accuracy(found: RunDiff) -> Section:
    tones: dict[str, Tone] = {"not inferior": "good", "inferior": "bad", "undecided": "warn"}
    rows = tuple(
        (
            t.arm,
            t.corpus,
            Cell(t.result, tones[t.result], badge=True),
            numbers.integer(t.n),
            numbers.integer(t.missing),
            numbers.interval_points(t.interval90),
            f"{numbers.MINUS}{numbers.margin(t.margin).removeprefix('±')}",
            numbers.p_value(t.p_score),
            numbers.p_value(t.p_exact),
            t.why,
        )
        for t in found.accuracy
    )
    block: Block = Note("No candidate answered the same problems in both runs.")
    columns = ("Candidate", "Problems", "Outcome", "n", "Missing", "90% interval", "Margin", "p (score)",
               "p (exact)", "Why")  # fmt: skip
    if rows:
        block = Table("", columns, rows, frozenset({3, 4, 5, 6, 7, 8}))
    intro = (
        "The candidate of the run after against the candidate of the run before, paired by problem: is it "
        "lower by less than the margin of the plan after? Missing answers count against it."
    )
    return Section("accuracy", "Accuracy within the margin", intro, (block,))


def gates(found: RunDiff) -> Section:
    verdicts = Pairs(
        tuple(
            (f"Verdict {word}", status(run.verdict) if run.verdict else numbers.ABSENT)
            for word, run in (("before", found.before), ("after", found.after))
        )
    )
    blocks: list[Block] = [verdicts]
    if found.gates:
        rows = tuple(
            (
                g.name,
                status(g.before) if g.before else numbers.ABSENT,
                status(g.after) if g.after else numbers.ABSENT,
                "" if g.before == g.after else "changed",
            )
            for g in found.gates
        )
        blocks.append(Table("", ("Gate", "Before", "After", ""), rows))
    return Section("gates", "Verdicts and gates", "", tuple(blocks))
