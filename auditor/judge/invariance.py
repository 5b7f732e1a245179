"""Stage 6: each launch under load against its own batch-1 completions, and batch 1 asked again afterwards."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from auditor.judge.activity import activity, pooled_length
from auditor.judge.answers import Answers, Entry, Index, Key, agree
from auditor.judge.scene import Scene
from auditor.judge.shares import as_interval, proportion
from auditor.model.base import Interval
from auditor.model.counters import CounterDelta, delta
from auditor.model.judgement import Invariance, Replay
from auditor.model.launch import Launch
from auditor.model.phase import Phase
from auditor.stats import paired

HELD = 0.9
"""Share of the steady phase over which a level must have been running."""


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """One launch at one level, with what is needed to pair it with the reference."""

    figures: Invariance
    steady: dict[str, bool]
    """By prompt: every request at this level equalled the batch-1 completion."""
    phases: tuple[Phase, ...]


def baseline(scene: Scene, answers: Answers, launch: Launch) -> Index:
    """The launch's batch-1 completions over all corpora."""
    return answers.merged(p.id for p in scene.corpus_phases("batch1", launch).values())


def levels(scene: Scene, answers: Answers, launch: Launch, speculative: bool) -> dict[int, Level]:
    """By level, both runs together, without the comparison with the reference."""
    solo = baseline(scene, answers, launch)
    by_level: dict[int, dict[int, Phase]] = {}
    for phase in scene.phases("load", scene.family(launch)):
        by_level.setdefault(phase.concurrency, {})[phase.pass_no] = phase
    return {
        level: _level(launch.arm, level, solo, tuple(runs[k] for k in sorted(runs)), answers, speculative)
        for level, runs in sorted(by_level.items())
    }


def _level(
    arm: str, level: int, solo: Index, phases: tuple[Phase, ...], answers: Answers, speculative: bool
) -> Level:
    runs = [answers.index(p.id) for p in phases]
    equal = asked = 0
    steady: dict[str, bool] = {}
    seen: dict[str, set[bytes]] = {}
    for run in runs:
        for (prompt, _), entry in run.entries.items():
            alone = solo.entries.get((prompt, 0))
            if alone is None:
                continue
            same = agree(alone, entry)
            asked, equal = asked + 1, equal + same
            steady[prompt] = steady.get(prompt, True) and same
            seen.setdefault(prompt, {alone.digest}).add(entry.digest)
    repeated, both = _run_to_run(runs)
    summaries = [p.concurrency_summary for p in phases]
    achieved = [s.achieved for s in summaries if s is not None and s.achieved is not None]
    shares = [s.held_fraction for s in summaries if s is not None and s.held_fraction is not None]
    return Level(
        figures=Invariance(
            arm=arm,
            level=level,
            achieved=min(achieved) if len(achieved) == len(phases) else None,
            held=bool(phases) and all(s is not None and (s.held_fraction or 0.0) >= HELD for s in summaries),
            held_share=min(shares) if shares and len(shares) == len(phases) else None,
            self_agreement=proportion(equal, asked),
            distinct_mean=sum(map(len, seen.values())) / len(seen) if seen else None,
            run_to_run=proportion(repeated, both),
            preemptions=_preemptions(phases),
            acceptance_length=pooled_length(activity(p, speculative) for p in phases),
            reference=None,
            difference90=None,
            errors=sum(len(run.failures) for run in runs),
        ),
        steady=steady,
        phases=phases,
    )


def _run_to_run(runs: Sequence[Index]) -> tuple[int, int]:
    if len(runs) < 2:
        return 0, 0
    one: dict[Key, Entry] = runs[0].entries
    two = runs[1].entries
    both = one.keys() & two.keys()
    return sum(agree(one[k], two[k]) for k in both), len(both)


def _preemptions(phases: Sequence[Phase]) -> int | None:
    total = 0
    for phase in phases:
        window = delta(phase.before, phase.after)
        if not isinstance(window, CounterDelta) or window.preemptions is None:
            return None
        total += window.preemptions
    return total


def against(mine: Level, reference: Level | None, levels: int) -> Invariance:
    """`mine` with the reference's curve under it: self-agreement paired by prompt, score interval.

    Of so many `levels`, all intervals hold together with at least 90% (Bonferroni): at 90% each, equal arms
    were below the reference at one of three levels in 15% of the audits.
    """
    if reference is None:
        return mine.figures
    both = mine.steady.keys() & reference.steady.keys()
    difference: Interval | None = None
    if both:
        more = sum(mine.steady[p] and not reference.steady[p] for p in both)
        fewer = sum(reference.steady[p] and not mine.steady[p] for p in both)
        difference = as_interval(paired.score_interval(more, fewer, len(both), 1.0 - 0.10 / levels))
    return msgspec.structs.replace(
        mine.figures, reference=reference.figures.self_agreement, difference90=difference
    )


def replay(scene: Scene, answers: Answers, launch: Launch) -> tuple[Replay, tuple[Phase, ...]] | None:
    """Batch 1 after the load against batch 1 before it; None where it was not asked again."""
    phases = scene.phases("replay", scene.family(launch))
    if not phases:
        return None
    before = baseline(scene, answers, launch)
    after = answers.merged(p.id for p in phases)
    keys = sorted(before.entries.keys() & after.entries.keys())
    differing = tuple(k[0] for k in keys if not agree(before.entries[k], after.entries[k]))
    found = Replay(
        arm=launch.arm,
        agreement=proportion(len(keys) - len(differing), len(keys)),
        differing=differing,
    )
    return found, phases
