"""Everything that is computed from the evidence before any gate is asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from auditor.judge import activity, invariance
from auditor.judge.accuracy import Graded, arm_accuracy, grade_phase, paired_test
from auditor.judge.agreement import ArmAgreement, compare_arm, divergences, summaries, to_score
from auditor.judge.answers import Answers
from auditor.judge.certify import certificate_of, repeatability_of
from auditor.judge.controls import Controls
from auditor.judge.forensics import Forensics
from auditor.judge.scene import Scene
from auditor.model.judgement import (
    AccuracyTest,
    Activity,
    Agreement,
    ArmAccuracy,
    Divergence,
    Invariance,
    PairCertificate,
    Repeatability,
    Replay,
    WidthControl,
)
from auditor.model.launch import Launch
from auditor.model.phase import Phase
from auditor.model.record import Evidence

_RANK = {"SAME STATE": 0, "INTERMEDIATE": 1, "UNVERIFIED": 2, "OTHER STATE": 3, "NOT COMPARABLE": 4}


class Figures(msgspec.Struct, kw_only=True):
    """All figures of one audit. `chosen`: per arm the launch that counts; absent where none came up."""

    scene: Scene
    answers: Answers
    forensics: Forensics
    chosen: dict[str, Launch]
    repeatability: tuple[Repeatability, ...]
    certificates: tuple[PairCertificate, ...]
    activity: tuple[Activity, ...]
    pairs: dict[str, list[ArmAgreement]]
    agreement: tuple[Agreement, ...]
    divergences: tuple[Divergence, ...]
    width_controls: tuple[WidthControl, ...]
    invariance: tuple[Invariance, ...]
    replay: tuple[Replay, ...]
    replay_phases: dict[str, tuple[Phase, ...]]
    load_phases: dict[str, tuple[Phase, ...]]
    graded: dict[str, Graded]
    arm_accuracy: tuple[ArmAccuracy, ...]
    accuracy: tuple[AccuracyTest, ...]

    def certificate(self, arm: str) -> PairCertificate | None:
        """Of the arm's launch that counts."""
        launch = self.chosen.get(arm)
        return next((c for c in self.certificates if launch and c.other == launch.id), None)

    def repeats(self, arm: str) -> Repeatability | None:
        launch = self.chosen.get(arm)
        return next((r for r in self.repeatability if launch and r.launch == launch.id), None)


def compute(evidence: Evidence) -> Figures:
    """Reads the evidence once per phase, and again for the completions that differ."""
    scene, answers = Scene(evidence), Answers(evidence)
    certificates = tuple(_certificates(scene, answers))
    chosen = choose(scene, certificates)
    reference, control = _of(scene.reference, chosen), _of(scene.control, chosen)
    forensics = Forensics(scene, reference, control)
    controls = Controls(scene)
    pairs = _pairs(scene, answers, chosen, reference)
    control_pairs = pairs.get(control.arm, []) if control else []
    found = {arm: divergences(mine, answers, scene, forensics, controls) for arm, mine in pairs.items()}
    agreement = [
        entry
        for arm, mine in pairs.items()
        if mine
        for entry in summaries(
            mine, found[arm], control_pairs if control is not None and arm != control.arm else []
        )
    ]
    load = _invariance(scene, answers, chosen, reference)
    replays = {
        launch.arm: done
        for launch in chosen.values()
        for done in (invariance.replay(scene, answers, launch),)
        if done is not None
    }
    graded = {
        arm: grade_phase(evidence, phase)
        for arm, launch in chosen.items()
        for phase in scene.corpus_phases("accuracy", launch).values()
    }
    return Figures(
        scene=scene,
        answers=answers,
        forensics=forensics,
        chosen=chosen,
        repeatability=tuple(_repeatability(scene, answers)),
        certificates=certificates,
        activity=tuple(activity.activities(scene)),
        pairs=pairs,
        agreement=tuple(agreement),
        divergences=tuple(d for mine in found.values() for d in mine),
        width_controls=tuple(
            controls.width_controls(
                {
                    arm: (
                        {p for pair in mine for p in pair.agreed},
                        {key[0] for pair in mine for key in pair.differing},
                    )
                    for arm, mine in pairs.items()
                }
            )
        ),
        invariance=load[0],
        replay=tuple(done[0] for done in replays.values()),
        replay_phases={arm: done[1] for arm, done in replays.items()},
        load_phases=load[1],
        graded=graded,
        arm_accuracy=tuple(arm_accuracy(g) for g in graded.values()),
        accuracy=_accuracy(scene, graded),
    )


