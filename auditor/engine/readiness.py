"""Waiting for a server: as long as its log advances, never longer than it lives, until it has generated."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx

from auditor.clock import Clock
from auditor.engine.process import EngineProcess
from auditor.errors import EngineError, PortShared

_PROBE_EVERY_S = 0.1
_PROBE_TIMEOUT_S = 5.0
_CANARY_TOKENS = 16
_TAIL_BYTES = 1 << 20


def http_client(timeout_s: float = _PROBE_TIMEOUT_S, api_key: str | None = None) -> httpx.AsyncClient:
    """A client that obeys no proxy variables, netrc or redirects."""
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    return httpx.AsyncClient(trust_env=False, timeout=timeout_s, headers=headers)


def read_log(log: Path, limit: int = _TAIL_BYTES) -> list[str]:
    """Lines at the end of a log, at most `limit` bytes of it; empty when there is none."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - limit))
            return file.read().decode(errors="replace").splitlines()
    except OSError:
        return []


class Deadline:
    """Two limits in one: `total_s` from the start, and `silent_s` since the log last grew."""

    def __init__(self, clock: Clock, log: Path, total_s: float, silent_s: float) -> None:
        self._clock, self._log = clock, log
        self._total_s, self._silent_s = total_s, silent_s
        self._started = self._moved = clock.now()
        self._size = self._log_size()

    def _log_size(self) -> int:
        try:
            return self._log.stat().st_size
        except OSError:
            return 0

    def waited(self) -> float:
        return self._clock.now() - self._started

    def check(self, what: str) -> None:
        """Raises EngineError when either limit has passed."""
        now, size = self._clock.now(), self._log_size()
        if size != self._size:
            self._size, self._moved = size, now
        silent = now - self._moved
        if silent >= self._silent_s:
            raise EngineError(
                f"{what} wrote nothing to its log for {silent:.0f} s and does not answer /health",
                expected=f"a new log line at least every {self._silent_s:g} s while it starts",
                todo="read the log; raise --silent-timeout if this engine is quiet for longer",
            )
        if now - self._started >= self._total_s:
            raise EngineError(
                f"{what} did not answer /health within {self._total_s:g} s, though its log still advances",
                expected="a server that is ready by then",
                todo="read the log; raise --start-timeout if this model needs longer",
            )


async def wait_healthy(
    process: EngineProcess,
    base_url: str,
    deadline: Deadline,
    clock: Clock,
    *,
    what: str,
    died: Callable[[], EngineError],
    progress: Callable[[str], None],
) -> None:
    """Returns once /health answers 200. The process is looked at before every probe, so that somebody
    else's server on the port cannot stand in for ours. Raises EngineError."""
    told = 0.0
    async with http_client() as http:
        while True:
            if process.poll() is not None:
                raise died()
            deadline.check(what)
            try:
                if (await http.get(f"{base_url}/health")).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            if deadline.waited() - told >= 30.0:
                told = deadline.waited()
                progress(f"{what} is still starting ({told:.0f} s)")
            await clock.sleep(_PROBE_EVERY_S)


async def check_name(base_url: str, expected: str, api_key: str | None = None) -> None:
    """Raises PortShared when /v1/models lists another model than the one with our nonce."""
    async with http_client(timeout_s=60.0, api_key=api_key) as http:
        try:
            reply = await http.get(f"{base_url}/v1/models")
            names = [str(card["id"]) for card in reply.json()["data"]]
        except (httpx.HTTPError, json.JSONDecodeError, KeyError, TypeError) as error:
            raise EngineError(
                f"{base_url}/v1/models did not answer with a list of models ({type(error).__name__})",
                expected="an OpenAI-compatible server",
                todo="check that the engine serves this API",
            ) from error
    if expected not in names:
        raise PortShared(
            f"the server at {base_url} serves {', '.join(names) or 'nothing'}",
            expected=f"{expected}, the name with this launch's nonce",
            todo="another server answers on this port: stop it, or run the audit again",
        )


async def canary(
    process: EngineProcess,
    base_url: str,
    model: str,
    prompt: Sequence[int],
    *,
    timeout_s: float,
    died: Callable[[], EngineError],
) -> str | None:
    """One generation after /health: a server can be healthy and die at its first token.

    Returns None when all is well, or what the reply lacks. Raises EngineError.
    """
    body = {
        "model": model,
        "prompt": list(prompt),
        "max_tokens": _CANARY_TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    async with http_client(timeout_s=timeout_s) as http:
        request = asyncio.ensure_future(http.post(f"{base_url}/v1/completions", json=body))
        try:
            while not request.done():
                if process.poll() is not None:
                    raise died()
                await asyncio.wait({request}, timeout=0.1)
            reply = request.result()
        except httpx.TimeoutException as error:
            raise EngineError(
                f"{model} is healthy but its first completion took more than {timeout_s:g} s",
                expected=f"{_CANARY_TOKENS} tokens within that time",
                todo="read the log; the engine may be stalled",
            ) from error
        except httpx.HTTPError as error:
            await _until_dead(process)
            if process.poll() is not None:
                raise died() from error
            raise EngineError(
                f"{model} is healthy but broke off its first completion ({type(error).__name__})",
                expected="a completion",
                todo="read the log",
            ) from error
        finally:
            request.cancel()
    return await _judge_canary(process, reply, model, died)


async def _judge_canary(
    process: EngineProcess, reply: httpx.Response, model: str, died: Callable[[], EngineError]
) -> str | None:
    if reply.status_code != 200:
        cause = ""
        if reply.status_code >= 500:
            await _until_dead(process)
            if process.poll() is not None:
                raise died()
            # The API may answer for a dead engine for a long time; what it died of is in the log alone.
            cause = f"; {died().seen}"
        raise EngineError(
            f"{model} is healthy but answered its first completion with {reply.status_code}: "
            f"{reply.text[:300]}{cause}",
            expected="a completion",
            todo="read the log",
        )
    try:
        payload = reply.json()
        named, choice = payload.get("model"), payload["choices"][0]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise EngineError(
            f"{model} answered its first completion with something that is no completion",
            expected="an OpenAI-compatible reply",
            todo="check that the engine serves /v1/completions",
        ) from error
    if named != model:
        raise PortShared(
            f"a reply on this port carries the model name {named}",
            expected=f"{model}, the name with this launch's nonce",
            todo="another server answers on this port: stop it, or run the audit again",
        )
    return None if choice.get("token_ids") else "token ids (the engine ignores return_token_ids)"


async def _until_dead(process: EngineProcess, patience_s: float = 3.0) -> None:
    """A dying engine answers 500 before it exits; its log then names the cause."""
    for _ in range(int(patience_s / 0.05)):
        if process.poll() is not None:
            return
        await asyncio.sleep(0.05)
