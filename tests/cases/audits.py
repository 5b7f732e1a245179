"""Whole audits in one call, for fixtures that several tests share.

Most cases are one candidate each of a common audit: a scripted engine plays one fault an arm, so that the
reference and the control are measured once.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from auditor.cli.main import main
from auditor.model.judgement import Activity, Finding, Gate
from auditor.model.launch import Launch
from auditor.model.record import AuditRecord
from tests.fakes.fake_vllm import install, write_target

NARROW = (
    "--display=none",
    "--agreement-corpora=sums",
    "--limit=8",
    "--max-tokens=24",
    "--certification-prompts=12",
    "--certification-max-tokens=12",
    "--fingerprint-prompts=2",
    "--levels=2",
    "--invariance-prompts=8",
    "--accuracy-corpus=sums",
    "--accuracy-limit=64",
    "--accuracy-max-tokens=12",
    "--shots=0",
    "--pin=none",
    "--request-timeout=30",
    "--engine-env=OMP_NUM_THREADS=1",
    "--engine-env=VLLM_CPU_KVCACHE_SPACE=0.01",
)
"""Every stage small; the two variables let two scripted servers work at once and need no memory."""


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str
    run_dir: Path

    @property
    def record(self) -> AuditRecord:
        path = self.run_dir / "audit.json"
        assert path.exists(), f"no record; exit code {self.code}: {self.err}"
        return msgspec.json.decode(path.read_bytes(), type=AuditRecord)

    def gate(self, name: str) -> Gate:
        return next(g for g in self.record.judgement.gates if g.name == name)

    def finding(self, code: str, subject: str = "") -> Finding:
        """The finding of this code whose subject starts with `subject`. Fails when there is none."""
        return next(f for f in self.findings if f.code == code and f.subject.startswith(subject))

    @property
    def findings(self) -> tuple[Finding, ...]:
        return (*self.record.findings, *self.record.judgement.findings)

    def codes(self, subject: str) -> set[str]:
        return {f.code for f in self.findings if f.subject.startswith(subject)}

    def launch(self, launch_id: str) -> Launch:
        return next(x for x in self.record.launches if x.id == launch_id)

    def activity(self, phase: str) -> Activity:
        return next(a for a in self.record.judgement.activity if a.phase == phase)


def cli(run_dir: Path, *args: str) -> Ran:
    """Any command in this process; `run_dir` is where its record is looked for."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(args)
        except SystemExit as end:
            code = end.code
    assert "Traceback" not in err.getvalue(), err.getvalue()
    assert not (run_dir / "traceback.txt").exists(), (run_dir / "traceback.txt").read_text()
    return Ran(int(str(code or 0)), out.getvalue(), err.getvalue(), run_dir)


def arguments(
    folder: Path,
    script: Mapping[str, Any],
    *args: str,
    drafts: Iterable[str] = ("ngram",),
    target: Path | None = None,
    python: Path | None = None,
) -> list[str]:
    """The command line of an audit into `folder`/run on a scripted engine: `NARROW`, then `args`."""
    made = install(folder / "engine", dict(script))
    target = target or write_target(folder / "target")
    return [
        "equivalence",
        f"--target={target}",
        *(f"--draft={draft}" for draft in drafts),
        f"--engine-python={python or made}",
        f"--output={folder / 'run'}",
        *NARROW,
        *args,
    ]


def audit(folder: Path, script: Mapping[str, Any], *args: str, **more: Any) -> Ran:
    """`audit equivalence` as `arguments` has it."""
    return cli(folder / "run", *arguments(folder, script, *args, **more))


def attached(folder: Path, reference: str, control: str, candidate: str, *args: str) -> Ran:
    """`audit equivalence` on three servers that run already."""
    narrow = [a for a in NARROW if not a.startswith(("--engine-env", "--pin"))]
    urls = [f"--reference-url={reference}", f"--control-url={control}", f"--candidate-url={candidate}"]
    return cli(folder / "run", "equivalence", *urls, f"--output={folder / 'run'}", *narrow, *args)


def prompts(path: Path, texts: Iterable[str]) -> Path:
    """A corpus file of plain prompts."""
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts), "utf-8")
    return path


def says(text: str, *words: str) -> None:
    """`text` holds all `words`, whatever their case and however its lines are broken."""
    seen = " ".join(text.split())
    for word in words:
        assert word.lower() in seen.lower(), f"{word!r} is not in {seen!r}"
