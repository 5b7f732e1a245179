"""A server that does nothing but wait: `python benchmarks/stub.py` prints its port and serves until killed.

It answers /v1/completions (and chat) after a fixed delay with one and the same completion, streamed where
that is asked for, over raw connections, so that a client is measured and not the stub. It keeps when each
request arrived and was answered:

  GET /stub/reset?delay_ms=D   forget everything, answer after D ms from now on
  GET /stub/log                {"arrived": [...], "answered": [...]}, seconds, in order of arrival
"""

from __future__ import annotations

import asyncio
import gc
import json
import time

NAME = "stub-model"
TOKENS = 64
TEXT = " ".join(f"w{7 * n % 250}" for n in range(TOKENS - 2)) + " #### 42"
_IDS = json.dumps([7 * n % 250 for n in range(TOKENS)], separators=(",", ":"))
_USAGE = '{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}'
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
)


class Log:
    """What happened since the last reset."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        self.arrived: list[float] = []
        self.answered: list[float | None] = []
        self.running = 0

    def reset(self, delay_ms: float) -> None:
        self.delay_s = delay_ms / 1000
        self.arrived, self.answered = [], []


class Connection(asyncio.Protocol):
    """One keep-alive connection; one request at a time, as HTTP/1.1 clients send them."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._received[:end]).lower()
            at = head.find(b"content-length:")
            size = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._received) < end + 4 + size:
                return
            body = bytes(self._received[end + 4 : end + 4 + size])
            path = bytes(self._received[: self._received.find(b"\r\n")]).split(b" ")[1]
            del self._received[: end + 4 + size]
            self._request(path.decode(), body)

    def _request(self, path: str, body: bytes) -> None:
        if path.endswith("/completions"):
            log = self._log
            number = len(log.arrived)
            log.arrived.append(time.monotonic())
            log.answered.append(None)
            log.running += 1
            answer = _answer(body, chat=path.endswith("/chat/completions"))
            if log.delay_s:
                self._loop.call_later(log.delay_s, self._send, answer, number, log.answered)
            else:
                self._send(answer, number, log.answered)
        else:
            self._write(_json(_other(path, self._log)))

    def _send(self, answer: bytes, number: int, answered: list[float | None]) -> None:
        self._log.running -= 1
        answered[number] = time.monotonic()
        self._write(answer)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


def _answer(body: bytes, chat: bool) -> bytes:
    if b'"stream":true' in body or b'"stream": true' in body:
        return _streamed(chat, usage=b"include_usage" in body)
    at = body.find(b'"prompt":[')
    echoed = body[at + 9 : body.find(b"]", at) + 1].decode() if at >= 0 else "null"
    asked = echoed.count(",") + 1
    said = f'"message":{{"role":"assistant","content":"{TEXT}"}}' if chat else f'"text":"{TEXT}"'
    return _json(
        f'{{"id":"cmpl-1","object":"text_completion","created":1,"model":"{NAME}","choices":[{{"index":0,'
        f'{said},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":{_IDS},'
        f'"prompt_token_ids":{echoed},"prompt_logprobs":null}}],'
        f'"usage":{_USAGE % (asked, TOKENS, asked + TOKENS)}}}'
    )


def _streamed(chat: bool, usage: bool) -> bytes:
    """Four chunks of text, the end, the usage, all at once."""
    quarter = len(TEXT) // 4
    parts = [TEXT[i : i + quarter] for i in range(0, len(TEXT), quarter)]
    shown = []
    for i, part in enumerate([*parts, ""]):
        finish = "null" if i < len(parts) else '"stop"'
        said = f'"delta":{{"content":"{part}"}}' if chat else f'"text":"{part}"'
        shown.append(
            f'{{"id":"cmpl-1","object":"text_completion","created":1,"model":"{NAME}","choices":[{{"index":0,'
            f'{said},"logprobs":null,"finish_reason":{finish}}}],"usage":null}}'
        )
    if usage:
        shown.append(
            f'{{"id":"cmpl-1","object":"text_completion","created":1,"model":"{NAME}","choices":[],'
            f'"usage":{_USAGE % (200, TOKENS, 200 + TOKENS)}}}'
        )
    events = [f"data: {line}\n\n".encode() for line in (*shown, "[DONE]")]
    return _STREAM_HEAD + b"".join(b"%x\r\n%s\r\n" % (len(e), e) for e in events) + b"0\r\n\r\n"


def _json(text: str) -> bytes:
    body = text.encode()
    return _HEAD % len(body) + body


def _other(path: str, log: Log) -> str:
    if path.startswith("/stub/reset"):
        log.reset(float(path.partition("delay_ms=")[2] or 0))
        gc.collect()
        return "{}"
    if path == "/stub/log":
        return json.dumps({"arrived": log.arrived, "answered": log.answered})
    if path == "/metrics":
        return (
            f'vllm:num_requests_running{{engine="0"}} {log.running}.0\n'
            'vllm:num_requests_waiting{engine="0"} 0.0\n'
            f'vllm:prompt_tokens_total{{engine="0"}} {200 * len(log.arrived)}.0\n'
            f'vllm:generation_tokens_total{{engine="0"}} {TOKENS * (len(log.arrived) - log.running)}.0\n'
        )
    model = f'{{"id":"{NAME}","object":"model","created":1,"owned_by":"stub","root":"{NAME}"}}'
    return f'{{"object":"list","data":[{model}]}}'


async def serve() -> None:
    log = Log()
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(log), "127.0.0.1", 0, backlog=1024
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    gc.disable()  # a collection would be counted as the client's delay
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())