def choose(scene: Scene, certificates: Sequence[PairCertificate]) -> dict[str, Launch]:
    """Per arm the launch in the best state, of several the last one."""
    states = {c.other: _RANK[c.state] for c in certificates}
    chosen = {}
    for arm in scene.plan.arms:
        served = scene.served(arm.name)
        if served:
            best = min(states.get(x.id, 0) for x in served)
            chosen[arm.name] = [x for x in served if states.get(x.id, 0) == best][-1]
    return chosen


def divergences_to_score(evidence: Evidence) -> tuple[tuple[str, str, int], ...]:
    """(arm, prompt id, 1-based position) of what the second pass should score: the plan's limit a pair.

    The control's divergences come first; where one side had ended there is no second token to score.
    """
    scene, answers = Scene(evidence), Answers(evidence)
    if scene.plan.forensics is None:
        return ()
    chosen = choose(scene, tuple(_certificates(scene, answers)))
    pairs = _pairs(scene, answers, chosen, _of(scene.reference, chosen))
    limit = scene.plan.forensics.max_divergences
    return tuple(item for mine in pairs.values() for item in to_score(mine, answers, limit))


def _of(arm: object, chosen: dict[str, Launch]) -> Launch | None:
    name = getattr(arm, "name", None)
    return chosen.get(name) if isinstance(name, str) else None


def _others(scene: Scene) -> Iterator[str]:
    """The control first, then the candidates in the plan's order."""
    if scene.control is not None:
        yield scene.control.name
    yield from (arm.name for arm in scene.plan.candidates)


def _certificates(scene: Scene, answers: Answers) -> Iterator[PairCertificate]:
    served = scene.served(scene.reference.name) if scene.reference else ()
    if not served:
        return
    for arm in _others(scene):
        for launch in scene.served(arm):
            yield certificate_of(served[-1], launch, scene, answers)


def _repeatability(scene: Scene, answers: Answers) -> Iterator[Repeatability]:
    certified = {p.launch for p in scene.phases("certify")}
    for arm in scene.plan.arms:
        for launch in scene.served(arm.name):
            if launch.id in certified:
                yield repeatability_of(launch, answers)


def _pairs(
    scene: Scene, answers: Answers, chosen: dict[str, Launch], reference: Launch | None
) -> dict[str, list[ArmAgreement]]:
    if reference is None:
        return {}
    return {
        arm: compare_arm(scene, answers, reference, chosen[arm]) for arm in _others(scene) if arm in chosen
    }


def _invariance(
    scene: Scene, answers: Answers, chosen: dict[str, Launch], reference: Launch | None
) -> tuple[tuple[Invariance, ...], dict[str, tuple[Phase, ...]]]:
    base = invariance.levels(scene, answers, reference, False) if reference else {}
    figures = [level.figures for level in base.values()]
    phases = {reference.arm: tuple(p for x in base.values() for p in x.phases)} if reference else {}
    for arm in _others(scene):
        if arm in chosen:
            candidate = scene.control is None or arm != scene.control.name
            mine = invariance.levels(scene, answers, chosen[arm], candidate)
            figures += [invariance.against(level, base.get(n), len(mine)) for n, level in mine.items()]
            phases[arm] = tuple(p for x in mine.values() for p in x.phases)
    return tuple(figures), phases


def _accuracy(scene: Scene, graded: dict[str, Graded]) -> tuple[AccuracyTest, ...]:
    plan = scene.plan.accuracy
    base = graded.get(scene.reference.name) if scene.reference else None
    if plan is None or base is None:
        return ()
    tests = (paired_test(base, graded[arm], plan) for arm in _others(scene) if arm in graded)
    return tuple(t for t in tests if t is not None)
