"""One audit from its plan to its record: plan -> launch -> measure -> record -> judge -> report."""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from auditor.cancelling import through
from auditor.clock import RealClock
from auditor.engine.preflight import check_host
from auditor.errors import AuditError, InvalidPlan
from auditor.model.judgement import Judgement, Verdict
from auditor.model.phase import Phase
from auditor.model.plan import AuditPlan
from auditor.model.record import AuditRecord, Event, Identity
from auditor.plan.prepare import prepare
from auditor.record.baseline import kept_baseline
from auditor.record.environment import environment
from auditor.record.lines import DISK, storage_error
from auditor.record.store import Recorder
from auditor.report.progress import Progress
from auditor.run.context import Context
from auditor.run.fleet import Fleet
from auditor.run.sequence import Sequence as Stages
from auditor.run.signals import obeyed, until_signal

Status = Literal["complete", "interrupted", "error"]


@dataclass(frozen=True)
class Outcome:
    record: AuditRecord
    run_dir: Path


def audit(plan: AuditPlan, run_dir: Path, command: Sequence[str], progress: Progress) -> Outcome:
    """Run `plan` into the new folder `run_dir`.

    Raises InvalidPlan before anything is started; whatever happens later ends in a record: an engine's death,
    a signal and a fault of the auditor itself are recorded as ERROR, with all that was measured.
    """
    if not plan.gates:
        raise InvalidPlan("the plan has no gates", expected="at least one", todo="no checks is not a pass")
    findings = check_host(plan, run_dir)
    frozen = prepare(plan)
    baseline = kept_baseline(plan, frozen.prompts, frozen.identities)
    recorder = Recorder.create(run_dir, plan, frozen.prompts, baseline)
    for finding in (*findings, *frozen.findings):
        recorder.event(Event(finding=finding))
    identities = frozen.identities
    del frozen  # its prompts are on disk now, and read from there
    return _run(recorder, identities, command, progress)


def resume(run_dir: Path, command: Sequence[str], progress: Progress) -> Outcome:
    """Go on with an interrupted audit. Raises RecordError when there is nothing to go on with."""
    recorder = Recorder.resume(run_dir)
    try:
        check_host(recorder.plan, run_dir)
        identities = prepare(recorder.plan).identities
    except BaseException:
        recorder.close()
        raise
    return _run(recorder, identities, command, progress)


def _run(
    recorder: Recorder, identities: Sequence[Identity], command: Sequence[str], progress: Progress
) -> Outcome:
    with recorder:
        status, error = _measure(recorder, progress)
        with obeyed(status == "interrupted"):
            record = _conclude(recorder, status, error, identities, command)
    return Outcome(record, recorder.run_dir)


def _conclude(
    recorder: Recorder,
    status: Status,
    error: str | None,
    identities: Sequence[Identity],
    command: Sequence[str],
) -> AuditRecord:
    """Judge what was measured and write audit.json."""
    recorder.end_measuring()
    evidence = recorder.evidence(status, error)
    try:
        from auditor.judge.judge import judge

        judgement = judge(evidence)
    except Exception as fault:  # an exception is never a verdict: it is recorded as the error it is
        status, error = "error", f"the judgement failed: {fault}"
        judgement = no_verdict(error, traceback.format_exc())
    return recorder.finish(
        status=status,
        error=error,
        environment=environment(recorder.plan),
        identities=identities,
        command=command,
        judgement=judgement,
    )


def _measure(recorder: Recorder, progress: Progress) -> tuple[Status, str | None]:
    """All stages with servers. How it ended, and why if not well."""
    clock = RealClock(recorder.offset_s)
    fleet = Fleet(recorder.plan, recorder.run_dir, recorder, clock, progress)
    finished = {p.id: p for p in recorder.state.phases.values() if _is_final(p, recorder)}
    for launch in recorder.state.launches.values():
        fleet.seen(launch)
    ctx = Context(recorder.plan, recorder.prompts, recorder, fleet, clock, progress, finished)
    stages = Stages(ctx)

    async def work() -> None:
        try:
            await stages.run()
        finally:
            await through(fleet.close(), progress.note)

    try:
        asyncio.run(until_signal(work()))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return "interrupted", "stopped by a signal; `audit resume DIR` goes on"
    except AuditError as error:
        return "error", str(error)
    except Exception as fault:  # recorded, so that nothing measured is lost; the exit code is ERROR
        if isinstance(fault, OSError) and fault.errno in DISK:
            # logs, samples and caches meet a full disk as well as the record does
            return "error", str(storage_error(fault, fault.filename or "the run folder"))
        recorder_note = "".join(traceback.format_exception(fault))
        with contextlib.suppress(OSError):
            (recorder.run_dir / "traceback.txt").write_text(recorder_note, encoding="utf-8")
        return "error", f"the auditor failed: {type(fault).__name__}: {fault} (traceback.txt)"
    if stages.failures:
        return "error", "; ".join(f"{arm}: {why}" for arm, why in stages.failures.items())
    return "complete", None


def _is_final(phase: Phase, recorder: Recorder) -> bool:
    """Whether a phase of an earlier process is over: void, or every request of it brought a completion.
    Requests that failed are asked again when somebody resumes."""
    if phase.state == "void":
        return True
    return phase.state == "done" and len(recorder.done(phase.id)) >= phase.planned


def no_verdict(error: str, detail: str) -> Judgement:
    """The judgement of an audit whose judging failed: ERROR, with the traceback as a limit."""
    return Judgement(gates=(), verdict=Verdict(name="ERROR", exit_code=5, reason=error, limits=(detail,)))
