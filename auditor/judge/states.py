"""How many launch states did the same flags come up in, which launches share one, and what did they tune
differently?

The rule is that of a certificate (judge/certify.py), applied to every pair of observed launches:
  one configuration   the flags are the same, so one state has the same bits: other fingerprints are another
                      state; with equal (or no) fingerprints the sequential test on the certification prompts
                      decides, p0 = 0.5 against p1 = 0.95;
  two configurations  equal fingerprints settle it, else the sequential test decides.
A state is a set of launches of one configuration that are all pairwise SAME STATE (complete linkage, in order
of start). States of different configurations are named as the same only where every pair of their launches
is. A launch that does not repeat itself has no state. Groups by fingerprint alone and by completions alone
are given beside it, because a fingerprint sees prefill kernels and completions see decoding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Literal, NamedTuple

import msgspec

from auditor.judge.answers import Answers, agree
from auditor.judge.certify import certificate_of, repeatability_of
from auditor.judge.kernels import kernel_splits
from auditor.judge.scene import RAN, Scene
from auditor.judge.shares import proportion
from auditor.model.counters import Restarted, acceptance_length, delta
from auditor.model.judgement import Proportion
from auditor.model.launch import Launch
from auditor.model.phase import Phase
from auditor.model.record import Evidence
from auditor.model.study import (
    ArmStates,
    Contrast,
    Observation,
    PairComparison,
    Spread,
    State,
    StateCount,
    StudyArm,
    StudyPlan,
    StudyResult,
    UnderLoad,
)

SAME = "SAME STATE"


class _Seen(NamedTuple):
    """One launch with what clustering needs."""

    launch: Launch
    arm: StudyArm
    observation: Observation


Pairs = Mapping[frozenset[str], PairComparison]


def study(evidence: Evidence, plan: StudyPlan) -> StudyResult:
    """Pure: everything from the record, also from one that is still growing."""
    scene, answers = Scene(evidence), Answers(evidence)
    seen = [_Seen(x, arm, _observe(x, arm, scene, answers)) for x, arm in _launches(evidence, plan)]
    observed = [s for s in seen if s.observation.observed]
    pairs = {
        frozenset((a.launch.id, b.launch.id)): _pair(a, b, scene, answers)
        for a, b in combinations(observed, 2)
    }
    stable = [s for s in observed if _repeats(s.observation)]
    states = _states(stable, pairs)
    of_launch = {launch: state.name for state in states for launch in state.launches}
    outputs = _groups([s.launch.id for s in observed], lambda a, b: _outputs_agree(pairs, a, b))
    prints = _print_groups(s.observation for s in seen)
    placed = [_placed(s, of_launch, outputs, prints) for s in seen]
    return StudyResult(
        observations=tuple(s.observation for s in placed),
        arms=tuple(_arm_states(arm, placed, plan) for arm in plan.arms),
        states=states,
        contrasts=tuple(_contrasts(states, pairs)),
        pairs=tuple(pairs.values()),
        kernels=kernel_splits([(s.launch, s.arm.configuration) for s in observed], of_launch),
    )


def _launches(evidence: Evidence, plan: StudyPlan) -> Iterator[tuple[Launch, StudyArm]]:
    """Launches in order of start. A try that was made again stays in the record and is not counted here."""
    arms = {arm.name: arm for arm in plan.arms}
    final = {(x.arm, x.attempt): x.id for x in evidence.launches if not x.id.endswith("-failed")}
    for launch in evidence.launches:
        if launch.arm in arms and final.get((launch.arm, launch.attempt), launch.id) == launch.id:
            yield launch, arms[launch.arm]


# ------------------------------------------------------------------ one launch


def _observe(launch: Launch, arm: StudyArm, scene: Scene, answers: Answers) -> Observation:
    phases = scene.phases("certify", [launch.id])
    repeated = repeatability_of(launch, answers)
    why = _unobserved(launch, phases)
    fingerprint = scene.fingerprint(launch)
    drafts, length = _speculation(phases)
    if not why and repeated.agreement.k < repeated.agreement.n:
        why = "It does not repeat itself, so it has no launch state."
    return Observation(
        launch=launch.id,
        arm=arm.name,
        configuration=arm.configuration,
        caches=arm.caches,
        observed=_unobserved(launch, phases) == "",
        why=why,
        boot_s=launch.ready_s,
        fingerprint=fingerprint.digest if fingerprint else None,
        repeatability=repeated.agreement,
        disagreeing=repeated.disagreeing,
        under_load=_under_load(launch, scene, answers),
        drafts=drafts,
        acceptance_length=length,
    )


def _unobserved(launch: Launch, phases: Sequence[Phase]) -> str:
    """Why the launch was not observed; empty when it was."""
    if launch.state not in RAN:
        return launch.error or f"It never got beyond {launch.state}."
    for phase in phases:
        if phase.state != "done":
            return f"{phase.id} ended as {phase.state}: {phase.reason or launch.error or 'no reason given'}"
    if {p.pass_no for p in phases} != {1, 2}:
        return launch.error or "It was not asked the certification prompts twice."
    return ""


def _speculation(phases: Sequence[Phase]) -> tuple[int | None, float | None]:
    """Drafts and acceptance length over the certification passes, from differences of counters."""
    if not phases:
        return None, None
    window = delta(phases[0].before, phases[-1].after)
    if window is None or isinstance(window, Restarted):
        return None, None
    return window.drafts, acceptance_length(window)


def _under_load(launch: Launch, scene: Scene, answers: Answers) -> UnderLoad | None:
    phase = next(iter(scene.phases("load", [launch.id])), None)
    if phase is None:
        return None
    alone = answers.index(f"certify/{launch.id}/pass1").entries
    together = answers.index(phase.id).entries
    both = [(alone[(prompt, 0)], e) for (prompt, _), e in together.items() if (prompt, 0) in alone]
    summary = phase.concurrency_summary
    return UnderLoad(
        level=phase.concurrency,
        achieved=summary.achieved if summary else None,
        held_fraction=summary.held_fraction if summary else None,
        agreement=proportion(sum(agree(a, b) for a, b in both), len(both)),
    )


def _repeats(observation: Observation) -> bool:
    return observation.repeatability.n > 0 and observation.repeatability.k == observation.repeatability.n


def _placed(
    seen: _Seen, of_launch: Mapping[str, str], outputs: Mapping[str, int], prints: Mapping[str, int]
) -> _Seen:
    observation = msgspec.structs.replace(
        seen.observation,
        state=of_launch.get(seen.launch.id),
        output_group=outputs.get(seen.launch.id),
        print_group=prints.get(seen.observation.fingerprint or ""),
    )
    return seen._replace(observation=observation)


# ------------------------------------------------------------------ two launches


def _pair(one: _Seen, other: _Seen, scene: Scene, answers: Answers) -> PairComparison:
    same_flags = one.arm.configuration == other.arm.configuration
    found = certificate_of(one.launch, other.launch, scene, answers, same_flags=same_flags)
    steps = [d.max_abs for d in found.fingerprint_diffs if d.max_abs is not None]
    return PairComparison(
        one=one.launch.id,
        other=other.launch.id,
        same_flags=same_flags,
        fingerprints=found.fingerprints,
        prints_differing=len(found.fingerprint_diffs),
        max_abs=max(steps, default=None),
        agreement=found.agreement,
        sprt_decision=found.sprt_decision,
        state=found.state,
        why=found.why,
        settings=tuple(s for s in found.settings if s.kind != "allowed"),
    )


def _is_same(pairs: Pairs, a: str, b: str) -> bool:
    return pairs[frozenset((a, b))].state == SAME


def _outputs_agree(pairs: Pairs, a: str, b: str) -> bool:
    return pairs[frozenset((a, b))].sprt_decision == SAME


def _spread(found: Sequence[PairComparison]) -> Spread:
    ordered = sorted((p.agreement for p in found), key=lambda a: (a.k / a.n if a.n else 0.0, a.n))
    return Spread(pairs=len(found), least=ordered[0], greatest=ordered[-1])


# ------------------------------------------------------------------ states and groups


def _groups(launches: Sequence[str], same: Callable[[str, str], bool]) -> dict[str, int]:
    """Number of the group of each launch, from 1. A launch joins the first group of whose members all are
    the same as it."""
    groups: list[list[str]] = []
    for launch in launches:
        home = next((g for g in groups if all(same(launch, member) for member in g)), None)
        if home is None:
            groups.append([launch])
        else:
            home.append(launch)
    return {launch: n for n, group in enumerate(groups, 1) for launch in group}


def _print_groups(observations: Iterable[Observation]) -> dict[str, int]:
    """Number of each digest, in order of first appearance."""
    digests = dict.fromkeys(o.fingerprint for o in observations if o.fingerprint)
    return {digest: n for n, digest in enumerate(digests, 1) if digest is not None}


def _states(stable: Sequence[_Seen], pairs: Pairs) -> tuple[State, ...]:
    found: list[tuple[str, tuple[str, ...]]] = []
    for configuration in dict.fromkeys(s.arm.configuration for s in stable):
        own = [s.launch.id for s in stable if s.arm.configuration == configuration]
        grouped = _groups(own, lambda a, b: _is_same(pairs, a, b))
        for n in dict.fromkeys(grouped.values()):
            found.append((configuration, tuple(x for x in own if grouped[x] == n)))
    order = {s.launch.id: i for i, s in enumerate(stable)}
    found.sort(key=lambda item: order[item[1][0]])
    digest = {s.launch.id: s.observation.fingerprint for s in stable}
    return tuple(
        State(
            name=letters(i),
            configuration=configuration,
            launches=members,
            fingerprint=digest[members[0]] if len({digest[m] for m in members}) == 1 else None,
            inside=_inside(members, pairs),
            same_as=tuple(
                letters(j)
                for j, (elsewhere, others) in enumerate(found)
                if elsewhere != configuration
                and all(_is_same(pairs, a, b) for a, b in product(members, others))
            ),
        )
        for i, (configuration, members) in enumerate(found)
    )


def _inside(members: Sequence[str], pairs: Pairs) -> Spread | None:
    found = [pairs[frozenset(two)] for two in combinations(members, 2)]
    return _spread(found) if found else None


def letters(n: int) -> str:
    """0 → A, 25 → Z, 26 → AA."""
    name = ""
    while True:
        name = chr(ord("A") + n % 26) + name
        n = n // 26 - 1
        if n < 0:
            return name


def _contrasts(states: Sequence[State], pairs: Pairs) -> Iterator[Contrast]:
    for one, other in combinations(states, 2):
        found = [pairs[frozenset(two)] for two in product(one.launches, other.launches)]
        kinds = {p.fingerprints for p in found}
        prints: Literal["equal", "differ", "missing", "mixed"] = kinds.pop() if len(kinds) == 1 else "mixed"
        yield Contrast(one=one.name, other=other.name, fingerprints=prints, across=_spread(found))


# ------------------------------------------------------------------ arms


def _arm_states(arm: StudyArm, seen: Sequence[_Seen], plan: StudyPlan) -> ArmStates:
    observed = [s.observation for s in seen if s.arm.name == arm.name and s.observation.observed]
    counted = Counter(o.state for o in observed if o.state is not None)
    n = len(observed)
    return ArmStates(
        arm=arm.name,
        configuration=arm.configuration,
        caches=arm.caches,
        planned=plan.count,
        observed=n,
        states=tuple(
            StateCount(state=state, share=_share(k, n))
            for state, k in sorted(counted.items(), key=lambda item: (-item[1], item[0]))
        ),
        without_state=sum(o.state is None for o in observed),
        same_pairs=sum(k * (k - 1) // 2 for k in counted.values()),
        pairs=n * (n - 1) // 2,
    )


def _share(k: int, n: int) -> Proportion:
    """k of n launches. One launch says nothing of the share of launches in its state."""
    return proportion(k, n) if n > 1 else Proportion(k=k, n=n, clopper_pearson95=None, wilson95=None)
