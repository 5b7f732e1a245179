"""Gates of stage 3: every launch repeats itself, and every pair is in one state."""

from __future__ import annotations

from collections.abc import Iterator

from auditor.judge.certify import cache_path
from auditor.judge.figures import Figures
from auditor.judge.gate.common import broken_phase, gate, not_run
from auditor.judge.shares import of
from auditor.model.judgement import EXPLAINED, Gate, PairCertificate

SAME = "SAME STATE"
ACCURACY_ALONE = "accuracy can still be audited alone with --gates accuracy"


def certification(figures: Figures) -> Iterator[Gate]:
    """Reference first, then the control, then the candidates."""
    scene = figures.scene
    for arm in scene.plan.arms:
        yield _repeats(figures, arm.name)
    if scene.control is None:
        yield gate(
            "certification/control",
            "UNCERTIFIED",
            "the plan has no control",
            SAME,
            "add a control arm: without a second launch of the reference nothing separates launch from head",
        )
    else:
        yield _state(figures, scene.control.name, candidate=False)
    for arm in scene.plan.candidates:
        yield _state(figures, arm.name, candidate=True)


def _repeats(figures: Figures, arm: str) -> Gate:
    name, bound = f"repeatability/{arm}", "every certification prompt answered alike twice"
    launch, found = figures.chosen.get(arm), figures.repeats(arm)
    if launch is not None:
        problem = broken_phase(name, figures.scene.phases("certify", figures.scene.family(launch)), bound)
        if problem is not None:
            return problem
    if launch is None or found is None or found.agreement.n == 0:
        return not_run(figures, name, arm, bound, "the certification of this launch")
    if not found.disagreeing:
        return gate(name, "PASS", f"{of(found.agreement)} repeated", bound)
    remedy = (
        "only cached prompts differ: pass --no-enable-prefix-caching to every arm"
        if cache_path(launch, figures.answers)
        else "byte-exact agreement would measure the engine: choose kernels that repeat themselves (another "
        f"--moe-backend, no atomics); {ACCURACY_ALONE}"
    )
    return gate(
        name,
        "UNCERTIFIED",
        f"{launch.id} repeated {of(found.agreement)} (first difference: {found.disagreeing[0]})",
        bound,
        remedy,
    )


def _state(figures: Figures, arm: str, *, candidate: bool) -> Gate:
    name = f"certification/{arm}"
    found = figures.certificate(arm)
    if found is None:
        return not_run(figures, name, arm, SAME, "a launch to compare with the reference")
    tries = [c for c in figures.certificates if c.arm == arm]
    shown = f"{found.other}: {found.state}. {found.why}"
    if len(tries) > 1:
        shown += f" Attempts: {', '.join(f'{c.other} {c.state}' for c in tries)}."
    if found.state == SAME:
        return gate(name, "PASS", shown, SAME)
    if found.state == "UNVERIFIED":
        missing = not_run(figures, name, arm, SAME, "an answered certification prompt")
        return (
            missing if missing.status == "ERROR" else gate(name, "UNCERTIFIED", shown, SAME, missing.remedy)
        )
    if found.state == "INTERMEDIATE" and candidate:
        return _intermediate(figures, name, arm, shown)
    return gate(name, "UNCERTIFIED", shown, SAME, remedy(found))


def _intermediate(figures: Figures, name: str, arm: str, shown: str) -> Gate:
    mine = [d for d in figures.divergences if d.arm == arm]
    explained = all(d.cls in EXPLAINED or d.drafter_free_flip or d.width_flip for d in mine)
    if explained and figures.pairs.get(arm):
        return gate(
            name,
            "PASS",
            f"{shown} Every one of its {len(mine)} divergences at batch 1 is explained.",
            "SAME STATE, or every divergence explained",
        )
    return gate(
        name,
        "INCONCLUSIVE",
        shown,
        "SAME STATE, or every divergence explained",
        "relaunch with --pin force: the draft's own graph was tuned apart, also with the reference's caches"
        if figures.scene.plan.pin == "snapshot"
        else "relaunch with --pin snapshot, so that the candidate shares the reference's tuned kernels",
    )


def remedy(found: PairCertificate) -> str:
    """What to do about a pair that is not in one state."""
    if found.state == "NOT COMPARABLE":
        first = next(s for s in found.settings if s.kind == "not comparable")
        return (
            f"set {first.name} alike on every arm ({first.reference} against {first.other}); the arms may "
            f"differ in "
            "the speculative configuration only"
        )
    if found.choices:
        picked = found.choices[0]
        race = (
            "" if picked.race_us is None else f", {picked.race_us[0]:.2f} against {picked.race_us[1]:.2f} µs"
        )
        return (
            f"{picked.kernel} was tuned differently ({picked.reference} / {picked.other}{race}): relaunch "
            f"with "
            f"--pin snapshot or --pin force; {ACCURACY_ALONE}"
        )
    return f"relaunch with --pin snapshot or --pin force, or allow more attempts; {ACCURACY_ALONE}"
