"""The auditor's accuracy phase as a process of its own: `worker_audit.py URL MODEL PROMPTS IN_FLIGHT`.

It does what the stage does: a record on disk, one connection a worker, samples of the server at 12.5 Hz,
every answer checked and written, and the answers graded at the end.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from auditor.clock import RealClock
from auditor.judge.accuracy import grade_phase
from auditor.measure.client import Client
from auditor.measure.phases import PhaseSpec, run_phase
from auditor.model.completion import Prompt
from auditor.model.plan import Arm, AuditPlan, EnginePlan
from auditor.record.store import Recorder


def prompts_of(file: Path) -> Iterator[Prompt]:
    with file.open() as lines:
        for i, row in enumerate(map(json.loads, lines)):
            yield Prompt(id=f"gsm8k/{i}", corpus="gsm8k", token_ids=tuple(row["ids"]), text=row["text"],
                         gold="42", max_tokens=row["max_tokens"])  # fmt: skip


def main(url: str, model: str, prompts_file: str, in_flight: int) -> None:
    plan = AuditPlan(
        name="benchmark", target="stub", arms=(Arm(name="reference", role="reference"),), engine=EnginePlan()
    )
    clock = RealClock()
    with tempfile.TemporaryDirectory() as folder:
        with Recorder.create(Path(folder) / "run", plan, prompts_of(Path(prompts_file))) as recorder:
            spec = PhaseSpec(
                id="accuracy/reference-1/gsm8k",
                stage="accuracy",
                launch="reference-1",
                arm="reference",
                corpus="gsm8k",
                concurrency=in_flight,
                prompts=recorder.prompts.of("gsm8k"),
            )
            phase = asyncio.run(run_phase(spec, lambda: Client(url, model, clock), recorder, clock))
            graded = grade_phase(recorder.evidence(), phase)
        answered = len(graded.grades)
    if phase.state != "done" or answered != phase.planned:
        sys.exit(f"{phase.state}: {answered} of {phase.planned} answered")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
