"""Gates of stage 6: self-agreement under load beside the reference's, and batch 1 after the load."""

from __future__ import annotations

from auditor.judge.figures import Figures
from auditor.judge.gate.common import broken_phase, gate, no_candidate, not_run
from auditor.judge.shares import of
from auditor.model.judgement import Gate, Invariance

BOUND = "self-agreement under load not below the reference's (paired, 90% over all levels)"
REPLAY = "batch-1 completions after the load equal those before it"


def invariance(figures: Figures) -> list[Gate]:
    """One gate a candidate, then the replays of the reference and of each candidate."""
    scene = figures.scene
    if not scene.plan.candidates:
        return [no_candidate("invariance", BOUND)]
    arms = [a.name for a in scene.plan.candidates]
    reference = [scene.reference.name] if scene.reference else []
    uncertified = _uncertified(figures)
    if uncertified:
        return [gate(f"invariance/{arm}", "UNCERTIFIED", *uncertified) for arm in arms]
    return [_levels(figures, arm) for arm in arms] + [_replay(figures, arm) for arm in reference + arms]


def _uncertified(figures: Figures) -> tuple[str, str, str] | None:
    """The byte-exact stages end with an uncertified pair: what was not measured has a cause."""
    if "certification" not in figures.scene.plan.gates or figures.load_phases.get("reference"):
        return None
    control = figures.scene.control
    found = figures.certificate(control.name) if control else None
    if found is None or found.state == "SAME STATE" or any(figures.load_phases.values()):
        return None
    return f"not measured: {found.other} is {found.state}", BOUND, "see the certification gates"


def _levels(figures: Figures, arm: str) -> Gate:
    name = f"invariance/{arm}"
    plan, scene = figures.scene.plan.invariance, figures.scene
    certificate = figures.certificate(arm)
    if (
        certificate is not None
        and not figures.load_phases.get(arm)
        and certificate.state
        in (
            "OTHER STATE",
            "NOT COMPARABLE",
        )
    ):
        return gate(name, "UNCERTIFIED", f"not measured: {certificate.state}", BOUND, "see its certification")
    reference = scene.reference.name if scene.reference else ""
    broken = broken_phase(
        name, (*figures.load_phases.get(reference, ()), *figures.load_phases.get(arm, ())), BOUND
    )
    if broken is not None:
        return broken
    mine = {x.level: x for x in figures.invariance if x.arm == arm}
    wanted = plan.levels if plan else ()
    absent = [n for n in wanted if n not in mine or mine[n].self_agreement.n == 0]
    if absent or not mine:
        what = f"the load at {', '.join(map(str, absent)) or 'any level'}"
        return not_run(figures, name, arm, BOUND, what)
    base = {x.level: x for x in figures.invariance if x.arm == reference}
    figure = "; ".join(_figure(x) for x in mine.values())
    for level in mine.values():
        worse = level.difference90 is not None and level.difference90.high < 0.0
        if worse and _valid(level) and _valid(base.get(level.level)):
            return gate(
                name,
                "FAIL",
                f"{figure}; at {level.level} in flight the candidate is below the reference",
                BOUND,
                "requests influence each other more with the head than without: look for draft state shared "
                "between requests",
            )
    return _usable(name, mine, base, figure) or gate(name, "PASS", figure, BOUND)


def _valid(level: Invariance | None) -> bool:
    return level is not None and level.held and not level.preemptions


def _usable(name: str, mine: dict[int, Invariance], base: dict[int, Invariance], figure: str) -> Gate | None:
    for n, level in mine.items():
        problem = _problem(level) or (_problem(base[n]) if n in base else "the reference was not measured")
        if problem:
            remedy = (
                "give the level more prompts (--invariance-prompts) or longer answers, or the server more "
                "room (--max-num-seqs, KV cache), or ask for lower levels"
            )
            return gate(name, "INCONCLUSIVE", f"at {n} in flight {problem}; {figure}", BOUND, remedy)
    return None


def _problem(level: Invariance) -> str | None:
    if not level.held:
        got = "an unknown number" if level.achieved is None else str(level.achieved)
        share = "" if level.held_share is None else f", held for {level.held_share:.0%} of the steady phase"
        return f"{level.arm} did not hold {level.level} running (median {got}{share})"
    if level.preemptions:
        return f"{level.arm} had {level.preemptions} preemptions"
    if level.errors:
        return f"{level.errors} requests to {level.arm} failed"
    return None


def _figure(level: Invariance) -> str:
    beside = f" (reference {of(level.reference)})" if level.reference else ""
    return f"{of(level.self_agreement)} at {level.level}{beside}"


def _replay(figures: Figures, arm: str) -> Gate:
    name = f"replay/{arm}"
    found = next((r for r in figures.replay if r.arm == arm), None)
    phases = figures.replay_phases.get(arm, ())
    broken = broken_phase(name, phases, REPLAY)
    if broken is not None:
        return broken
    if found is None or found.agreement.n == 0:
        return not_run(figures, name, arm, REPLAY, "batch 1 after the load")
    if found.differing:
        reference = figures.scene.reference
        whose = (
            "the engine's, with or without a head" if reference and reference.name == arm else "see reference"
        )
        return gate(
            name,
            "FAIL",
            f"{of(found.agreement)} equal after the load (first difference: {found.differing[0]})",
            REPLAY,
            f"state written under load is read later, a poisoned cache ({whose}): repeat with "
            "--no-enable-prefix-caching",
        )
    return gate(name, "PASS", f"{of(found.agreement)} equal after the load", REPLAY)
