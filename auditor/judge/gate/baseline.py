"""Gate against an earlier audit: no regression by the rule of judge/baseline.py."""

from __future__ import annotations

from auditor.judge.baseline import compare
from auditor.judge.figures import Figures
from auditor.judge.gate.common import gate, no_candidate, not_run
from auditor.judge.snapshot import snapshot
from auditor.model.baseline import ArmDiff, Condition
from auditor.model.judgement import Gate

_AGAIN = "audit the earlier head with this plan, and name that run as the baseline"


def baseline(figures: Figures) -> list[Gate]:
    """One gate a candidate. Asked only where the plan names a baseline."""
    plan, kept = figures.scene.plan, figures.scene.evidence.baseline
    drop = plan.baseline.max_acceptance_drop if plan.baseline else 0.0
    bound = (
        "against the baseline no lower agreement or accuracy (one-sided exact McNemar p < 0.05; accuracy "
        f"also within the margin), acceptance length down by {100 * drop:g}% at most, no new class of faults"
    )
    if not plan.candidates:
        return [no_candidate("baseline", bound)]
    if kept is None:
        return [
            gate("baseline", "NOT RUN", "baseline.json is missing from the record", bound, "restore the file")
        ]
    found = compare(kept.before, snapshot(figures, kept.identities), drop)
    arms = {arm.arm: arm for arm in found.arms}
    blocking = [c for c in found.conditions if c.bearing == "blocks"]
    return [
        _gate(figures, name, arms.get(name), blocking, bound) for name in (a.name for a in plan.candidates)
    ]


def _gate(figures: Figures, arm: str, found: ArmDiff | None, blocking: list[Condition], bound: str) -> Gate:
    name = f"baseline/{arm}"
    if found is None:
        return not_run(figures, name, arm, bound, f"a launch of {arm}")
    if blocking:
        first = blocking[0]
        figure = f"another {first.what} than the baseline's ({first.after} after {first.before})"
        return gate(name, "INCONCLUSIVE", figure, bound, "compare heads on one target")
    if found.regressions:
        figure = "; ".join(found.regressions)
        return gate(name, "FAIL", figure, bound, "`audit diff` of the two runs shows what else changed")
    if found.undecided:
        remedy = "ask for more prompts in both runs, or for the baseline's own"
        return gate(name, "INCONCLUSIVE", "; ".join(found.undecided), bound, remedy)
    if found.missing or not found.compared:
        if figures.scene.evidence.status in ("interrupted", "error"):
            return not_run(figures, name, arm, bound, f"a measurement of {arm}")
        figure = "; ".join(found.missing) or f"nothing of {arm} was measured"
        return gate(name, "INCONCLUSIVE", figure, bound, _AGAIN)
    return gate(name, "PASS", "; ".join(found.compared), bound)
