"""A clock that tests move by hand, a scripted requester, and a server that answers with raw bytes."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from auditor.measure.metrics import Load
from auditor.model.completion import Answer, Completion, Prompt, RequestFailure
from auditor.model.phase import Counters, Phase
from auditor.model.record import Event


class ManualClock:
    """Time passes only when a test says so. `run` moves from sleeper to sleeper until the work is done."""

    def __init__(self) -> None:
        self._now = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), future))
        await future

    def advance(self, seconds: float) -> None:
        """Wakes everybody whose time comes within `seconds`."""
        until = self._now + seconds
        while self._sleepers and self._sleepers[0][0] <= until:
            self._wake()
        self._now = until

    def _wake(self) -> None:
        at, _, future = heapq.heappop(self._sleepers)
        if not future.done():
            self._now = max(self._now, at)
            future.set_result(None)

    async def run(self, task: asyncio.Task[Any], *, until: float = 1e6) -> Any:
        """Drives `task` to its end (or the clock to `until`) where everything else waits on this clock."""
        while not task.done() and self._now < until:
            await settle()
            if not task.done() and self._sleepers:
                self._wake()
        return task.result() if task.done() else None


async def settle() -> None:
    """Lets every task that can go on do so."""
    for _ in range(30):
        await asyncio.sleep(0)


def prompt(name: str, ids: tuple[int, ...] = (5, 6, 7), max_tokens: int = 8) -> Prompt:
    return Prompt(id=name, corpus="c", token_ids=ids, text="", max_tokens=max_tokens)


@dataclass
class Journal:
    """A sink that remembers, and fails where told to."""

    answers: list[Answer] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    on_answer: Callable[[Answer], None] = lambda _: None

    def answer(self, answer: Answer) -> None:
        self.on_answer(answer)
        self.answers.append(answer)

    def event(self, event: Event) -> None:
        assert event.phase is not None
        self.phases.append(event.phase)

    def reasons(self) -> list[str]:
        return [a.reason if isinstance(a, RequestFailure) else "ok" for a in self.answers]


@dataclass
class Engine:
    """One scripted server on a ManualClock; `client()` is a client_factory.

    `seconds` a request takes (inf: never answered), `fail` the reason by prompt id, `slots` how many run
    at once, `loads` what /metrics says instead of the truth.
    """

    clock: ManualClock
    seconds: float = 1.0
    fail: dict[str, str] = field(default_factory=dict)
    slots: int = 10**6
    readings: list[Counters | None] = field(default_factory=list)
    loads: Callable[[], Load | None] | None = None
    deadline: float = 600.0
    in_flight: int = 0
    peak: int = 0
    asked: list[str] = field(default_factory=list)
    clients: int = 0
    closed: int = 0
    scrapes: int = 0

    def client(self) -> ScriptedClient:
        self.clients += 1
        return ScriptedClient(self)


class ScriptedClient:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.timeout_s = engine.deadline

    async def complete(
        self, prompt: Prompt, *, phase: str, repeat: int = 0, logprobs: int | None = None, in_flight: int = 1
    ) -> Answer:
        e = self.engine
        started = e.clock.now()
        e.asked.append(prompt.id)
        e.in_flight += 1
        e.peak = max(e.peak, e.in_flight)
        reason = e.fail.get(prompt.id)
        try:
            await e.clock.sleep(min(e.seconds, e.deadline) if reason != "timeout" else e.deadline)
        finally:
            e.in_flight -= 1
        if e.seconds > e.deadline:
            reason = "timeout"
        common = {"phase": phase, "prompt": prompt.id, "repeat": repeat}
        if reason is not None:
            return RequestFailure(
                **common, reason=reason, detail=reason, started_s=started, ended_s=e.clock.now()
            )
        return Completion(
            **common,
            token_ids=(1, 2),
            text="",
            finish_reason="stop",
            logprobs=(-0.5, -0.5) if logprobs is not None else None,
            started_s=started,
            ended_s=e.clock.now(),
        )

    async def counters(self) -> Counters | None:
        return self.engine.readings.pop(0) if self.engine.readings else None

    async def load(self) -> Load | None:
        e = self.engine
        e.scrapes += 1
        if e.loads is not None:
            return e.loads()
        running = min(e.in_flight, e.slots)
        return Load(running, e.in_flight - running, round(e.clock.now() * 1000), None)

    async def close(self) -> None:
        self.engine.closed += 1


def reply(
    ids: list[int], *, model: str = "m-1", sent: list[int] | None = None, **choice: Any
) -> dict[str, Any]:
    """A completion as vLLM writes it."""
    return {
        "id": "cmpl-1",
        "object": "text_completion",
        "model": model,
        "choices": [
            {
                "index": 0,
                "text": "t",
                "logprobs": None,
                "finish_reason": "stop",
                "stop_reason": None,
                "token_ids": ids,
                "prompt_token_ids": sent if sent is not None else [5, 6, 7],
                "prompt_logprobs": None,
                **choice,
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": len(ids), "total_tokens": 3 + len(ids)},
    }


def http(body: bytes | dict[str, Any], status: str = "200 OK", headers: str = "") -> bytes:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(raw)}\r\n{headers}\r\n".encode() + raw


CUT = b"<cut>"
"""At the end of scripted bytes: the connection is closed after them."""


@dataclass
class RawServer:
    """Answers each request with the next bytes of `script`; the last one repeats. None: hangs for good."""

    script: list[bytes | None]
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    connections: int = 0
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().strip().split("\r\n")
                fields = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
                body = await reader.readexactly(int(fields.get("content-length", 0)))
                self.requests.append((first, fields, body))
                answer = self.script[min(len(self.requests), len(self.script)) - 1]
                if answer is None:
                    await reader.read()
                    break
                writer.write(answer.removesuffix(CUT))
                await writer.drain()
                if answer.endswith(CUT):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def raw_server(*script: bytes | None) -> AsyncIterator[RawServer]:
    server = RawServer(list(script))
    listener = await asyncio.start_server(server.handle, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
