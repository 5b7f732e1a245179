"""Gates on the work itself: the head ran, and the task's accuracy is equivalent."""

from __future__ import annotations

from auditor.judge.activity import pooled_length
from auditor.judge.figures import Figures
from auditor.judge.gate.common import broken_phase, gate, no_candidate, not_run
from auditor.model.judgement import AccuracyTest, Gate, Status


def head_ran(figures: Figures) -> list[Gate]:
    """One gate a candidate, and one for plain arms if any of them drafted."""
    plan = figures.scene.plan
    bound = f"drafts in every phase, acceptance length above {plan.min_acceptance_length:g}"
    if not plan.candidates:
        return [no_candidate("head-ran", bound)]
    plain = [a.name for a in plan.arms if a.role != "candidate"]
    speculating = [a for a in figures.activity if a.arm in plain and a.status == "ran"]
    gates = [_ran(figures, arm.name, bound) for arm in plan.candidates]
    if speculating:
        first = speculating[0]
        gates.append(
            gate(
                f"head-ran/{first.arm}",
                "UNCERTIFIED",
                f"{first.launch} drafted {first.drafts} times in {first.phase}",
                "no drafts without a draft",
                "start reference and control without a speculative configuration",
            )
        )
    return gates


def _ran(figures: Figures, arm: str, bound: str) -> Gate:
    name = f"head-ran/{arm}"
    launch = figures.chosen.get(arm)
    family = figures.scene.family(launch) if launch else frozenset[str]()
    resumed = {p.id for p in figures.scene.evidence.phases if (p.reason or "").startswith("resumed")}
    mine = [
        a
        for a in figures.activity
        if a.launch in family
        # Rescoring forces one token a request, so nothing is drafted there; of a phase that was complete
        # when the audit was resumed no counters were read again.
        and not a.phase.startswith("calibrate/")
        and not (a.status == "unknown" and a.phase in resumed)
    ]
    if not mine:
        return not_run(figures, name, arm, bound, "any phase of this arm")
    states: tuple[tuple[str, str, str], ...] = (
        (
            "never ran",
            "no draft was made",
            "the head did not run, so agreement is the target's with itself: check the speculative "
            "configuration "
            "in the start-up log",
        ),
        ("restarted", "a counter fell, so the server restarted", "run this phase again"),
        (
            "unknown",
            "the speculation counters could not be read",
            "read /metrics: without counters nobody knows that the head ran",
        ),
    )
    for status, seen, remedy in states:
        hit = [a for a in mine if a.status == status]
        if hit:
            return gate(
                name,
                "INCONCLUSIVE",
                f"{seen} in {len(hit)} of {len(mine)} phases ({hit[0].phase})",
                bound,
                remedy,
            )
    length = pooled_length(mine)
    drafts = sum(a.drafts or 0 for a in mine)
    figure = (
        f"{drafts} drafts in {len(mine)} phases, acceptance length {length:.4f}" if length else "no figure"
    )
    if length is None or length <= figures.scene.plan.min_acceptance_length:
        return gate(
            name,
            "INCONCLUSIVE",
            figure,
            bound,
            "the head is inert, so agreement says little of it: check its weights and that it belongs to "
            "this "
            "target, or lower --min-acceptance-length if that is meant",
        )
    return gate(name, "PASS", figure, bound)


def accuracy(figures: Figures) -> list[Gate]:
    """One gate a candidate."""
    plan = figures.scene.plan
    margin = plan.accuracy.margin if plan.accuracy else None
    bound = "paired equivalence" + (f" within ±{margin:g}" if margin is not None else "")
    if not plan.candidates:
        return [no_candidate("accuracy", bound)]
    return [_accuracy(figures, arm.name, bound) for arm in plan.candidates]


def _accuracy(figures: Figures, arm: str, bound: str) -> Gate:
    name = f"accuracy/{arm}"
    reference = figures.scene.reference.name if figures.scene.reference else ""
    graded = [figures.graded[a] for a in (reference, arm) if a in figures.graded]
    broken = broken_phase(name, (g.phase for g in graded), bound)
    if broken is not None:
        return broken
    for who in (reference, arm):
        if who not in figures.graded:
            return not_run(figures, name, who, bound, f"the accuracy of {who}")
    found = next((t for t in figures.accuracy if t.arm == arm), None)
    if found is None:
        return not_run(figures, name, arm, bound, "a problem that both arms answered")
    figure = _figure(found)
    status, remedy = _STATUS[found.verdict]
    return gate(name, status, f"{figure}. {found.why}", bound, remedy)


_STATUS: dict[str, tuple[Status, str]] = {
    "equivalent": ("PASS", ""),
    "equivalent but different": ("PASS", ""),
    "not equivalent": (
        "FAIL",
        "read the problems that one arm alone solved; a candidate that is better by more than the margin "
        "changes "
        "the model as well",
    ),
    "inconclusive": ("INCONCLUSIVE", "ask for more problems, or state a wider margin beforehand"),
    "void": (
        "INCONCLUSIVE",
        "the benchmark cannot tell the arms apart: check the stop list, the prompt format and the "
        "extracted answers, "
        "or take a corpus that this target answers neither always nor never",
    ),
}


def _figure(found: AccuracyTest) -> str:
    right = found.both + found.reference_only, found.both + found.candidate_only
    missing = f", {found.missing} missing" if found.missing else ""
    return (
        f"{right[1]} against {right[0]} of {found.n} right (candidate alone {found.candidate_only}, "
        f"reference alone "
        f"{found.reference_only}{missing}), 90% interval {found.ci90.low:+.4f} to {found.ci90.high:+.4f}"
    )
