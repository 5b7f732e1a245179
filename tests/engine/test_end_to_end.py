"""The whole main job on real vLLM servers on the CPU: the trained demo target with its EAGLE-3 head."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from auditor.demo.models import HEAD, TARGET
from tests.run.harness import Ran, run_cli

PYTHON = Path(
    os.environ.get("AUDIT_ENGINE_PYTHON", Path(__file__).parents[2] / ".venvs/cpu-engine/bin/python")
)
pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not PYTHON.exists(), reason="no CPU engine is installed (make setup-engine)"),
]
SHORT = (
    "--preset=demo --display=none --agreement-corpora=code,demo-sums --limit=12 --max-tokens=96 "
    "--certification-prompts=14 --certification-max-tokens=32 --levels=8 --invariance-prompts=24 "
    "--accuracy-limit=240"
).split()


def test_an_honest_head_passes_every_gate(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    ran: Ran = run_cli(
        capsys,
        run_dir,
        "equivalence",
        f"--target={TARGET}",
        f"--draft=eagle3={HEAD}",
        f"--engine-python={PYTHON}",
        f"--output={run_dir}",
        *SHORT,
    )
    record = ran.record
    statuses = {g.name: g.status for g in record.judgement.gates}
    # Whether a busy machine held the level is the machine's; every other gate is the head's.
    held = statuses.pop("invariance/eagle3")
    assert set(statuses.values()) == {"PASS"}, ran.out
    assert ran.code == {"PASS": 0, "INCONCLUSIVE": 4}[held]
    assert {p.stage for p in record.phases} >= {"certify", "batch1", "load", "replay", "accuracy"}
    drafted = [a for a in record.judgement.activity if a.arm == "eagle3" and a.phase.startswith("accuracy")]
    assert [a.acceptance_length for a in drafted if (a.acceptance_length or 0) > 2.0], drafted
    reference = next(a for a in record.judgement.arm_accuracy if a.arm == "reference")
    assert 0.6 * reference.planned < reference.correct < 0.9 * reference.planned
    assert run_cli(capsys, run_dir, "verify", str(run_dir)).code == 0
