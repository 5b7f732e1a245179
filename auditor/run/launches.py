"""A study of launch states from its plan to its document: the same flags launched several times.

Arms take turns (plain, warm, draft, plain, …), so that neither an interruption nor a drift of the machine
falls on one arm alone. A launch that fails is kept in the record and the others go on.
"""

from __future__ import annotations

import asyncio
import os
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from auditor.cancelling import through
from auditor.clock import RealClock
from auditor.engine.base import LaunchRequest, Server
from auditor.engine.flags import has_flag
from auditor.engine.launcher import start
from auditor.engine.preflight import check_host
from auditor.errors import AuditError, EngineError, InvalidPlan
from auditor.judge.states import study as judge_states
from auditor.measure.phases import PhaseSpec
from auditor.model.plan import Arm, AuditPlan
from auditor.model.record import Event, Identity
from auditor.model.study import PLAIN, LaunchStudy, Observation, StudyArm, StudyPlan, StudyResult
from auditor.plan.prepare import prepare
from auditor.record.environment import environment
from auditor.record.store import STUDY, Recorder, utc_now
from auditor.report import numbers
from auditor.report.launches import render
from auditor.report.progress import Progress
from auditor.run import stages
from auditor.run.context import Context
from auditor.run.devices import MEMORY_SHARE
from auditor.run.fleet import Fleet
from auditor.run.signals import obeyed, until_signal
from auditor.stats.sprt import SequentialTest

Status = Literal["complete", "interrupted", "error"]
LAUNCHES, PAGE = "launches.json", "launches.html"
HOPELESS = 2
"""An arm is given up when so many of its launches failed and none was observed."""


@dataclass(frozen=True)
class Outcome:
    document: LaunchStudy
    run_dir: Path


def launch_states(
    plan: AuditPlan, study: StudyPlan, run_dir: Path, command: Sequence[str], progress: Progress
) -> Outcome:
    """Run the study into the new folder `run_dir`.

    Raises InvalidPlan before anything is started. Whatever happens later ends in launches.json: status
    `complete` when every launch was observed, `error` when one was not, `interrupted` after a signal.
    """
    _check(plan, study)
    findings = check_host(plan, run_dir)
    frozen = prepare(plan)
    recorder = Recorder.create(run_dir, plan, frozen.prompts)
    with recorder:
        recorder.write_document(STUDY, study)
        for finding in (*findings, *frozen.findings):
            recorder.event(Event(finding=finding))
        status, error = _measure(recorder, study, progress)
        with obeyed(status == "interrupted"):
            document = _document(recorder, study, status, error, frozen.identities, command)
            recorder.write_document(LAUNCHES, document)
    return Outcome(document, run_dir)


def _check(plan: AuditPlan, study: StudyPlan) -> None:
    c = plan.certification
    test = SequentialTest(p0=c.p0, p1=c.p1, alpha=c.alpha, beta=c.beta, truncate=c.prompts)
    least = test.least_n_for_same(0)
    if c.prompts < least:
        raise InvalidPlan(
            f"certification.prompts is {c.prompts}, on which the sequential test can never say SAME STATE",
            expected=f"at least {least}",
            todo="raise --certification-prompts",
        )
    if not any(arm.configuration == PLAIN and arm.caches == "cold" for arm in study.arms):
        raise InvalidPlan(
            "The study has no plain launches with cold caches",
            expected="the arm that others are compared with and copy caches from",
            todo="add cold to --arms",
        )


def _measure(recorder: Recorder, study: StudyPlan, progress: Progress) -> tuple[Status, str | None]:
    """All launches. How it ended, and why if not well."""
    clock = RealClock()
    fleet = StudyFleet(recorder.plan, recorder.run_dir, recorder, clock, progress)
    ctx = Context(recorder.plan, recorder.prompts, recorder, fleet, clock, progress)
    pool = _Pool(ctx, fleet, study)

    async def work() -> None:
        try:
            await pool.run()
        finally:
            await through(fleet.close(), progress.note)

    try:
        asyncio.run(until_signal(work()))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return "interrupted", "stopped by a signal; what was measured is kept"
    except AuditError as error:
        return "error", str(error)
    except Exception as fault:  # recorded, so that nothing measured is lost; the exit code is ERROR
        text = "".join(traceback.format_exception(fault))
        (recorder.run_dir / "traceback.txt").write_text(text, encoding="utf-8")
        return "error", f"the auditor failed: {type(fault).__name__}: {fault} (traceback.txt)"
    if pool.failures:
        return "error", "; ".join(pool.failures)
    return "complete", None


