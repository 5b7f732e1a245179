"""Sections of the page of `audit launches`."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from markupsafe import Markup

from auditor.model.launch import Launch
from auditor.model.study import (
    ArmStates,
    LaunchStudy,
    Observation,
    PairComparison,
    Spread,
    State,
)
from auditor.report import numbers
from auditor.report.charts import matrix as chart
from auditor.report.parts import (
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
)
from auditor.report.visible import block

MOST_SETTINGS = 60
_PRINT_TONE: dict[str, Tone] = {"equal": "good", "differ": "warn", "missing": "mute", "mixed": "warn"}


def counted(arm: ArmStates) -> str:
    """`A 4 of 6, B 2 of 6`."""
    said = [f"{s.state} {numbers.counts(s.share.k, s.share.n)}" for s in arm.states]
    if arm.without_state:
        said.append(f"no state {numbers.counts(arm.without_state, arm.observed)}")
    return ", ".join(said) or "nothing observed"


# ------------------------------------------------------------------ states


def states(study: LaunchStudy) -> Section:
    result = study.result
    blocks: list[Block] = [_arms(result.arms)]
    if any(a.observed == 1 for a in result.arms):
        blocks.append(Note("One launch says which state it is in, and nothing of how often that comes up."))
    blocks.append(_states(result.states) if result.states else Note("No launch has a state.", "bad"))
    blocks += [Note(text, "warn") for text in _remarks(study)]
    intro = (
        "Launches of one set of flags are in one state when their fingerprints are equal and the sequential "
        "test on the certification prompts says so. Intervals hold for a state as if it had been named "
        "before these launches, and assume that launches are independent."
    )
    return Section("states", "How often each state came up", intro, tuple(blocks))


def _arms(arms: Sequence[ArmStates]) -> Table:
    rows: list[tuple[Value, ...]] = []
    for arm in arms:
        head: tuple[Value, ...] = (
            mono(arm.arm),
            "cold" if arm.caches == "cold" else "copied",
            Cell(numbers.counts(arm.observed, arm.planned), "" if arm.observed == arm.planned else "bad"),
        )
        pairs = numbers.counts(arm.same_pairs, arm.pairs) if arm.pairs else numbers.ABSENT
        for i, s in enumerate(arm.states):
            first = head if i == 0 else ("", "", "")
            rows.append(
                (
                    *first,
                    s.state,
                    numbers.proportion(s.share) if s.share.n > 1 else numbers.counts(s.share.k, s.share.n),
                    numbers.interval_percent(s.share.clopper_pearson95),
                    pairs if i == 0 else "",
                )
            )
        if arm.without_state:
            share = numbers.counts(arm.without_state, arm.observed)
            rows.append(("", "", "", Cell("none: does not repeat itself", "bad"), share, numbers.ABSENT, ""))
        if not arm.states and not arm.without_state:
            rows.append((*head, Cell("nothing observed", "bad"), "", "", pairs))
    return Table(
        "Launch states, k of the observed launches of each arm.",
        ("Arm", "Caches", "Observed", "State", "Launches in it", "95% Clopper–Pearson", "Pairs in one state"),
        tuple(rows),
        note="Two servers started alike can be compared byte for byte only when their pair is in one state: "
        "the last column counts such pairs. Pairs share launches, so it has no interval.",
    )


def _states(found: Sequence[State]) -> Table:
    return Table(
        "States in order of appearance, and the agreement between the launches in each.",
        ("State", "Configuration", "Launches", "Fingerprint", "Completions equal inside", "Same state as"),
        tuple(
            (
                Cell(s.name),
                s.configuration,
                numbers.listing(s.launches, 20),
                mono((s.fingerprint or "differing or none")[:16]),
                spread(s.inside) if s.inside else "one launch",
                ", ".join(s.same_as) or numbers.ABSENT,
            )
            for s in found
        ),
    )


def spread(found: Spread) -> str:
    """`40 of 40 in each of 3 pairs` or `0 of 40 to 18 of 40 in 4 pairs`."""
    low, high = (numbers.counts(p.k, p.n) for p in (found.least, found.greatest))
    if found.pairs == 1:
        return low
    return (
        f"{low} in each of {found.pairs} pairs" if low == high else f"{low} to {high} in {found.pairs} pairs"
    )


def _remarks(study: LaunchStudy) -> list[str]:
    """What a reader of the table would otherwise miss."""
    pairs = study.result.pairs
    said = []
    split = [
        p for p in pairs if p.same_flags and p.fingerprints == "differ" and p.sprt_decision == "SAME STATE"
    ]
    if split:
        said.append(
            f"{_pairs(split)} of the same flags have other fingerprints although their completions agree: "
            "the prefill kernels differ and decoding did not show it on these prompts. They count as "
            "different states."
        )
    hidden = [
        p for p in pairs if p.same_flags and p.fingerprints == "equal" and p.sprt_decision == "OTHER STATE"
    ]
    if hidden:
        said.append(
            f"{_pairs(hidden)} of the same flags have equal fingerprints although their completions differ: "
            "the decode kernels differ and the fingerprint, which sees prefill, cannot tell."
        )
    undecided = [p for p in pairs if p.state == "INTERMEDIATE"]
    if undecided:
        said.append(f"{_pairs(undecided)} ended between the bounds of the sequential test.")
    blocked = [p for p in pairs if p.state == "NOT COMPARABLE"]
    if blocked:
        said.append(f"{_pairs(blocked)} differ in a setting that can change numerics: {blocked[0].why}")
    return said


def _pairs(found: Sequence[PairComparison]) -> str:
    named = numbers.listing((f"{p.one} and {p.other}" for p in found), 4)
    return f"{len(found)} {'pair' if len(found) == 1 else 'pairs'} ({named})"


# ------------------------------------------------------------------ matrix


def matrix(study: LaunchStudy) -> Section:
    shown = _ordered(study)
    if not shown:
        return Section("matrix", "Launch against launch", "", (Note("No launch was observed.", "bad"),))
    labels = tuple(chart.Label(o.launch, o.state or numbers.ABSENT) for o in shown)
    squares = _squares(study)
    names = [o.launch for o in shown]
    rows: tuple[tuple[Value, ...], ...] = tuple(
        (
            mono(row),
            labels[i].state,
            *(_square_text(squares.get((row, column))) for column in names),
        )
        for i, row in enumerate(names)
    )
    table = Table(
        "Equal completions; = marks equal fingerprints. The diagonal is the second pass against the first.",
        ("Launch", "State", *names),
        rows,
        frozenset(range(2, len(names) + 2)),
    )
    n = max((s.n for s in squares.values()), default=0)
    figure = Figure(
        f"Certification prompts answered alike, of {n}; launches by state. A dot: equal fingerprints.",
        chart.matrix(labels, squares),
        table,
        wide=True,
    )
    blocks: list[Block] = [figure]
    if study.result.contrasts:
        blocks.append(
            Table(
                "Across states.",
                ("States", "Fingerprints", "Completions equal"),
                tuple(
                    (
                        f"{c.one} and {c.other}",
                        Cell(c.fingerprints, _PRINT_TONE[c.fingerprints]),
                        spread(c.across),
                    )
                    for c in study.result.contrasts
                ),
            )
        )
    intro = "Greedy, one request in flight, the same token ids asked of every launch."
    return Section("matrix", "Launch against launch", intro, tuple(blocks))


def _ordered(study: LaunchStudy) -> list[Observation]:
    """Observed launches by configuration, then state; without a state last."""
    configurations = list(dict.fromkeys(a.configuration for a in study.study.arms))
    order = {s.name: i for i, s in enumerate(study.result.states)}
    observed = [o for o in study.result.observations if o.observed]
    return sorted(
        observed,
        key=lambda o: (configurations.index(o.configuration), order.get(o.state or "", len(order))),
    )


def _squares(study: LaunchStudy) -> dict[tuple[str, str], chart.Square]:
    found = {}
    for p in study.result.pairs:
        square = chart.Square(p.agreement.k, p.agreement.n, p.fingerprints)
        found[(p.one, p.other)] = found[(p.other, p.one)] = square
    for o in study.result.observations:
        if o.observed:
            found[(o.launch, o.launch)] = chart.Square(o.repeatability.k, o.repeatability.n, "itself")
    return found


def _square_text(square: chart.Square | None) -> str:
    if square is None:
        return numbers.ABSENT
    return f"{square.k:,}{' =' if square.prints == 'equal' else ''}"


# ------------------------------------------------------------------ launches


def launches(study: LaunchStudy) -> Section:
    by_id = {x.id: x for x in study.launches}
    speculative = any(a.configuration != "plain" for a in study.study.arms)
    columns = ["Launch", "State", "Caches", "Device", "Ready after", "Repeats itself", "Fingerprint"]
    columns += ["Like prints", "Like answers"]
    columns += ["Acceptance length"] if speculative else []
    rows: list[tuple[Value, ...]] = []
    for o in study.result.observations:
        launch = by_id[o.launch]
        r = o.repeatability
        row: list[Value] = [
            mono(o.launch),
            o.state or Cell("none" if o.observed else f"not observed: {launch.state}", "bad"),
            f"copied from {launch.cache_from}" if launch.cache_from else "cold",
            launch.device or numbers.ABSENT,
            numbers.seconds(o.boot_s),
            Cell(numbers.counts(r.k, r.n), "bad" if r.k < r.n else "") if r.n else numbers.ABSENT,
            mono((o.fingerprint or numbers.ABSENT)[:12]),
            numbers.integer(o.print_group),
            numbers.integer(o.output_group),
        ]
        if speculative:
            row.append(numbers.number(o.acceptance_length))
        rows.append(tuple(row))
    table = Table(
        "Every launch in order of start. Launches with one number have like fingerprints, or like answers by "
        "the sequential test alone.",
        tuple(columns),
        tuple(rows),
        frozenset({4, 5}),
    )
    blocks: list[Block] = [table, _boots(study), *_loads(study)]
    blocks += [_failure(x) for x in study.launches if x.error or x.log_tail]
    for o in study.result.observations:
        if o.observed and o.why:
            differing = numbers.listing(o.disagreeing, 8)
            blocks.append(Note(f"{o.launch}: {o.why} Differing prompts: {differing}.", "warn"))
    return Section("launches", "Every launch", "", tuple(blocks))


def _loads(study: LaunchStudy) -> tuple[Block, ...]:
    rows: list[tuple[Value, ...]] = []
    for o in study.result.observations:
        if (load := o.under_load) is not None:
            held = load.held_fraction is not None and load.held_fraction >= 0.9
            rows.append(
                (
                    mono(o.launch),
                    str(load.level),
                    Cell(numbers.integer(load.achieved), "" if held else "warn"),
                    numbers.percent(load.held_fraction),
                    numbers.proportion(load.agreement),
                    numbers.interval_percent(load.agreement.clopper_pearson95),
                )
            )
    if not rows:
        return ()
    return (
        Table(
            "Certification prompts with several in flight: equal to the launch's own batch-1 answers.",
            ("Launch", "Asked in flight", "Running, median", "Time held", "Equal", "95% interval"),
            tuple(rows),
            frozenset({1, 2, 3}),
        ),
    )


def _boots(study: LaunchStudy) -> Table:
    rows: list[tuple[Value, ...]] = []
    for arm in study.study.arms:
        times = [o.boot_s for o in study.result.observations if o.arm == arm.name and o.boot_s is not None]
        if times:
            rows.append(
                (
                    mono(arm.name),
                    str(len(times)),
                    *map(numbers.seconds, (min(times), median(times), max(times))),
                )
            )
    return Table(
        "From start to a served canary.",
        ("Arm", "Launches", "Least", "Median", "Longest"),
        tuple(rows),
        frozenset({1, 2, 3, 4}),
    )


def _failure(launch: Launch) -> Fold:
    text = Markup("\n").join(block(line) for line in launch.log_tail) or block("(no log lines were kept)")
    where = f"Last lines of {launch.log}" if launch.log else "Last lines of its log"
    return Fold(f"{launch.id} {launch.state}: {launch.error or 'no reason'}", (Code(where, text),), "bad")


def settings(study: LaunchStudy) -> Section:
    """Resolved settings that differ between any two launches, apart from those of speculation."""
    seen: dict[tuple[str, str | None, str | None, str], list[str]] = {}
    for p in study.result.pairs:
        for s in p.settings:
            seen.setdefault((s.name, s.reference, s.other, s.kind), []).append(f"{p.one} and {p.other}")
    intro = "What the servers report about themselves, compared over all pairs of launches."
    if not seen:
        note = Note("No resolved setting differs between any two launches, those of speculation aside.")
        return Section("settings", "Resolved settings that differ", intro, (note,))
    rest = len(seen) - MOST_SETTINGS
    table = Table(
        "",
        ("Setting", "One", "Other", "Kind", "Pairs"),
        tuple(
            (
                mono(name),
                mono(one or "absent"),
                mono(other or "absent"),
                Cell(kind, "bad" if kind == "not comparable" else "warn"),
                f"{len(pairs):,}: {numbers.listing(pairs, 2)}",
            )
            for (name, one, other, kind), pairs in list(seen.items())[:MOST_SETTINGS]
        ),
        note=f"{rest:,} more are in launches.json." if rest > 0 else "",
    )
    return Section("settings", "Resolved settings that differ", intro, (table,))
