"""The plan's gates, asked one by one. A gate without evidence is never a pass."""

from __future__ import annotations

from collections.abc import Sequence

from auditor.judge.figures import Figures
from auditor.judge.gate.agreement import agreement
from auditor.judge.gate.baseline import baseline
from auditor.judge.gate.certification import certification
from auditor.judge.gate.common import RESUME, gate
from auditor.judge.gate.load import invariance
from auditor.judge.gate.work import accuracy, head_ran
from auditor.model.judgement import Gate

ASK = {
    "certification": certification,
    "head-ran": head_ran,
    "agreement": agreement,
    "invariance": invariance,
    "accuracy": accuracy,
}


def gates(figures: Figures) -> tuple[Gate, ...]:
    """In the order of the stages; first of all the run itself, where it did not come to its end."""
    evidence, plan = figures.scene.evidence, figures.scene.plan
    asked: list[Gate] = []
    if plan.gates and evidence.status in ("interrupted", "error"):
        why = evidence.error or f"the audit was {evidence.status}"
        asked.append(gate("run", "ERROR", why, "an audit that came to its end", RESUME))
    for name, ask in ASK.items():
        if name in plan.gates:
            found: Sequence[Gate] = tuple(ask(figures))
            asked += found
    if plan.gates and plan.baseline is not None:
        asked += baseline(figures)
    return tuple(asked)
