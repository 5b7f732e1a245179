"""Two runs compared: what changed, what changed beyond chance, and what is a regression. Pure.

The rule, per candidate. A regression is any of
  agreement    lower on the same prompts, all shared corpora together: one-sided exact McNemar p < 0.05
  accuracy     lower on the same problems (one-sided exact McNemar p < 0.05), or not shown to be lower by less
               than the plan's margin although the number of problems could have shown it
  acceptance   mean tokens a step lower by more than 5% (an option) in any kind of phase, on the same prompts
  divergences  a structural, degenerate or unexplained class that the run before did not have, on prompts that
               both asked; flips that the drafter-free reference shows as well are left out
and, of the whole run, a gate that passed before and fails now. The number of tests is not corrected for: each
may stop an unchanged head with up to 5%. What is said to have changed beyond chance is corrected (Holm).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from auditor.judge.changes import ALPHA, changes, non_inferiority, series
from auditor.judge.conditions import conditions
from auditor.judge.shares import of
from auditor.model.baseline import (
    DIFF_EXIT_CODES,
    AcceptanceChange,
    AcceptanceWindow,
    ArmDiff,
    Change,
    ClassChange,
    Condition,
    DiffOutcome,
    GateChange,
    Marks,
    NonInferiority,
    RunDiff,
    RunLabel,
    Snapshot,
    StateChange,
)
from auditor.model.judgement import STRUCTURAL, DivergenceClass

MAX_ACCEPTANCE_DROP = 0.05
FAULTS: tuple[DivergenceClass, ...] = (*STRUCTURAL, "degenerate", "unexplained")


def compare(before: Snapshot, after: Snapshot, max_acceptance_drop: float = MAX_ACCEPTANCE_DROP) -> RunDiff:
    """`max_acceptance_drop`: the largest relative drop that is no regression, a fraction."""
    pairs = pair_arms(before, after)
    found = changes(before, after, pairs)
    candidates = tuple(a.arm for a in after.arms if a.role == "candidate")
    tested = tuple(_accuracy(before, after, pairs, candidates))
    speeds = tuple(_acceptance(before, after, pairs))
    classes = tuple(_classes(before, after, pairs))
    gates = tuple(_gates(before, after))
    known = conditions(before, after, pairs)
    arms = tuple(
        _arm(before, after, arm, pairs, found, tested, speeds, classes, max_acceptance_drop)
        for arm in candidates
    )
    outcome, reason = _conclude(known, arms, gates)
    return RunDiff(
        before=_label(before),
        after=_label(after),
        max_acceptance_drop=max_acceptance_drop,
        outcome=outcome,
        exit_code=DIFF_EXIT_CODES[outcome],
        reason=reason,
        conditions=known,
        states=tuple(_states(before, after, pairs)),
        arms=arms,
        changes=found,
        accuracy=tested,
        acceptance=speeds,
        classes=classes,
        gates=gates,
        tests=sum(c.p is not None for c in found),
        beyond_chance=tuple(_beyond_chance(found)),
        not_compared=tuple(_not_compared(before, after, pairs, found, speeds)),
    )


def pair_arms(before: Snapshot, after: Snapshot) -> dict[str, str]:
    """Arm after -> arm before: reference and control by role, candidates by name, and where one is left on
    either side, those two."""
    pairs = {}
    for role in ("reference", "control"):
        one, two = (next((a.arm for a in run.arms if a.role == role), None) for run in (before, after))
        if one is not None and two is not None:
            pairs[two] = one
    ours, theirs = ([a.arm for a in run.arms if a.role == "candidate"] for run in (before, after))
    pairs |= {name: name for name in theirs if name in ours}
    rest = [n for n in ours if n not in theirs], [n for n in theirs if n not in ours]
    if len(rest[0]) == len(rest[1]) == 1:
        pairs[rest[1][0]] = rest[0][0]
    return pairs


def _label(run: Snapshot) -> RunLabel:
    return RunLabel(
        name=run.name,
        run=run.run,
        date=run.date,
        verdict=run.verdict,
        status=run.status,
        audit_sha256=run.audit_sha256,
        target_kind=run.target_kind,
    )


def _states(before: Snapshot, after: Snapshot, pairs: Mapping[str, str]) -> Iterator[StateChange]:
    ours = {a.arm: a for a in before.arms}
    for arm in after.arms:
        other = ours.get(pairs.get(arm.arm, ""))
        if other is None:
            continue
        prints = other.fingerprint, arm.fingerprint
        yield StateChange(
            arm=arm.arm,
            before_arm=other.arm,
            role=arm.role,
            before_state=other.state,
            after_state=arm.state,
            before_attempts=other.attempts,
            after_attempts=arm.attempts,
            fingerprints="missing" if None in prints else "equal" if prints[0] == prints[1] else "differ",
        )


def _accuracy(
    before: Snapshot, after: Snapshot, pairs: Mapping[str, str], candidates: Sequence[str]
) -> Iterator[NonInferiority]:
    for arm in candidates:
        if arm in pairs and after.margin is not None:
            marks = series(before.grades, after.grades, (before, after), (pairs[arm], arm))
            for corpus, found in marks.items():
                tested = non_inferiority(arm, corpus, found, after.margin)
                if tested is not None:
                    yield tested


def _acceptance(before: Snapshot, after: Snapshot, pairs: Mapping[str, str]) -> Iterator[AcceptanceChange]:
    ours = {(w.arm, w.kind): w for w in before.acceptance}
    for two in after.acceptance:
        one = ours.get((pairs.get(two.arm, ""), two.kind))
        if one is None:
            continue
        lengths = _length(one), _length(two)
        notes = []
        if one.work != two.work:
            notes.append("other prompts were answered")
        notes += [
            f"nothing drafted or no counters in the run {name}"
            for name, length in zip(("before", "after"), lengths, strict=True)
            if length is None
        ]
        known = lengths[0] is not None and lengths[1] is not None
        yield AcceptanceChange(
            arm=two.arm,
            kind=two.kind,
            before=lengths[0],
            after=lengths[1],
            relative=lengths[1] / lengths[0] - 1.0 if known and lengths[0] and lengths[1] else None,
            comparable=not notes,
            note="; ".join(notes),
        )


def _length(window: AcceptanceWindow) -> float | None:
    if not window.drafts or window.accepted is None:
        return None
    return 1.0 + window.accepted / window.drafts


def _classes(before: Snapshot, after: Snapshot, pairs: Mapping[str, str]) -> Iterator[ClassChange]:
    runs = before, after
    keys = [{(i, d) for p in run.prompts for i, d in zip(p.ids, p.digests, strict=True)} for run in runs]
    shared = {i for i, _ in keys[0] & keys[1]}
    for arm, other in pairs.items():
        # Prompts that both runs compared with their reference: elsewhere nothing could have been seen.
        one, two = (
            Counter(
                d.cls for d in run.divergences if d.arm == name and d.prompt in shared and not d.drafter_free
            )
            for run, name in ((before, other), (after, arm))
        )
        for cls in dict.fromkeys([*one, *two]):
            unscored = cls == "unexplained" and not before.scored
            yield ClassChange(
                arm=arm,
                cls=cls,
                before=one[cls],
                after=two[cls],
                new_fault=cls in FAULTS and not one[cls] and two[cls] > 0 and not unscored,
                note="the run before had no second pass, which finds this class" if unscored else "",
            )


def _gates(before: Snapshot, after: Snapshot) -> Iterator[GateChange]:
    ours = {g.name: g.status for g in before.gates}
    theirs = {g.name: g.status for g in after.gates}
    if ours and theirs:
        for name in dict.fromkeys([*ours, *theirs]):
            yield GateChange(name=name, before=ours.get(name), after=theirs.get(name))


def _arm(
    before: Snapshot,
    after: Snapshot,
    arm: str,
    pairs: Mapping[str, str],
    found: Sequence[Change],
    tested: Sequence[NonInferiority],
    speeds: Sequence[AcceptanceChange],
    classes: Sequence[ClassChange],
    drop: float,
) -> ArmDiff:
    if arm not in pairs:
        return ArmDiff(arm=arm, before_arm=None, missing=("the run before has no such candidate",))
    other = pairs[arm]
    says = _Says()
    mine = [c for c in found if c.arm == arm]
    speed = [s for s in speeds if s.arm == arm]
    for what, ours, theirs, compared in (
        ("agreement", _arms(before.agreement), _arms(after.agreement), [c.what for c in mine]),
        ("accuracy", _arms(before.grades), _arms(after.grades), [c.what for c in mine]),
        ("acceptance", _arms(before.acceptance), _arms(after.acceptance), ["acceptance" for _ in speed]),
    ):
        if arm in theirs and other not in ours:
            says.missing.append(f"{what} was not measured in the run before")
        elif arm in theirs and what not in compared:
            says.undecided.append(f"{what}: no corpus is in both runs")
    _judge_agreement(says, [c for c in mine if c.what == "agreement"])
    if any(c.what == "agreement" and c.paired for c in mine):
        _judge_classes(says, [c for c in classes if c.arm == arm])
    _judge_accuracy(says, [c for c in mine if c.what == "accuracy"], [t for t in tested if t.arm == arm])
    _judge_acceptance(says, speed, drop)
    return ArmDiff(
        arm=arm,
        before_arm=other,
        regressions=tuple(says.regressions),
        undecided=tuple(says.undecided),
        missing=tuple(says.missing),
        compared=tuple(says.compared),
    )


def _arms(found: Iterable[Marks | AcceptanceWindow]) -> set[str]:
    return {x.arm for x in found}


class _Says:
    """Collects what is said of one arm."""

    def __init__(self) -> None:
        self.regressions: list[str] = []
        self.undecided: list[str] = []
        self.missing: list[str] = []
        self.compared: list[str] = []


def _judge_agreement(says: _Says, mine: Sequence[Change]) -> None:
    if not mine:
        return
    total = next((c for c in mine if c.subject == "all"), None) or next((c for c in mine if c.paired), None)
    if total is None or total.p_lower is None:
        says.undecided.append(f"agreement: {mine[0].note}")
        return
    figure = (
        f"agreement {of(total.after)} after {of(total.before)} ({total.gained} gained, {total.lost} lost, "
        f"one-sided p {total.p_lower:.2g})"
    )
    (says.regressions if total.p_lower < ALPHA else says.compared).append(figure)


def _judge_classes(says: _Says, mine: Sequence[ClassChange]) -> None:
    new = [c for c in mine if c.new_fault]
    says.regressions += [f"{c.after} {c.cls}, a class that the run before did not have" for c in new]
    says.undecided += [f"{c.after} {c.cls}: {c.note}" for c in mine if c.note and c.after and not c.before]
    if not new:
        says.compared.append("no new class of faults")


def _judge_accuracy(says: _Says, mine: Sequence[Change], tested: Sequence[NonInferiority]) -> None:
    says.undecided += [f"accuracy: {c.note}" for c in mine if not c.paired]
    tests = {t.corpus: t for t in tested}
    for change in mine:
        test = tests.get(change.subject)
        if test is None or change.p_lower is None:
            continue
        figure = (
            f"accuracy {of(change.after)} after {of(change.before)} ({change.gained} gained, {change.lost} "
            f"lost, one-sided p {change.p_lower:.2g}"
        )
        said = f"{figure}; {test.result} at {test.margin:g}: {test.why})"
        if test.result == "inferior" or change.p_lower < ALPHA:
            says.regressions.append(said)
        else:
            (says.undecided if test.result == "undecided" else says.compared).append(said)


def _judge_acceptance(says: _Says, mine: Sequence[AcceptanceChange], drop: float) -> None:
    known = [s for s in mine if s.comparable and s.relative is not None]
    if not known:
        if mine:
            says.undecided.append(f"acceptance length: {mine[0].note}")
        return
    worst = min(known, key=lambda s: s.relative or 0.0)
    figure = (
        f"acceptance length {worst.after:.4f} after {worst.before:.4f} in {worst.kind} "
        f"({100 * (worst.relative or 0.0):+.2f}%, the lowest of {len(known)} kinds of phases)"
    )
    (says.regressions if (worst.relative or 0.0) < -drop else says.compared).append(figure)


def _conclude(
    known: Sequence[Condition], arms: Sequence[ArmDiff], gates: Sequence[GateChange]
) -> tuple[DiffOutcome, str]:
    blocking = [c for c in known if c.bearing == "blocks"]
    if blocking:
        first = blocking[0]
        return "not comparable", (
            f"The runs are of two {first.what}s ({_short(first.before)} and {_short(first.after)}): a change "
            "would not be the draft's."
        )
    failed = [
        f"the gate {g.name} passed and fails now" for g in gates if (g.before, g.after) == ("PASS", "FAIL")
    ]
    worse = [f"{a.arm}: {r}" for a in arms for r in a.regressions] + failed
    if worse:
        more = f" ({len(worse) - 1} more)" if len(worse) > 1 else ""
        return "regression", f"{worse[0]}{more}."
    open_ = [f"{a.arm}: {u}" for a in arms for u in a.undecided]
    if open_:
        return "inconclusive", f"Nothing is worse by the rule, but {open_[0]}."
    seen = [f"{a.arm}: {c}" for a in arms for c in a.compared]
    if not seen:
        missing = [f"{a.arm}: {m}" for a in arms for m in a.missing]
        return (
            "not comparable",
            f"Nothing could be compared: {(missing or ['no candidate was measured'])[0]}.",
        )
    return "no regression", f"No regression by the rule: {'; '.join(seen)}."


def _short(text: str | None) -> str:
    return "nothing" if text is None else text[:12] + "…" if len(text) > 40 else text


def _beyond_chance(found: Sequence[Change]) -> Iterator[str]:
    for c in found:
        word = "higher" if (c.difference or 0.0) > 0 else "lower"
        shown = f"{c.what} of {c.arm} on {c.subject} is {word}: {of(c.after)} after {of(c.before)}"
        if c.p_holm is not None and c.p_holm < ALPHA:
            yield f"{shown} ({c.gained} gained, {c.lost} lost, Holm's p {c.p_holm:.2g})"
        elif not c.paired and c.interval95 and not c.interval95.low <= 0.0 <= c.interval95.high:
            yield f"{shown} (unpaired: {c.note}; its 95% interval excludes 0)"


def _not_compared(
    before: Snapshot,
    after: Snapshot,
    pairs: Mapping[str, str],
    found: Sequence[Change],
    speeds: Sequence[AcceptanceChange],
) -> Iterator[str]:
    for run, word, names in ((before, "before", set(pairs.values())), (after, "after", set(pairs))):
        for state in run.arms:
            if state.arm not in names:
                yield f"arm {state.arm}: only in the run {word}"
    done = {(c.what, c.arm, c.subject) for c in found}
    back = {other: arm for arm, other in pairs.items()}
    for word, run in (("before", before), ("after", after)):
        measured = [
            *(("agreement", m.arm, m.corpus) for m in run.agreement),
            *(("accuracy", m.arm, m.corpus) for m in run.grades),
            *(("self-agreement", m.arm, f"n{m.level}") for m in run.load),
        ]
        for what, arm, subject in measured:
            name = back.get(arm) if run is before else arm if arm in pairs else None
            if name is not None and (what, name, subject) not in done:
                yield f"{what} of {arm} on {subject}: only measured in the run {word}"
    for c in found:
        if c.note:
            yield f"{c.what} of {c.arm} on {c.subject}: {'' if c.paired else 'unpaired, '}{c.note}"
    for s in speeds:
        if s.note:
            yield f"acceptance length of {s.arm} in {s.kind}: {s.note}"
