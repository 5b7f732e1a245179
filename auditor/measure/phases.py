"""One phase: a list of prompts on one server, exactly N in flight, counters before and after.

The loop is closed: N workers, each with a connection of its own, take the next prompt when their last one
is answered. Beside them one observer, with its own connection, looks whether the server lives, moves, and
runs as many requests as were asked for. What can go wrong is in the record, not in an exception: only a
foreign server on the port, a record that cannot be written or prompts that cannot be read from it, and
cancellation leave `run_phase` by raising.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from auditor.clock import Clock
from auditor.errors import AuditError, PortShared
from auditor.measure.metrics import Load
from auditor.measure.watch import SILENT_S, InFlight, StallWatch, sample_of, summarise
from auditor.model.completion import Answer, Completion, Prompt, RequestFailure
from auditor.model.counters import Restarted, delta
from auditor.model.phase import ConcurrencySample, ConcurrencySummary, Counters, Phase, Stage
from auditor.model.record import Event

PhaseState = Literal["running", "done", "void", "error"]
FOREIGN = "foreign-nonce"
UNANSWERED = frozenset({"timeout", "connection", "stalled", "engine-died"})
"""Failures that are no sign of life."""
LOADED_STAGES: frozenset[Stage] = frozenset({"load", "accuracy"})
SAMPLE_S = 0.08
"""Seconds between samples of a loaded server: 12.5 Hz, so that a late one still leaves 10 Hz."""
LOOK_S = 5.0
"""Seconds between looks at a server that works on one request."""
ALIVE_S = 0.25
GRACE_S = 2.0
"""A process that just died resets its connections before it can be seen to be dead."""


@dataclass(frozen=True, kw_only=True)
class PhaseSpec:
    """What one phase does: `prompts` in their order, `rounds` times. They may stay on disk: each is read when
    it is sent."""

    id: str
    stage: Stage
    launch: str
    arm: str
    prompts: Sequence[Prompt]
    rounds: int = 1
    corpus: str | None = None
    concurrency: int = 1
    pass_no: int = 1
    logprobs: int | None = None

    @property
    def planned(self) -> int:
        """Requests of the phase."""
        return self.rounds * len(self.prompts)

    def items(self) -> Iterator[tuple[Prompt, int]]:
        """(prompt, repeat) of every request, in the order in which they are sent."""
        return ((prompt, repeat) for repeat in range(self.rounds) for prompt in self.prompts)


class Requester(Protocol):
    """What a phase needs of a client; `measure.client.Client` is one."""

    timeout_s: float

    async def complete(
        self, prompt: Prompt, *, phase: str, repeat: int = 0, logprobs: int | None = None, in_flight: int = 1
    ) -> Answer: ...
    async def counters(self) -> Counters | None: ...
    async def load(self) -> Load | None: ...
    async def close(self) -> None: ...


class Sink(Protocol):
    """Where a phase leaves its evidence, at once and in order."""

    def answer(self, answer: Answer) -> None: ...
    def event(self, event: Event) -> None: ...


Progress = Callable[[int, int, int, int], None]
"""(answered, planned, in flight, tokens generated so far), called after each answer."""


def _ignore(*_: object) -> None:
    return None


async def run_phase(
    spec: PhaseSpec,
    client_factory: Callable[[], Requester],
    sink: Sink,
    clock: Clock,
    *,
    done: frozenset[tuple[str, int]] = frozenset(),
    alive: Callable[[], str | None] = lambda: None,
    progress: Progress = _ignore,
    on_sample: Callable[[ConcurrencySample], None] = _ignore,
) -> Phase:
    """Runs `spec`, writes every answer and the phase itself to `sink`, returns the phase as written last.

    `done` holds (prompt id, repeat) answered before an interruption; they are not asked again. Counters
    then cover this run of the phase only, and `reason` says so although the state is `done`. `alive`
    returns why the server is dead, None while it lives; it is called several times a second.

    States: `done`, also when single requests failed (the answers say which); `void` when a counter fell,
    because the server restarted; `error` when the server died or stalled (what was not answered is then
    recorded as failures `engine-died` or `stalled`), or when the phase was cut short by an exception.
    Raises PortShared when a reply carried another server's name, whatever the sink and the prompts raise,
    and CancelledError; each after the phase was written with state `error`.
    """
    run = _Run(spec, client_factory, sink, clock, alive, progress, on_sample)
    return await run.phase(done)


@dataclass(frozen=True)
class _End:
    """Why a phase cannot go on. `answer` is the reason that unanswered requests get."""

    answer: str
    detail: str


class _Run:
    """The moving parts of one phase. All tasks share one event loop; nothing here awaits between reading
    and changing a field.
    """

    def __init__(
        self,
        spec: PhaseSpec,
        client_factory: Callable[[], Requester],
        sink: Sink,
        clock: Clock,
        alive: Callable[[], str | None],
        progress: Progress,
        on_sample: Callable[[ConcurrencySample], None],
    ) -> None:
        self.spec, self.sink, self.clock = spec, sink, clock
        self.client_factory, self.alive = client_factory, alive
        self.report, self.on_sample = progress, on_sample
        self.todo = spec.items()
        self.busy = InFlight(clock)
        self.samples: list[ConcurrencySample] = []
        self.end: _End | None = None
        self.asking: set[asyncio.Task[None]] = set()
        self.answered = 0
        self.last_finish_s = clock.now()
        self.confirmed: asyncio.Task[None] | None = None

    async def phase(self, done: frozenset[tuple[str, int]]) -> Phase:
        spec = self.spec
        started = self.clock.now()
        note: str | None = None
        before: Counters | None = None
        observer = self.client_factory()
        try:
            if done:
                self.todo = ((prompt, n) for prompt, n in spec.items() if (prompt.id, n) not in done)
                self.answered = sum((prompt.id, n) in done for prompt, n in spec.items())
                note = _resume_note(self.answered, spec.planned)
            left = spec.planned - self.answered
            before = await observer.counters() if left else None
            self._write(started, "running", note, before)
            await self._work(observer, min(spec.concurrency, left))
            after = await observer.counters() if before is not None and self.end is None else None
        except BaseException as error:
            # the first error is the one to tell; a record that cannot be written fails again here
            with contextlib.suppress(AuditError, OSError):
                self._write(started, "error", self._cut_short(error), before, ended=self.clock.now())
            raise
        finally:
            await observer.close()
        phase = self._finish(started, note, before, after)
        if self.end is not None and self.end.answer == FOREIGN:
            raise PortShared(
                self.end.detail,
                expected="one server a port",
                todo="stop the other server, or choose other ports, and run the audit again",
            )
        return phase

    async def _work(self, observer: Requester, crew: int) -> None:
        """`crew` workers and the observer until nothing is left to do; leaves no task behind."""
        if not crew:
            return
        limit_s = min(SILENT_S, observer.timeout_s)
        workers = [asyncio.create_task(self._worker()) for _ in range(crew)]
        watchers = [
            asyncio.create_task(self._observe(observer, StallWatch(self.clock.now(), limit_s))),
            asyncio.create_task(self._guard()),
        ]
        tasks = [*workers, *watchers]
        try:
            pending: set[asyncio.Task[None]] = set(workers)
            while pending:
                await asyncio.wait({*pending, *watchers}, return_when=asyncio.FIRST_COMPLETED)
                for task in [t for t in tasks if t.done() and not t.cancelled()]:
                    task.result()
                watchers = [t for t in watchers if not t.done()]
                pending = {t for t in pending if not t.done()}
        finally:
            tasks += [self.confirmed] if self.confirmed is not None else []
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            _retrieve(tasks)
        self._record_rest()

    async def _worker(self) -> None:
        """Sends the next prompt as soon as the last one is answered, over one connection."""
        client = self.client_factory()
        me = asyncio.current_task()
        assert me is not None
        try:
            while self.end is None and (item := next(self.todo, None)) is not None:
                prompt, repeat = item
                started = self.busy.enter()
                self.asking.add(me)
                try:
                    answer = await client.complete(
                        prompt,
                        phase=self.spec.id,
                        repeat=repeat,
                        logprobs=self.spec.logprobs,
                        in_flight=self.spec.concurrency,
                    )
                except asyncio.CancelledError:
                    if self.end is None or self.end.answer == FOREIGN:
                        raise  # nothing is known of this request: it stays unanswered
                    answer = self._failure(prompt, repeat, started)
                finally:
                    self.asking.discard(me)
                    self.busy.leave()
                await self._take(answer, prompt, repeat)
        finally:
            await client.close()

    async def _take(self, answer: Answer, prompt: Prompt, repeat: int) -> None:
        """Records an answer, and ends the phase where it shows that nothing more can come."""
        if isinstance(answer, RequestFailure) and self.end is None:
            started = answer.started_s
            if answer.reason == "timeout" and self.last_finish_s <= started:
                self._stop(_End("stalled", f"{answer.detail}, and nothing else was answered meanwhile"))
                answer = self._failure(prompt, repeat, started)
            elif answer.reason == FOREIGN:
                self._stop(_End(FOREIGN, answer.detail))
            elif answer.reason == "connection" or answer.reason.startswith("http-5"):
                await self._confirm()
                if self.end is not None:
                    answer = self._failure(prompt, repeat, started)
        if isinstance(answer, Completion) or answer.reason not in UNANSWERED:
            self.last_finish_s = self.clock.now()
        self._record(answer)

    async def _confirm(self) -> None:
        """Gives a dying process the time to be seen dead: once a phase, for whoever lost a request."""
        if self.confirmed is None:
            self.confirmed = asyncio.create_task(self._see_death())
        await asyncio.shield(self.confirmed)

    async def _see_death(self) -> None:
        until = self.clock.now() + GRACE_S
        while self._check_alive() and self.clock.now() < until:
            await self.clock.sleep(ALIVE_S / 2)

    def _check_alive(self) -> bool:
        if self.end is None:
            death = self.alive()
            if death is not None:
                self._stop(_End("engine-died", f"the engine died: {death}"))
        return self.end is None

    async def _guard(self) -> None:
        while self._check_alive():
            await self.clock.sleep(ALIVE_S)

    async def _observe(self, client: Requester, watch: StallWatch) -> None:
        """Looks at the server at a fixed rate; keeps samples of loaded stages."""
        loaded = self.spec.stage in LOADED_STAGES
        period = SAMPLE_S if loaded else LOOK_S
        next_s = self.clock.now() + (0.0 if loaded else period)
        while self.end is None:
            await self.clock.sleep(max(0.0, next_s - self.clock.now()))
            # a late look is made up for, so that the mean rate holds, but never more than a second's worth
            next_s = max(next_s + period, self.clock.now() - 1.0)
            in_flight = self.busy.count
            load = await client.load()
            now = self.clock.now()
            watch.finished(self.last_finish_s)
            sample = sample_of(load, now, min(in_flight, self.busy.count)) if loaded else None
            if sample is not None:
                self.samples.append(sample)
                self.on_sample(sample)
            stalled = watch.look(now, load) if self.busy.count else None
            if stalled is not None:
                self._stop(_End("stalled", f"the engine stalled: {stalled}"))

    def _stop(self, end: _End) -> None:
        """Ends the phase: requests in flight are given up and become failures with its reason."""
        self.end = end
        for worker in self.asking:
            worker.cancel()

    def _failure(self, prompt: Prompt, repeat: int, started_s: float) -> RequestFailure:
        assert self.end is not None
        return RequestFailure(
            phase=self.spec.id,
            prompt=prompt.id,
            repeat=repeat,
            reason=self.end.answer,
            detail=self.end.detail,
            started_s=started_s,
            ended_s=self.clock.now(),
        )

    def _record_rest(self) -> None:
        """What was never sent, when the server died or stalled. After a foreign reply nothing is recorded:
        the audit is aborted and those requests say nothing about this server.
        """
        if self.end is None or self.end.answer == FOREIGN:
            return
        for prompt, repeat in self.todo:
            self._record(self._failure(prompt, repeat, self.clock.now()))

    def _record(self, answer: Answer) -> None:
        self.sink.answer(answer)
        self.answered += 1
        if isinstance(answer, Completion):
            self.busy.completed(answer.ended_s - answer.started_s, len(answer.token_ids))
        self.report(self.answered, self.spec.planned, self.busy.count, self.busy.tokens)

    def _concurrency(self) -> ConcurrencySummary:
        return summarise(self.samples, self.spec.concurrency, self.busy.sent_s, self.busy.admission_s())

    def _cut_short(self, error: BaseException) -> str:
        if isinstance(error, asyncio.CancelledError):
            return "interrupted before all requests were answered"
        return f"cut short: {error}" if self.end is None else f"{self.end.detail}; then cut short: {error}"

    def _finish(
        self,
        started: float,
        note: str | None,
        before: Counters | None,
        after: Counters | None,
    ) -> Phase:
        state: PhaseState = "done"
        change = delta(before, after)
        if self.end is not None:
            state, note = "error", self.end.detail
        elif isinstance(change, Restarted):
            state, note = "void", f"the server restarted during the phase: {', '.join(change.fallen)}"
        return self._write(started, state, note, before, after, self.clock.now())

    def _write(
        self,
        started: float,
        state: PhaseState,
        reason: str | None,
        before: Counters | None,
        after: Counters | None = None,
        ended: float | None = None,
    ) -> Phase:
        spec = self.spec
        over = ended is not None
        phase = Phase(
            id=spec.id,
            stage=spec.stage,
            launch=spec.launch,
            arm=spec.arm,
            corpus=spec.corpus,
            concurrency=spec.concurrency,
            pass_no=spec.pass_no,
            planned=spec.planned,
            state=state,
            reason=reason,
            started_s=started,
            ended_s=ended,
            generating_s=self.busy.busy_s if over else None,
            before=before,
            after=after,
            concurrency_summary=self._concurrency() if over and spec.stage in LOADED_STAGES else None,
        )
        self.sink.event(Event(phase=phase))
        return phase


def _resume_note(answered: int, planned: int) -> str | None:
    if not answered:
        return None
    if answered == planned:
        return f"resumed: all {planned} answers were there already, so that no counters belong to them"
    return f"resumed: {answered} of {planned} answers were there already; counters cover the others only"


def _retrieve(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Looks at every exception, so that only the first one, raised already, is reported."""
    for task in tasks:
        if not task.cancelled():
            task.exception()
