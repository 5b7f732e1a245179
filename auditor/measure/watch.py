"""What repeated looks at a server tell: whether it still moves, and how many requests it really ran."""

from __future__ import annotations

import bisect
import statistics
from array import array
from collections.abc import Sequence

from msgspec.structs import replace

from auditor.clock import Clock
from auditor.measure.metrics import Load
from auditor.model.completion import Completion
from auditor.model.phase import ConcurrencySample, ConcurrencySummary

STUCK_QUEUE_S = 30.0
"""Running 0 with requests waiting for so long, and nothing finished: the scheduler stopped."""
SILENT_S = 300.0
"""No token, no finished request, or no answer at all for so long."""

LEAST_RUNNING = 0.75
"""Share of a level that must run while the rest of its requests is on the way to or from the engine."""
MIN_ADMISSION_S = 0.25


class StallWatch:
    """Decides that a server stands still, long before the deadline of a request with a long cap.

    Three signs, each only while nothing finishes: requests wait and none runs; requests run and neither
    token counter moves; /metrics does not answer either. `limit_s` (seconds) bounds the latter two; it
    also shortens the first. A server without these families shows none of them: its requests end by
    their deadlines.
    """

    def __init__(self, started_s: float, limit_s: float) -> None:
        self._limit_s = limit_s
        self._queue_limit_s = min(STUCK_QUEUE_S, limit_s)
        self._moved_s = self._answered_s = self._served_s = started_s
        self._tokens: tuple[int | None, int | None] | None = None

    def finished(self, at_s: float) -> None:
        """A request was answered at that time, in whatever way."""
        self._moved_s = max(self._moved_s, at_s)
        self._answered_s = max(self._answered_s, at_s)
        self._served_s = max(self._served_s, at_s)

    def look(self, now_s: float, load: Load | None) -> str | None:
        """Takes one reading of a server that has requests in flight. Returns why it counts as stalled,
        else None. `load` None: /metrics did not answer.
        """
        if load is None:
            silent = now_s - self._answered_s
            if silent < self._limit_s:
                return None
            return f"neither a request nor /metrics was answered for {silent:.0f} s"
        self._answered_s = now_s
        tokens = (load.generation_tokens, load.prompt_tokens)
        if tokens == (None, None) or tokens != self._tokens:
            self._moved_s = now_s
        self._tokens = tokens
        if load.running != 0 or not load.waiting:
            self._served_s = now_s
        if now_s - self._served_s >= self._queue_limit_s:
            return f"{load.waiting} requests wait and none runs for {now_s - self._served_s:.0f} s"
        if now_s - self._moved_s >= self._limit_s:
            return (
                f"no token for {now_s - self._moved_s:.0f} s "
                f"(running {_count(load.running)}, waiting {_count(load.waiting)})"
            )
        return None