def _document(
    recorder: Recorder,
    study: StudyPlan,
    status: Status,
    error: str | None,
    identities: Sequence[Identity],
    command: Sequence[str],
) -> LaunchStudy:
    state = recorder.end(status)
    try:
        result = judge_states(recorder.evidence(status, error), study)
    except Exception as fault:  # an exception is never a result: it is recorded as the error it is
        (recorder.run_dir / "traceback.txt").write_text(traceback.format_exc(), encoding="utf-8")
        status, error = "error", f"the judgement failed: {fault} (traceback.txt)"
        result = StudyResult(observations=(), arms=(), states=(), contrasts=(), pairs=(), kernels=())
    return LaunchStudy(
        status=status,
        error=error,
        date=utc_now(),
        command=tuple(command),
        study=study,
        plan=recorder.plan,
        environment=environment(recorder.plan),
        identities=tuple(identities),
        launches=tuple(state.launches.values()),
        fingerprints=tuple(state.fingerprints),
        phases=tuple(state.phases.values()),
        findings=tuple(state.findings),
        notes=tuple(state.notes),
        files=recorder.raw_files(),
        result=result,
    )


def write_page(document: LaunchStudy, run_dir: Path) -> Path:
    """launches.html into the run folder; its path."""
    page = run_dir / PAGE
    partial = page.with_name(page.name + ".part")
    partial.write_text(render(document), encoding="utf-8")
    os.replace(partial, page)
    return page


# ------------------------------------------------------------------ where servers run


@dataclass(frozen=True)
class Seat:
    """Where one server of the study runs. There are as many as servers may run at once."""

    device: str
    memory_fraction: float | None
    starting: asyncio.Lock | None
    """Held while a server starts; None where there is no memory to be profiled."""


