"""What all gates share: gates of phases that are missing or broken, and the arms they are asked for."""

from __future__ import annotations

from collections.abc import Iterable

from auditor.judge.figures import Figures
from auditor.model.judgement import Gate, Status
from auditor.model.phase import Phase

RESUME = "what was measured is kept: mend the cause and run `audit resume` on this folder"


def gate(name: str, status: Status, figure: str, bound: str, remedy: str = "") -> Gate:
    return Gate(name=name, status=status, figure=figure, bound=bound, remedy=remedy)


def not_run(figures: Figures, name: str, arm: str, bound: str, what: str) -> Gate:
    """The gate of something that was asked for and is not in the record, by its cause."""
    evidence = figures.scene.evidence
    attempts = figures.scene.attempts(arm)
    broken = next((x for x in reversed(attempts) if x.state in ("failed", "died")), None)
    if broken is not None and (arm not in figures.chosen or broken.state == "died"):
        why = broken.error or "no reason was recorded"
        return gate(
            name,
            "ERROR",
            f"{what} is missing: {broken.id} {broken.state} ({why})",
            bound,
            f"see the launch's log; {RESUME}",
        )
    if evidence.status in ("interrupted", "error"):
        why = evidence.error or f"the audit was {evidence.status}"
        return gate(name, "ERROR", f"{what} is missing: {why}", bound, RESUME)
    return gate(
        name,
        "NOT RUN",
        f"{what} is missing from the record",
        bound,
        "no evidence is not a pass: run the stage, or leave its gate out of --gates",
    )


def broken_phase(name: str, phases: Iterable[Phase], bound: str) -> Gate | None:
    """ERROR for a phase that broke off, INCONCLUSIVE for a void one; None when all are done."""
    listed = list(phases)
    for phase in listed:
        if phase.state in ("error", "running"):
            why = phase.reason or "it never ended"
            return gate(name, "ERROR", f"phase {phase.id} broke off: {why}", bound, RESUME)
    for phase in listed:
        if phase.state == "void":
            why = phase.reason or "no reason was recorded"
            return gate(name, "INCONCLUSIVE", f"phase {phase.id} is void: {why}", bound, "run it again")
    return None


def no_candidate(name: str, bound: str) -> Gate:
    return gate(name, "NOT RUN", "the plan has no candidate", bound, "name one with --draft")