class InFlight:
    """The client's own side of a phase: requests in flight, when each was sent, how long they took."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_s = 0.0
        self._request_s = 0.0
        self._completions = 0
        self.count = 0
        self.tokens = 0
        self.busy_s = 0.0
        """Time with at least one request in flight."""
        self.sent_s: array[float] = array("d")

    def enter(self) -> float:
        """A request is sent. Returns when."""
        now = self._clock.now()
        if self.count == 0:
            self._since_s = now
        self.count += 1
        self.sent_s.append(now)
        return now

    def leave(self) -> None:
        self.count -= 1
        if self.count == 0:
            self.busy_s += self._clock.now() - self._since_s

    def completed(self, seconds: float, tokens: int) -> None:
        self._request_s += seconds
        self._completions += 1
        self.tokens += tokens

    def admission_s(self) -> float | None:
        """How long a request that was sent may be on its way before the server counts it as running.

        Between two requests of a closed loop a slot is empty until the API process has read the next
        request and the engine has come to its next step; with N slots and L tokens a request, some slot is
        in that gap for about 1.5·N/L of the time. Allowed are three token times and at least 0.25 s (the
        API process shares its CPU), but never more than a tenth of a request's mean life. None without
        completions.
        """
        if not self._completions:
            return None
        token_s = self._request_s / max(self.tokens, 1)
        return min(self._request_s / self._completions / 10, max(MIN_ADMISSION_S, 3 * token_s))


def sample_of(load: Load | None, at_s: float, in_flight: int) -> ConcurrencySample | None:
    """One reading as it is kept; None where the server does not say what runs and waits."""
    if load is None or load.running is None or load.waiting is None:
        return None
    return ConcurrencySample(
        at_s=at_s, running=load.running, waiting=load.waiting, in_flight=in_flight, tokens=load.tokens
    )


def summarise_record(
    samples: Sequence[ConcurrencySample], completions: Sequence[Completion], asked: int, clock: Clock
) -> ConcurrencySummary:
    """`summarise` from what was recorded, for a phase that several processes worked on."""
    past = InFlight(clock)
    for completion in completions:
        past.completed(completion.ended_s - completion.started_s, len(completion.token_ids))
    return summarise(samples, asked, sorted(c.started_s for c in completions), past.admission_s())


def summarise(
    samples: Sequence[ConcurrencySample],
    asked: int,
    sent_s: Sequence[float] = (),
    admission_s: float | None = None,
) -> ConcurrencySummary:
    """The steady phase: samples during which the client itself had exactly `asked` requests in flight, from
    the first one at which the level was reached. Ramp and tail are left out; where the level was never
    reached, all count; without a steady sample nothing is claimed.

    A sample holds the level when the running requests and those on their way to the engine (sent, in
    ascending `sent_s`, within the last `admission_s`) reach it. Where nothing waits, replies on their way
    back count too: then three quarters of the level must run, for the client has all of it in flight.
    Requests that wait were admitted and found no place, so that a server with fewer slots never holds the
    level; nor does a path that lets fewer through, because the level itself must have been seen once.
    """
    steady = [sample for sample in _of_the_step(samples) if sample.in_flight == asked]
    reached = next((i for i, sample in enumerate(steady) if sample.running >= asked), 0)
    steady = steady[reached:]
    running = [sample.running for sample in steady]
    span = steady[-1].at_s - steady[0].at_s if len(steady) > 1 else 0.0
    seen = max(running, default=0) >= asked
    held = [
        (seen and not sample.waiting and sample.running >= LEAST_RUNNING * asked)
        or sample.running + max(0, _sent_within(sent_s, sample.at_s, admission_s or 0.0) - sample.waiting)
        >= asked
        for sample in steady
    ]
    return ConcurrencySummary(
        samples=len(steady),
        rate_hz=(len(steady) - 1) / span if span > 0 else None,
        mean_running=statistics.fmean(running) if running else None,
        peak_running=max(running, default=None),
        max_waiting=max((sample.waiting for sample in steady), default=None),
        held_fraction=statistics.fmean(held) if held else None,
        achieved=statistics.median_low(running) if running else None,
        full_fraction=statistics.fmean(r >= asked for r in running) if running else None,
        admission_s=admission_s,
    )


def _of_the_step(samples: Sequence[ConcurrencySample]) -> list[ConcurrencySample]:
    """Each sample with what ran in the step that was in progress when it was taken.

    An engine publishes its gauges when a step ends, without the requests that ended in it, so that a reading
    lags by one step: while several long prompts are prefilled, seconds pass in which they show nowhere. All
    that a reading shows runs on in the next step, and all that the following reading shows ran in it; the
    larger of the two is therefore a lower bound. Readings between which no token was counted are one.
    """
    found: list[ConcurrencySample] = []
    following: ConcurrencySample | None = None
    for i in range(len(samples) - 1, -1, -1):
        mine, after = samples[i], samples[i + 1] if i + 1 < len(samples) else None
        if after is not None and (after.running, after.waiting, after.tokens) != (
            mine.running,
            mine.waiting,
            mine.tokens,
        ):
            following = after
        if mine.tokens is not None and following is not None and following.running > mine.running:
            mine = replace(mine, running=following.running, waiting=following.waiting)
        found.append(mine)
    return found[::-1]


def _sent_within(sent_s: Sequence[float], now_s: float, window_s: float) -> int:
    return bisect.bisect_right(sent_s, now_s) - bisect.bisect_right(sent_s, now_s - window_s)


def _count(value: int | None) -> str:
    return "unknown" if value is None else str(value)
