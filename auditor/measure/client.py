"""One connection to one server: completions as data, scores, fingerprints, counters.

A client holds exactly one connection and one worker uses it, so N workers are N requests in flight. What a
general HTTP client adds has to be off anyway: proxies and credentials of the environment, redirects,
cookies, decompression, a pool. Nothing is retried: a retried request is a second request in flight.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import Awaitable, Sequence
from types import TracebackType
from typing import TypeVar
from urllib.parse import urlsplit

from auditor.clock import Clock
from auditor.errors import InvalidPlan
from auditor.measure.connection import Broken, Connection, HttpReply, TooLong, connect, sent_host
from auditor.measure.logprobs import (
    chosen_logprobs,
    fingerprint_of,
    fingerprint_prompt,
    replaced_tokens,
    top_logprobs,
)
from auditor.measure.metrics import Load, parse_counters, parse_load
from auditor.measure.wire import Fault, Reply, parse_reply, request_body
from auditor.model.completion import Answer, Completion, ForcedPath, Prompt, RequestFailure, Score
from auditor.model.launch import Fingerprint, FingerprintPrompt
from auditor.model.phase import Counters

MAX_REPLY_BYTES = 64 * 2**20
BASE_TOKENS = 4096
"""Tokens that the base deadline is meant for."""
BASE_IN_FLIGHT = 8
"""Requests in flight that the base deadline is meant for."""
PATH_LOGPROBS = 5
"""Alternatives asked for along a forced path: enough to see which of equal ones has the lowest id."""
COUNTERS_DEADLINE_S = 30.0
LOAD_DEADLINE_S = 5.0

T = TypeVar("T")


def deadline_s(base_s: float, max_tokens: int, in_flight: int = 1) -> float:
    """Seconds a request may take: base · max(1, max_tokens/4096) · max(1, in_flight/8).

    The base serves 4,096 tokens; a longer cap gets proportionally more, and so does a request that shares
    the server, because a saturated server divides its tokens a second among them.
    """
    return base_s * max(1.0, max_tokens / BASE_TOKENS) * max(1.0, in_flight / BASE_IN_FLIGHT)


class Client:
    """Requests to one server, one at a time. Never raises for what a server does: a fault is data.

    `base_url` is the server's root (a trailing `/v1` is dropped), `model` the name that every reply must
    carry, `timeout_s` the base of the deadlines, `seed` the seed stated in every request. Times in
    answers are those of `clock`. Use from one task at a time; close it (or use it as a context manager).
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        clock: Clock,
        *,
        api_key: str | None = None,
        timeout_s: float = 600.0,
        seed: int = 0,
    ) -> None:
        try:
            url = urlsplit(base_url.rstrip("/").removesuffix("/v1"))
            port = url.port
        except ValueError:
            url, port = urlsplit(""), None
        if url.scheme not in ("http", "https") or not url.hostname:
            raise InvalidPlan(
                f"the server's address is {base_url!r}", expected="http://HOST:PORT or https://HOST:PORT"
            )
        self._tls = url.scheme == "https"
        self._host, self._port = url.hostname, port or (443 if self._tls else 80)
        self._origin = f"{url.scheme}://{url.netloc.rpartition('@')[2]}"
        self._prefix = url.path.rstrip("/").encode()
        self._model = model
        self._clock = clock
        self._seed = seed
        self.timeout_s = timeout_s
        self._headers = [
            (b"Host", sent_host(self._host, port)),
            (b"Accept", b"*/*"),
            (b"Accept-Encoding", b"identity"),
            (b"User-Agent", b"equivalence-auditor"),
        ]
        if api_key is not None:
            if not (api_key.isascii() and api_key.isprintable()):
                # said without the key: the HTTP library would quote it in its own error
                raise InvalidPlan("the API key holds characters that no HTTP header can carry")
            self._headers.append((b"Authorization", b"Bearer " + api_key.encode()))
        self._connection: Connection | None = None

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def complete(
        self,
        prompt: Prompt,
        *,
        phase: str,
        repeat: int = 0,
        logprobs: int | None = None,
        in_flight: int = 1,
    ) -> Answer:
        """One greedy completion. `in_flight` is how many requests share the server; it only lengthens the
        deadline. Failures: timeout, connection, http-<code>, bad-reply, foreign-nonce, prompt-mismatch.
        """
        body = request_body(self._model, prompt.token_ids, prompt.max_tokens, self._seed, logprobs=logprobs)
        started = self._clock.now()
        limit = deadline_s(self.timeout_s, prompt.max_tokens, in_flight)
        reply = await self._ask(body, prompt.token_ids, limit)
        ended = self._clock.now()
        if isinstance(reply, Fault):
            return RequestFailure(
                phase=phase,
                prompt=prompt.id,
                repeat=repeat,
                reason=reply.reason,
                detail=reply.detail,
                started_s=started,
                ended_s=ended,
            )
        choice, usage = reply.choices[0], reply.usage
        details = usage.prompt_tokens_details if usage else None
        return Completion(
            phase=phase,
            prompt=prompt.id,
            repeat=repeat,
            token_ids=tuple(choice.token_ids or ()),
            text=choice.text or "",
            finish_reason=choice.finish_reason,
            stop_reason=choice.stop_reason,
            usage_prompt=usage.prompt_tokens if usage else None,
            usage_completion=usage.completion_tokens if usage else None,
            usage_cached=details.cached_tokens if details else None,
            prompt_ids_match=None if choice.prompt_token_ids is None else True,
            logprobs=chosen_logprobs(reply) if logprobs is not None else None,
            started_s=started,
            ended_s=ended,
        )

    async def score(
        self,
        prompt: Prompt,
        prefix: Sequence[int],
        *,
        launch: str,
        pair_arm: str,
        top: int = 20,
        expected: int | None = None,
        decode_logprob: float | None = None,
    ) -> Score:
        """What the server itself says after `prompt` and the generated `prefix`, with its `top` raw
        logprobs. `expected` and `decode_logprob` are passed through (calibration).
        """
        ids = (*prompt.token_ids, *prefix)
        body = request_body(self._model, ids, 1, self._seed, logprobs=top)
        reply = await self._ask(body, ids, deadline_s(self.timeout_s, 1))
        chosen: int | None = None
        error: str | None = None
        if isinstance(reply, Fault):
            error = f"{reply.reason}: {reply.detail}"
        elif reply.choices[0].token_ids:
            chosen = reply.choices[0].token_ids[0]
        else:
            error = "bad-reply: no token was generated"
        return Score(
            launch=launch,
            pair_arm=pair_arm,
            prompt=prompt.id,
            position=len(prefix) + 1,
            chosen=chosen,
            top=() if isinstance(reply, Fault) else top_logprobs(reply),
            decode_logprob=decode_logprob,
            expected=expected,
            error=error,
        )

    async def force(
        self, prompt: Prompt, path: Sequence[int], *, launch: str, width: int, sampled: bool
    ) -> ForcedPath:
        """Where the server itself would leave `path`, the completion that another server gave to `prompt`.

        Every token of the path is sent but the last, which the server generates itself: a path that fills
        the context still fits. `path` is not empty.
        """
        ids = (*prompt.token_ids, *path[:-1])
        body = request_body(
            self._model, ids, 1, self._seed, logprobs=PATH_LOGPROBS, prompt_logprobs=PATH_LOGPROBS
        )
        reply = await self._ask(body, ids, deadline_s(self.timeout_s, len(ids)))
        found = reply if isinstance(reply, Fault) else replaced_tokens(reply, len(prompt.token_ids), path)
        if isinstance(found, str):
            found = Fault("bad-reply", found)
        failed = isinstance(found, Fault)
        return ForcedPath(
            launch=launch,
            prompt=prompt.id,
            width=width,
            sampled=sampled,
            tokens=0 if failed else len(path),
            replaced=() if isinstance(found, Fault) else found,
            error=f"{found.reason}: {found.detail}" if isinstance(found, Fault) else None,
        )

    async def fingerprint(self, prompts: Sequence[Prompt], launch: str) -> Fingerprint | RequestFailure:
        """Bits of the launch state on fixed prompts: `max_tokens=1, prompt_logprobs=5, logprobs=5`. The
        first request that brings no fingerprint ends it: a part of the prompts compares with nothing.
        """
        found: list[FingerprintPrompt] = []
        for prompt in prompts:
            started = self._clock.now()
            body = request_body(self._model, prompt.token_ids, 1, self._seed, logprobs=5, prompt_logprobs=5)
            reply = await self._ask(body, prompt.token_ids, deadline_s(self.timeout_s, 1))
            bits = reply if isinstance(reply, Fault) else fingerprint_prompt(prompt, reply)
            if isinstance(bits, str):
                bits = Fault("bad-reply", f"{bits}; expected them for `prompt_logprobs=5, logprobs=5`")
            if isinstance(bits, Fault):
                return RequestFailure(
                    phase=f"fingerprint/{launch}",
                    prompt=prompt.id,
                    reason=bits.reason,
                    detail=bits.detail,
                    started_s=started,
                    ended_s=self._clock.now(),
                )
            found.append(bits)
        return fingerprint_of(launch, found)

    async def counters(self) -> Counters | None:
        """Totals of /metrics; None when the server does not answer, refuses, or cannot be read."""
        reply = await self._send(b"GET", b"/metrics", b"", COUNTERS_DEADLINE_S)
        if isinstance(reply, Fault) or reply.status != 200:
            return None
        return parse_counters(reply.body.decode("utf-8", "replace"))

    async def load(self) -> Load | None:
        """What runs and waits right now; None when the server does not answer within 5 s. A server that
        answers without these families gives a Load of None only.
        """
        reply = await self._send(b"GET", b"/metrics", b"", LOAD_DEADLINE_S)
        if isinstance(reply, Fault):
            return None
        found = parse_load(reply.body.decode("utf-8", "replace")) if reply.status == 200 else None
        return found or Load(None, None, None, None)

    async def running(self) -> tuple[int, int] | None:
        """(running, waiting) requests; None when the server does not say."""
        load = await self.load()
        if load is None or load.running is None or load.waiting is None:
            return None
        return load.running, load.waiting

    async def _ask(self, body: bytes, prompt_ids: Sequence[int], limit_s: float) -> Reply | Fault:
        reply = await self._send(b"POST", b"/v1/completions", body, limit_s)
        if isinstance(reply, Fault):
            return reply
        return parse_reply(reply.status, reply.body, model=self._model, prompt_ids=prompt_ids)

    async def _send(self, method: bytes, target: bytes, body: bytes, limit_s: float) -> HttpReply | Fault:
        until = self._clock.now() + limit_s
        try:
            connection = self._connection
            if connection is None or not connection.usable():
                connection = await within(self._clock, limit_s, self._open())
            reply = connection and await self._exchange(connection, method, target, body, until)
        except TooLong:
            return Fault("bad-reply", f"the reply is longer than {MAX_REPLY_BYTES // 2**20} MiB")
        except (Broken, OSError) as error:
            words = str(error) or type(error).__name__
            return Fault("connection", f"{words} ({self._origin})")
        return reply or Fault("timeout", f"no reply within {limit_s:g} s")

    async def _exchange(
        self, connection: Connection, method: bytes, target: bytes, body: bytes, until_s: float
    ) -> HttpReply | None:
        """The reply; None when the clock reaches `until_s` first. Nothing is awaited before the request is
        sent, so that a worker that was answered asks again in the same step."""
        headers = list(self._headers)
        if body:
            headers.append((b"Content-Type", b"application/json"))
            headers.append((b"Content-Length", str(len(body)).encode()))
        waiter = connection.send(method, self._prefix + target, headers, body, MAX_REPLY_BYTES)
        timer = asyncio.ensure_future(self._clock.sleep(until_s - self._clock.now()))
        timer.add_done_callback(functools.partial(_expire, waiter))
        reply: HttpReply | None = None
        try:
            reply = await waiter
        finally:
            timer.cancel()
            if reply is None:
                connection.abort()
        return reply

    async def _open(self) -> Connection:
        await self.close()
        self._connection = await connect(self._host, self._port, _tls() if self._tls else None)
        return self._connection


def _expire(waiter: asyncio.Future[HttpReply | None], _: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def within(clock: Clock, seconds: float, work: Awaitable[T]) -> T | None:
    """The result of `work`, or None when `seconds` of `clock` pass first; `work` is then cancelled."""
    task = asyncio.ensure_future(work)
    timer = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((task, timer), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        timer.cancel()
        if not task.done():
            task.cancel()
            # wait, not await: an outer cancellation has to come through, the task's own end must not
            await asyncio.wait((task,))
            if not task.cancelled():
                task.exception()


@functools.cache
def _tls() -> ssl.SSLContext:
    """One context for all clients: reading the certificate store takes longer than a request."""
    return ssl.create_default_context()
