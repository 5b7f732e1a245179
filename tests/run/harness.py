"""Whole audits against the scripted engine, through the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from auditor.cli.main import main
from auditor.model.record import AuditRecord
from auditor.resources import data
from tests.fakes.fake_vllm import install, write_target

SMALL = (
    "--display=none --agreement-corpora=sums --limit=12 --max-tokens=40 --certification-prompts=16 "
    "--certification-max-tokens=24 --levels=4 --invariance-prompts=8 --accuracy-corpus=sums "
    "--accuracy-limit=80 --accuracy-max-tokens=24 --shots=2 --pin=none --request-timeout=20"
).split()
"""A plan with every stage in it that the scripted engine works off in seconds."""


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str
    run_dir: Path

    @property
    def record(self) -> AuditRecord:
        return msgspec.json.decode((self.run_dir / "audit.json").read_bytes(), type=AuditRecord)

    @property
    def codes(self) -> set[str]:
        """Codes of all findings."""
        return {f.code for f in (*self.record.findings, *self.record.judgement.findings)}

    def gate(self, name: str) -> str:
        """Status of the gate called `name`."""
        return next(g.status for g in self.record.judgement.gates if g.name == name)


def answers(right: float, *, other: int = 0) -> dict[str, str]:
    """What the scripted model says to the packaged sums: the first `right` share of them is correct; of the
    correct ones, `other` are wrong instead."""
    rows = [json.loads(x) for x in (data("corpora") / "sums.jsonl").read_text("utf-8").splitlines()]
    said = {}
    for n, row in enumerate(rows):
        gold = row["answer"].rsplit("#### ", 1)[1]
        correct = n < right * len(rows) and n >= other
        said[row["question"]] = f" #### {gold if correct else int(gold) + 1}"
    return said


def run_audit(
    capsys: pytest.CaptureFixture[str],
    folder: Path,
    script: Mapping[str, Any],
    *args: str,
    draft: str = "ngram",
) -> Ran:
    """`audit equivalence` on the scripted engine with `SMALL` and `args`."""
    python = install(folder / "engine", dict(script))
    target = write_target(folder / "target")
    run_dir = folder / "run"
    return run_cli(
        capsys,
        run_dir,
        "equivalence",
        f"--target={target}",
        f"--draft={draft}",
        f"--engine-python={python}",
        f"--output={run_dir}",
        *SMALL,
        *args,
    )


def run_cli(capsys: pytest.CaptureFixture[str], run_dir: Path, *args: str) -> Ran:
    """Any command; `run_dir` is where its record is looked for."""
    with pytest.raises(SystemExit) as end:
        main(args)
    shown = capsys.readouterr()
    return Ran(int(end.value.code or 0), shown.out, shown.err, run_dir)