def seats(plan: AuditPlan, parallel: int) -> tuple[Seat, ...]:
    """`parallel` seats over the devices in turn. Two servers that profile one device's memory at once can
    both fail, so that they start one after the other unless --kv-cache-memory-bytes is given."""
    devices = plan.engine.devices or ("",)
    fixed = has_flag(plan.engine.args, "--kv-cache-memory-bytes")
    locks = {device: asyncio.Lock() for device in devices}
    sharing = -(-parallel // len(devices))
    return tuple(
        Seat(
            device=(device := devices[i % len(devices)]),
            memory_fraction=None if sharing == 1 else round(MEMORY_SHARE / sharing, 3),
            starting=None if fixed else locks[device],
        )
        for i in range(parallel)
    )


class StudyFleet(Fleet):
    """A Fleet whose servers are told where to run: launches of one arm may run side by side."""

    async def launch_at(self, seat: Seat, arm: Arm, number: int, cache_from: str | None) -> Server:
        """Launch number `number` of `arm`. Raises EngineError; the failed Launch is in the record then."""
        request = LaunchRequest(
            plan=self.plan,
            arm=arm,
            attempt=number,
            launch_id=f"{arm.name}-{number}",
            run_dir=self.run_dir,
            device=seat.device,
            cache_from=self.run_dir / "launches" / cache_from if cache_from else None,
            memory_fraction=seat.memory_fraction,
            clock=self.clock,
            on_change=self._record,
            progress=self.progress.note,
        )
        async with seat.starting or nullcontext():
            server = await start(request)
        self._servers[server.launch.id] = server
        return server


# ------------------------------------------------------------------ the launches


@dataclass(frozen=True)
class _Job:
    arm: StudyArm
    number: int
    """1-based over the arm."""

    @property
    def launch(self) -> str:
        return f"{self.arm.name}-{self.number}"

    @property
    def gives_caches(self) -> bool:
        return self.arm.configuration == PLAIN and self.arm.caches == "cold"


class _Pool:
    """Workers, one a seat, that take the next launch that can be made."""

    def __init__(self, ctx: Context, fleet: StudyFleet, study: StudyPlan) -> None:
        self.ctx, self.fleet, self.study = ctx, fleet, study
        self.failures: list[str] = []
        self._queue = [_Job(arm, n) for n in range(1, study.count + 1) for arm in study.arms]
        self._running: list[_Job] = []
        self._started = 0
        self._changed = asyncio.Condition()
        self._source: str | None = None
        """First observed plain launch with cold caches."""
        self._observed: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()

    async def run(self) -> None:
        places = seats(self.ctx.plan, self.study.parallel)
        workers = [asyncio.create_task(self._worker(seat)) for seat in places]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _worker(self, seat: Seat) -> None:
        while (job := await self._next()) is not None:
            try:
                failure = await self._launch(job, seat)
            finally:
                self._running.remove(job)
            async with self._changed:
                self._note_end(job, failure)
                self._changed.notify_all()

    async def _next(self) -> _Job | None:
        """The next job; None when there is none left. Warm launches wait for the caches that they copy."""
        async with self._changed:
            while self._queue:
                ready = (j for j in self._queue if j.arm.caches == "cold" or self._source is not None)
                job = next(ready, None)
                if job is not None:
                    self._queue.remove(job)
                    self._running.append(job)
                    return job
                if not any(j.gives_caches for j in self._running):
                    self._drop(None, "no plain launch with cold caches was observed")
                    break
                await self._changed.wait()
            return None

    def _note_end(self, job: _Job, failure: str | None) -> None:
        if failure is None:
            self._observed[job.arm.name] += 1
            if job.gives_caches and self._source is None:
                self._source = job.launch
            return
        self.failures.append(failure)
        self._failed[job.arm.name] += 1
        if self._failed[job.arm.name] >= HOPELESS and not self._observed[job.arm.name]:
            why = f"the first {self._failed[job.arm.name]} launches of {job.arm.name} failed"
            self._drop(job.arm, why)

    def _drop(self, arm: StudyArm | None, why: str) -> None:
        """Give up what is left of an arm, or of all."""
        dropped = [j for j in self._queue if arm is None or j.arm == arm]
        if dropped:
            self._queue = [j for j in self._queue if j not in dropped]
            self.failures.append(f"{len(dropped)} launches were not started: {why}")
            self.ctx.progress.note(self.failures[-1])

    async def _launch(self, job: _Job, seat: Seat) -> str | None:
        """One launch from start to stop; why it was not observed, None when it was."""
        ctx, plan = self.ctx, self.ctx.plan
        warm = job.arm.caches == "warm"
        caches = f"caches of {self._source}" if warm else "cold caches"
        where = f", device {seat.device}" if seat.device else ""
        self._started += 1
        ctx.progress.note(
            f"{job.launch}: starting, {caches}{where} (launch {self._started} of {self.study.planned})"
        )
        try:
            server = await self.fleet.launch_at(
                seat, plan.arm(job.arm.name), job.number, self._source if warm else None
            )
        except EngineError as error:
            ctx.progress.note(str(error))
            return str(error)
        ctx.progress.note(f"{job.launch}: ready after {numbers.seconds(server.launch.ready_s)}")
        try:
            await ctx.fingerprint(server)
            for spec in self._work(server.launch.id, job.arm.name):
                phase = await ctx.measure(spec, server)
                if phase.state != "done":
                    raise EngineError(f"{phase.id} ended as {phase.state}: {phase.reason}")
        except EngineError as error:
            ctx.progress.note(str(error))
            return str(error)
        finally:
            if await through(self.fleet.stop(server.launch.id), ctx.progress.note):
                raise asyncio.CancelledError
        self._tell(server.launch.id)
        return None

    def _work(self, launch: str, arm: str) -> tuple[PhaseSpec, ...]:
        prompts = self.ctx.prompts
        level = self.study.concurrency
        if level is None:
            return stages.certification(launch, arm, prompts)
        chosen = prompts.of(stages.CERTIFICATION)
        rounds = max(1, -(-stages.ROUNDS_UNDER_LOAD * level // len(chosen)))
        load = PhaseSpec(
            id=f"load/{launch}/n{level}/run1",
            stage="load",
            launch=launch,
            arm=arm,
            corpus=None,
            concurrency=level,
            prompts=chosen,
            rounds=rounds,
        )
        return (*stages.certification(launch, arm, prompts), load)

    def _tell(self, launch: str) -> None:
        """One line on what the launch showed, beside those before it."""
        try:
            result = judge_states(self.ctx.evidence(), self.study)
            own = next(o for o in result.observations if o.launch == launch)
            self.ctx.progress.note(describe(own, result))
        except Exception as fault:  # only a line of the display: the launches to come are worth more
            self.ctx.progress.note(f"{launch}: observed; the line about it failed: {fault}")


def describe(own: Observation, result: StudyResult) -> str:
    """`plain-3: state B with plain-2; repeats itself 64 of 64; fingerprint 1e7ba3d476ee; ready in 135 s`."""
    repeats = f"{own.repeatability.k} of {own.repeatability.n}"
    state = next((s for s in result.states if s.name == own.state), None)
    if state is None:
        said = f"no state: it repeats itself on {repeats} prompts"
    else:
        others = [x for x in state.launches if x != own.launch]
        company = f"with {numbers.listing(others, 4)}" if others else "the first in it"
        said = f"state {state.name}, {company}; repeats itself {repeats}"
    parts = [said, f"fingerprint {own.fingerprint[:12]}" if own.fingerprint else "no fingerprint"]
    if own.under_load is not None:
        load = own.under_load.agreement
        parts.append(f"{load.k} of {load.n} as alone with {own.under_load.level} in flight")
    if own.boot_s is not None:
        parts.append(f"ready in {numbers.seconds(own.boot_s)}")
    return f"{own.launch}: {'; '.join(parts)}"
