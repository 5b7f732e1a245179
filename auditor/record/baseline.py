"""Runs as snapshots: read from a finished run folder, and kept in the folder of a run that is compared."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from auditor.errors import InvalidPlan, RecordError
from auditor.model.baseline import Baseline, GateMark, Snapshot
from auditor.model.completion import Prompt
from auditor.model.launch import Setting
from auditor.model.plan import AuditPlan
from auditor.model.record import AuditRecord, Environment, Identity
from auditor.record.digests import identity_digests
from auditor.record.evidence import StoredEvidence, read_record
from auditor.record.verify import check_digest


def read_snapshot(run_dir: Path) -> Snapshot:
    """The snapshot of a run folder, recomputed from its raw files.

    Raises RecordError when the folder holds no audit, or a raw file is missing or not as recorded.
    """
    record = read_record(run_dir)
    for expected in record.files:
        if (problem := check_digest(run_dir, expected)) is not None:
            raise RecordError(
                f"{run_dir}: {problem}",
                expected="the raw files as they were recorded",
                todo="restore the run folder from a copy",
            )
    from auditor.judge.figures import compute
    from auditor.judge.snapshot import snapshot

    evidence = StoredEvidence.load(run_dir)
    found = snapshot(compute(evidence), identity_digests(record.identities))
    return msgspec.structs.replace(
        found,
        run=run_dir.resolve().name,
        date=record.date,
        audit_sha256=hashlib.sha256((run_dir / "audit.json").read_bytes()).hexdigest(),
        verdict=record.judgement.verdict.name,
        host=tuple(_host(record.environment)),
        gates=tuple(_gates(record)),
    )


def _host(environment: Environment) -> Iterator[Setting]:
    values = {
        "auditor": environment.auditor_version,
        "python": environment.python,
        "platform": environment.platform,
        "cpu": environment.cpu,
        "devices": "; ".join(environment.devices),
    }
    values |= {package.name: package.value for package in environment.packages}
    for name, value in values.items():
        yield Setting(name=name, value=value)


def _gates(record: AuditRecord) -> Iterator[GateMark]:
    """Without those of a comparison: against what, differs from run to run."""
    for gate in record.judgement.gates:
        if gate.name.partition("/")[0] != "baseline":
            yield GateMark(name=gate.name, status=gate.status)


def kept_baseline(
    plan: AuditPlan, prompts: Sequence[Prompt], identities: Sequence[Identity]
) -> Baseline | None:
    """What the run about to start keeps of the plan's baseline; None without one.

    Raises RecordError for a folder that is no intact audit, InvalidPlan for an audit that was not finished
    or that nothing of this plan can be compared with.
    """
    if plan.baseline is None:
        return None
    before = read_snapshot(Path(plan.baseline.path))
    kept = Baseline(before=before, identities=identity_digests(identities))
    if before.status != "complete":
        raise InvalidPlan(
            f"The baseline {before.run} is {before.status}",
            expected="an audit that came to its end",
            todo="finish it with `audit resume`, or name another run",
        )
    targets = [
        next((i.digest for i in run if i.name == "target"), None)
        for run in (before.identities, kept.identities)
    ]
    if None not in targets and targets[0] != targets[1]:
        raise InvalidPlan(
            f"The baseline {before.run} audited another target (sha256 {str(targets[0])[:12]}…, here "
            f"{str(targets[1])[:12]}…)",
            expected="an audit of the same weights",
            todo="compare heads on one target; `audit diff` shows two unlike runs side by side",
        )
    from auditor.judge.snapshot import prompt_digest

    known = {(i, d) for p in before.prompts for i, d in zip(p.ids, p.digests, strict=True)}
    if not any((p.id, prompt_digest(p)) in known for p in prompts):
        raise InvalidPlan(
            f"The baseline {before.run} asked none of this plan's prompts",
            expected="the same corpora, caps and number of worked examples",
            todo="audit the earlier head with this plan first",
        )
    return kept
