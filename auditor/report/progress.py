"""The live display of a run, on standard error.

On a terminal: one bar a step with counts, rate and time left. Elsewhere (CI, a pipe): one line when a step
starts and ends, and a heartbeat every 30 s in between, so that a long step never looks hung. `none` prints
nothing but notes. Several steps may be open at once (two servers generating side by side).
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TextIO

from auditor.report.numbers import seconds
from auditor.report.visible import plain

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

Mode = Literal["auto", "bars", "plain", "none"]
HEARTBEAT_S = 30.0


class Step:
    """One piece of work with a known or unknown number of items. Made by `Progress.start`."""

    def __init__(self, owner: Progress, label: str, total: int | None, started: float) -> None:
        self.label, self.total, self.started = label, total, started
        self.done = self.in_flight = self.tokens = 0
        self.finished = False
        self._owner = owner
        self.task: TaskID | None = None

    def update(self, done: int, in_flight: int = 0, tokens: int = 0) -> None:
        """`done` items so far, `in_flight` requests outstanding, `tokens` generated so far in this step."""
        self.done, self.in_flight, self.tokens = done, in_flight, tokens
        self._owner._changed(self)

    def finish(self, text: str = "") -> None:
        """The step is over; `text` says how, where there is something to say. A second call does nothing."""
        if not self.finished:
            self.finished = True
            self._owner._finished(self, text)

    def line(self, now: float) -> str:
        """`batch1/reference-1/gsm8k: 412/1319, 32 in flight, 142 tokens/s, about 5 min 10 s left`."""
        elapsed = now - self.started
        parts = [f"{self.done}/{self.total}" if self.total is not None else seconds(elapsed)]
        if self.in_flight:
            parts.append(f"{self.in_flight} in flight")
        if self.tokens and elapsed > 0:
            parts.append(f"{self.tokens / elapsed:.0f} tokens/s")
        if self.total and 0 < self.done < self.total and elapsed > 0:
            parts.append(f"about {seconds(elapsed / self.done * (self.total - self.done))} left")
        return f"{self.label}: {', '.join(parts)}"


class Progress:
    """Use as a context manager. Safe to call from one thread; the heartbeat thread only reads."""

    def __init__(
        self,
        stream: TextIO | None = None,
        mode: Mode = "auto",
        *,
        now: Callable[[], float] = time.monotonic,
        heartbeat_s: float | None = HEARTBEAT_S,
    ) -> None:
        """`heartbeat_s` None starts no heartbeat thread: call `beat` instead (tests)."""
        self._stream = stream if stream is not None else sys.stderr
        terminal = hasattr(self._stream, "isatty") and self._stream.isatty()
        self.mode: Mode = ("bars" if terminal else "plain") if mode == "auto" else mode
        self._now = now
        self._steps: list[Step] = []
        self._bars: Bars | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if self.mode == "plain" and heartbeat_s is not None:
            self._thread = threading.Thread(
                target=self._heartbeats, args=(heartbeat_s,), name="heartbeat", daemon=True
            )
            self._thread.start()
        elif self.mode == "bars":
            self._bars = _bars(self._stream)
            self._bars.start()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self, label: str, total: int | None = None) -> Step:
        """Begin a step; `total` None where the amount is unknown (a server starting)."""
        step = Step(self, plain(label), total, self._now())
        self._steps.append(step)
        if self._bars is not None:
            step.task = self._bars.add_task(_markup_free(step.label), total=total, extra="")
        elif self.mode == "plain":
            self._write(f"{step.label}: {'started' if total is None else f'started, {total} requests'}")
        return step

    def update(self, done: int, in_flight: int = 0, tokens: int = 0) -> None:
        """Update the step that was started last."""
        if self._steps:
            self._steps[-1].update(done, in_flight, tokens)

    def note(self, text: str) -> None:
        """One line worth keeping, shown in every mode."""
        line = plain(text)
        if self._bars is not None:
            self._bars.console.print(line, markup=False, highlight=False)
        else:
            self._write(line)

    def finish(self, text: str = "") -> None:
        """Finish the step that was started last."""
        if self._steps:
            self._steps[-1].finish(text)

    def close(self) -> None:
        """Stop the display; open steps are left as they are. May be called twice."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
            self.mode = "none"

    def beat(self) -> None:
        """Print one heartbeat line for each open step."""
        for step in tuple(self._steps):
            self._write(step.line(self._now()))

    def _changed(self, step: Step) -> None:
        if self._bars is not None and step.task is not None:
            elapsed = self._now() - step.started
            extra = [f"{step.in_flight} in flight"] if step.in_flight else []
            if step.tokens and elapsed > 0:
                extra.append(f"{step.tokens / elapsed:.0f} tokens/s")
            self._bars.update(step.task, completed=step.done, extra=", ".join(extra))

    def _finished(self, step: Step, text: str) -> None:
        self._steps.remove(step)
        took = seconds(self._now() - step.started)
        count = "" if step.total is None else f"{step.done}/{step.total} "
        line = f"{step.label}: {plain(text) + ', ' if text else ''}{count}in {took}"
        if self._bars is not None and step.task is not None:
            self._bars.remove_task(step.task)
            self._bars.console.print(line, markup=False, highlight=False)
        elif self.mode == "plain":
            self._write(line)

    def _heartbeats(self, every: float) -> None:
        while not self._stop.wait(every):
            self.beat()

    def _write(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()


def _markup_free(label: str) -> str:
    from rich.markup import escape

    return escape(label)


def _bars(stream: TextIO) -> Bars:
    """Bars with counts, elapsed and remaining time. rich is imported only when a terminal is there."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[extra]}"),
        console=Console(file=stream, stderr=True, soft_wrap=True),
        transient=True,
    )
