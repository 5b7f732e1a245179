"""What launches tuned differently, and what each server said of itself while it started."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from auditor.model.launch import KernelChoice, Launch
from auditor.model.study import KernelSplit, LaunchStudy
from auditor.report import numbers
from auditor.report.parts import Block, Cell, Code, Fold, Note, Pairs, Section, Table, Tone, Value, mono
from auditor.report.visible import block, plain

MOST_KERNELS, MOST_CHOICES, MOST_TIMINGS = 80, 200, 3
_TELLS_TONE: dict[str, Tone] = {"every state": "good", "some states": "", "none": "mute"}


def kernels(study: LaunchStudy) -> Section:
    blocks: list[Block] = []
    splits = study.result.kernels
    for configuration in dict.fromkeys(k.configuration for k in splits):
        own = tuple(k for k in splits if k.configuration == configuration)
        blocks.append(_splits(configuration, own))
    if not splits:
        named = sum(len(x.diary.choices) for x in study.launches)
        blocks.append(
            Note(
                f"No kernel was tuned differently: {named:,} choices were read from logs and caches."
                if named
                else "The servers' logs and caches name no tuned kernel, so that none can be compared."
            )
        )
    intro = (
        "Kernels that launches of one set of flags tuned differently. A choice that is constant inside every "
        "state and differs between them can be the reason for the states; one that varies inside a state "
        "cannot. States of a single launch are constant of necessity. Closest race first."
    )
    return Section("kernels", "What was tuned differently", intro, tuple(blocks))


def _splits(configuration: str, splits: Sequence[KernelSplit]) -> Table:
    named = sorted({c.state for k in splits for c in k.choices})
    rows: list[tuple[Value, ...]] = []
    for k in splits[:MOST_KERNELS]:
        short = differing_fields([c for s in k.choices for c in s.chosen])
        by_state = {s.state: " or ".join(dict.fromkeys(short[c] for c in s.chosen)) for s in k.choices}
        race = (
            "not timed"
            if k.race_us is None
            else f"{' against '.join(numbers.number(t, 2) for t in k.race_us)} (on {k.timed_on})"
        )
        tells = {"none": "varies inside a state"}.get(k.tells, k.tells)
        rows.append(
            (
                mono(k.kernel),
                Cell(tells, _TELLS_TONE[k.tells]),
                race,
                *(mono(by_state.get(state, numbers.ABSENT)) for state in named),
                mono(k.key),
            )
        )
    rest = len(splits) - MOST_KERNELS
    return Table(
        f"{configuration}: {len(splits):,} {'kernel' if len(splits) == 1 else 'kernels'}. "
        "Only the fields that differ are shown.",
        ("Kernel", "Tells apart", "Closest race, µs", *(f"State {s} chose" for s in named), "Key"),
        tuple(rows),
        note=f"{rest:,} more are in launches.json." if rest > 0 else "",
    )


def differing_fields(choices: Sequence[str]) -> dict[str, str]:
    """Each choice without the `name: value` fields that all of them share; whole where that leaves nothing
    or the choices are not written so."""
    parsed = {c: [part.partition(": ") for part in c.split(", ")] for c in choices}
    if any(not all(equals for _, equals, _ in parts) for parts in parsed.values()):
        return {c: c for c in choices}
    fields = [{name: value for name, _, value in parts} for parts in parsed.values()]
    shared = {n for n in fields[0] if len({f.get(n) for f in fields}) == 1} if fields else set()
    return {
        c: ", ".join(f"{n}: {v}" for n, _, v in parts if n not in shared) or c for c, parts in parsed.items()
    }


def diaries(study: LaunchStudy) -> Section:
    blocks: tuple[Block, ...] = tuple(_diary(x) for x in study.launches if x.ready_s is not None)
    intro = "What each server said of itself while it started: backends, caches, and every tuned kernel."
    return Section("diaries", "Launch diaries", intro, blocks or (Note("No server came up.", "bad"),))


def _diary(launch: Launch) -> Fold:
    diary = launch.diary
    facts: list[tuple[str, Value]] = [(f"Backend: {s.name}", s.value) for s in diary.backends]
    facts.append(("KV blocks", numbers.integer(diary.kv_blocks)))
    facts.append(("Compile hash", mono(diary.compile_hash or numbers.ABSENT)))
    blocks: list[Block] = [Pairs(tuple(facts))]
    if diary.choices:
        blocks.append(_choices(diary.choices))
    if diary.warnings:
        text = Markup("\n").join(block(plain(w)) for w in diary.warnings)
        blocks.append(Code("Warnings while it started", text))
    if launch.unverified:
        blocks.append(Note(f"Not verified: {'; '.join(launch.unverified)}."))
    return Fold(f"{launch.id}: {len(diary.choices):,} tuned kernels", tuple(blocks))


def _choices(choices: Sequence[KernelChoice]) -> Table:
    rest = len(choices) - MOST_CHOICES
    return Table(
        "Fastest candidates first, µs.",
        ("Kernel", "Chosen", "Timed", "Read from", "Key"),
        tuple(
            (
                mono(c.kernel),
                mono(c.chosen),
                ", ".join(numbers.number(t.microseconds, 2) for t in c.timings[:MOST_TIMINGS])
                + (f" … of {len(c.timings)}" if len(c.timings) > MOST_TIMINGS else "")
                or numbers.ABSENT,
                c.source,
                mono(c.key),
            )
            for c in choices[:MOST_CHOICES]
        ),
        note=f"{rest:,} more are in launches.json." if rest > 0 else "",
    )
