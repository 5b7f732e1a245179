"""Gate of stages 4 and 5: the candidate diverges no more than drafter-free numerics explain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from auditor.judge.figures import Figures
from auditor.judge.findings import stuck_reference
from auditor.judge.gate.certification import remedy as state_remedy
from auditor.judge.gate.common import RESUME, broken_phase, gate, no_candidate, not_run
from auditor.judge.shares import of
from auditor.model.judgement import EXPLAINED, STRUCTURAL, Agreement, Divergence, Gate

BOUND = "no unexplained, structural or degenerate divergence"
SIGNIFICANT = 0.05
MORE_OFTEN = 0.01
"""Level of `diverges more often than the width control`. Below the other gates' levels, because here one
discordant prompt more is an alarm about ties that are each explained."""
REMEDIES = {
    "unexplained": "open its page in the report: it says whose logits disagree with what was emitted",
    "degenerate": "look for NaN logits: run the target alone, same dtype and kernels",
    "post-stop leak": "tokens accepted after the stop id reach the client: report it to the engine",
    "length overrun": "tokens accepted beyond max_tokens reach the client: report it to the engine",
    "short delivery": "usage and delivered ids disagree: report it to the engine, count ids",
    "stop policy": "the arms stop by different rules: compare stop ids, min_tokens, generation_config",
}


def agreement(figures: Figures) -> list[Gate]:
    """One gate a candidate."""
    if not figures.scene.plan.candidates:
        return [no_candidate("agreement", BOUND)]
    return [_agreement(figures, arm.name) for arm in figures.scene.plan.candidates]


def _agreement(figures: Figures, arm: str) -> Gate:
    name = f"agreement/{arm}"
    early = _not_measured(figures, name, arm)
    if early is not None:
        return early
    summary = _summary(figures, arm)
    mine = [d for d in figures.divergences if d.arm == arm]
    figure = _figure(summary, mine)
    if summary.agreement.n == 0 or summary.errors:
        return gate(
            name,
            "ERROR",
            f"{summary.errors} prompts have no completion; {figure}",
            BOUND,
            f"a failed request voids the batch-1 claim of its prompt; {RESUME}",
        )
    return (
        _faulty(figures, name, arm, mine, figure)
        or _bound(figures, name, arm, figure)
        or _open(figures, name, arm, mine, summary, figure)
        or _more_often(figures, name, arm, figure)
        or gate(name, "PASS", figure, BOUND)
    )


def _not_measured(figures: Figures, name: str, arm: str) -> Gate | None:
    plan = figures.scene.plan
    pairs = figures.pairs.get(arm) or []
    wanted = {use.name for use in plan.agreement.corpora} if plan.agreement else set[str]()
    phases = [p for pair in pairs for p in (pair.reference_phase, pair.phase)]
    early = broken_phase(name, phases, BOUND) or _uncertified(figures, name, arm)
    if early is not None:
        return early
    absent = sorted(wanted - {p.corpus for p in pairs})
    if absent or not pairs:
        what = f"batch-1 agreement on {', '.join(absent) or 'any corpus'}"
        return not_run(figures, name, arm, BOUND, what)
    return None


def _uncertified(figures: Figures, name: str, arm: str) -> Gate | None:
    """A pair in two states, or a server that does not repeat itself: agreement would measure the engine."""
    plan = figures.scene.plan
    if "certification" not in plan.gates:
        return None
    control = figures.scene.control
    states = [figures.certificate(a) for a in ([control.name] if control else []) + [arm]]
    for found in states:
        if found is not None and found.state in ("OTHER STATE", "NOT COMPARABLE"):
            return gate(name, "UNCERTIFIED", f"{found.other}: {found.state}", BOUND, state_remedy(found))
    if control is None or (states[0] is not None and states[0].state != "SAME STATE"):
        return gate(
            name,
            "UNCERTIFIED",
            "the reference pair was never certified",
            BOUND,
            "see the certification gates",
        )
    for who in [a.name for a in plan.arms if a.role == "reference"] + [arm]:
        repeated = figures.repeats(who)
        if repeated is not None and repeated.disagreeing:
            return gate(
                name,
                "UNCERTIFIED",
                f"{repeated.launch} does not repeat itself",
                BOUND,
                "see the repeatability gates",
            )
    return None


def _summary(figures: Figures, arm: str) -> Agreement:
    mine = [a for a in figures.agreement if a.arm == arm]
    return next((a for a in mine if a.corpus == "all"), mine[0])


def _figure(summary: Agreement, mine: Sequence[Divergence]) -> str:
    kinds = Counter(d.cls for d in mine)
    shown = ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
    control = f", control {of(summary.control)}" if summary.control else ""
    return f"{of(summary.agreement)} agree{control}" + (f" ({shown})" if shown else "")


def _faulty(figures: Figures, name: str, arm: str, mine: Sequence[Divergence], figure: str) -> Gate | None:
    bad = [
        d
        for d in mine
        if d.cls in STRUCTURAL or d.cls == "degenerate" or (d.cls == "unexplained" and not _drafter_free(d))
    ]
    if not bad:
        return None
    # A fault of accounting or stopping names its cause; it comes before what only lacks an explanation.
    worst = min(bad, key=lambda d: (d.cls == "unexplained", d.cls == "degenerate"))
    shown = f"{figure}; {worst.prompt} from token {worst.position}: {worst.why}"
    control = figures.scene.control
    theirs = [d for d in figures.divergences if control and d.arm == control.name and d.cls == "unexplained"]
    if all(d.cls == "unexplained" for d in bad) and len(theirs) >= len(bad):
        return gate(
            name,
            "INCONCLUSIVE",
            f"{shown} The control, which has no drafter, has {len(theirs)} such divergences itself.",
            BOUND,
            "the engine varies by itself: the head cannot be blamed or cleared on this stack",
        )
    state = figures.certificate(arm)
    if worst.cls == "unexplained" and state is not None and state.state == "INTERMEDIATE":
        return gate(
            name,
            "INCONCLUSIVE",
            f"{shown} The launch state is INTERMEDIATE, so that kernels may have been picked differently.",
            BOUND,
            state_remedy(state),
        )
    return gate(name, "FAIL", shown, BOUND, REMEDIES[worst.cls] + _penalties(figures))


def _drafter_free(d: Divergence) -> bool:
    """Whether the target says the other token without any drafter: as a batch, or at k + 1 tokens a pass."""
    return bool(d.drafter_free_flip or d.width_flip)


def _more_often(figures: Figures, name: str, arm: str, figure: str) -> Gate | None:
    """The candidate against the target at the same width without a drafter, on the same prompts."""
    control = next((w for w in figures.width_controls if w.arm == arm), None)
    if control is None or control.p_more >= MORE_OFTEN:
        return None
    state = figures.certificate(arm)
    shown = (
        f"{figure}; of the prompts sampled it diverges on {of(control.candidate)}, the target without a "
        f"drafter at {control.width} tokens a pass on {of(control.control)} (exact one-sided McNemar p "
        f"{control.p_more:.2g})."
    )
    bound = "no more divergences than the drafter-free control's"
    if state is not None and state.state != "SAME STATE":
        return gate(
            name, "INCONCLUSIVE", f"{shown} The launch state is {state.state}.", bound, state_remedy(state)
        )
    return gate(
        name,
        "FAIL",
        shown,
        bound,
        "each margin is small but there are too many: compare KV cache dtype, kernels and the draft's effect "
        "on the target's graph",
    )


def _penalties(figures: Figures) -> str:
    said = [f for f in figures.scene.evidence.findings if "penalty" in f"{f.seen} {f.expected}".lower()]
    args = " ".join(figures.scene.plan.engine.args)
    if not said and "penalty" not in args:
        return ""
    return "; penalties are in force and speculation is known to break under them: run again with them off"


def _bound(figures: Figures, name: str, arm: str, figure: str) -> Gate | None:
    plan = figures.scene.plan.agreement
    if plan is None or plan.min_agreement is None:
        return None
    least = plan.min_agreement
    bound = f"lower 95% bound of agreement at least {least:g} on every corpus"
    short = [
        a
        for a in figures.agreement
        if a.arm == arm
        and a.corpus != "all"
        and (a.agreement.clopper_pearson95 is None or a.agreement.clopper_pearson95.low < least)
    ]
    if not short:
        return None
    worst = min(
        short, key=lambda a: a.agreement.clopper_pearson95.low if a.agreement.clopper_pearson95 else 0
    )
    interval = worst.agreement.clopper_pearson95
    shown = f"{worst.corpus}: {of(worst.agreement)}" + (
        f", lower bound {interval.low:.4f}" if interval else ""
    )
    if worst.agreement.k < least * worst.agreement.n:
        return gate(name, "FAIL", f"{figure}; {shown}", bound, "read the divergences of this corpus")
    return gate(name, "INCONCLUSIVE", f"{figure}; {shown}", bound, "ask for more prompts of this corpus")


def _open(
    figures: Figures, name: str, arm: str, mine: Sequence[Divergence], summary: Agreement, figure: str
) -> Gate | None:
    stuck, total = stuck_reference(figures)
    if 2 * stuck > total:
        return gate(
            name,
            "INCONCLUSIVE",
            f"{figure}, but {stuck} of {total} reference completions are one token repeated",
            "a reference that says something",
            "NaN logits look like this: check weights, dtype and kernels of the target",
        )
    unknown = [d for d in mine if d.cls not in EXPLAINED and not _drafter_free(d)]
    if not unknown:
        return None
    first = unknown[0]
    shown = f"{figure}; {first.prompt} from token {first.position}: {first.why}"
    if not figures.forensics.asked and _exceeds_control(summary):
        return gate(
            name,
            "FAIL",
            f"{shown} It diverges more often than the control (exact McNemar p {summary.mcnemar_exact:.2g}).",
            "no more divergences than the control's",
            "ask for the second pass, which tells ties from faults" + _penalties(figures),
        )
    return gate(
        name,
        "INCONCLUSIVE",
        shown,
        BOUND,
        "margins are not evidence there: see the calibration of rescoring, or score more divergences",
    )


def _exceeds_control(summary: Agreement) -> bool:
    return (
        summary.control is not None
        and summary.mcnemar_exact is not None
        and summary.mcnemar_exact < SIGNIFICANT
        and summary.agreement.k * summary.control.n < summary.control.k * summary.agreement.n
    )
