"""The judgement of one audit: evidence in, figures, gates and verdict out. Pure: no file, clock or chance.

An exception here is a fault of the auditor and is let through: the caller records it as an ERROR.
"""

from __future__ import annotations

from auditor.judge.figures import compute, divergences_to_score
from auditor.judge.findings import findings
from auditor.judge.gates import gates
from auditor.judge.verdict import conclude
from auditor.model.judgement import Judgement
from auditor.model.record import Evidence

__all__ = ["divergences_to_score", "judge"]


def judge(evidence: Evidence) -> Judgement:
    """Judges whatever the evidence holds; phases that are missing make their gates NOT RUN, never a pass."""
    figures = compute(evidence)
    remarks = findings(figures)
    asked = gates(figures)
    return Judgement(
        repeatability=figures.repeatability,
        certificates=figures.certificates,
        activity=figures.activity,
        agreement=figures.agreement,
        divergences=figures.divergences,
        noise_floor=figures.forensics.floor if figures.forensics.asked else None,
        calibration=figures.forensics.calibration if figures.forensics.asked else (),
        width_controls=figures.width_controls,
        invariance=figures.invariance,
        replay=figures.replay,
        arm_accuracy=figures.arm_accuracy,
        accuracy=figures.accuracy,
        findings=remarks,
        gates=asked,
        verdict=conclude(figures, asked),
    )
