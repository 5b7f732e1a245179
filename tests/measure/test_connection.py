"""What a connection does when a server closes, speaks out of turn, or answers in other framings."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from auditor.clock import RealClock
from auditor.measure.client import Client
from auditor.measure.connection import Connection, sent_host
from auditor.model.completion import Answer, Completion
from tests.measure.support import CUT, RawServer, http, prompt, raw_server, reply

GOOD = http(reply([1, 2]))
BODY = GOOD.partition(b"\r\n\r\n")[2]
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
UNTIL_CLOSED = b"HTTP/1.1 200 OK\r\n\r\n" + BODY + CUT


def ask_twice(*script: bytes) -> tuple[list[Answer], RawServer]:
    async def main() -> tuple[list[Answer], RawServer]:
        async with raw_server(*script) as server, Client(server.url, "m-1", RealClock()) as client:
            answers = []
            for i in range(2):
                answers.append(await client.complete(prompt(f"c/{i}"), phase="p"))
                await asyncio.sleep(0.02)  # a close that follows the reply arrives
            return answers, server

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("script", "connections"),
    [
        ((GOOD,), 1),
        ((CHUNKED,), 1),
        ((UNTIL_CLOSED,), 2),
        ((b"HTTP/1.1 100 Continue\r\n\r\n" + GOOD,), 1),
        ((GOOD + CUT, GOOD), 2),
        ((http(reply([1, 2]), headers="Connection: close\r\n"), GOOD), 2),
        ((GOOD + b"HTTP/1.1 200 OK\r\n", GOOD), 2),
    ],
    ids=[
        "length",
        "chunked",
        "until closed",
        "informational",
        "closed after",
        "close announced",
        "out of turn",
    ],
)
def test_both_requests_are_answered(script: tuple[bytes, ...], connections: int) -> None:
    answers, server = ask_twice(*script)
    assert all(isinstance(a, Completion) for a in answers), answers
    assert server.connections == connections
    assert len(server.requests) == 2


def test_a_worker_asks_again_before_the_next_answer_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that are answered in a burst do not wait for each other: one that has taken its answer
    sends its next request in the same step, so that the server is never idle until the last is taken."""
    workers, order = 8, list[str]()
    send = Connection.send

    def noted(self: Connection, *rest: Any) -> Any:
        order.append("sent")
        return send(self, *rest)

    monkeypatch.setattr(Connection, "send", noted)

    async def main() -> None:
        together = asyncio.Barrier(workers)

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for _ in range(2):
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
                await together.wait()
                writer.write(GOOD)
            writer.close()

        async def worker(client: Client, number: int) -> None:
            for _ in range(2):
                await client.complete(prompt(f"c/{number}"), phase="p")
                order.append("taken")
            await client.close()

        listener = await asyncio.start_server(handle, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        clients = [Client(f"http://127.0.0.1:{port}", "m-1", RealClock()) for _ in range(workers)]
        await asyncio.gather(*(worker(c, i) for i, c in enumerate(clients)))
        listener.close()

    asyncio.run(main())
    assert order[: workers + 2 * workers] == ["sent"] * workers + ["taken", "sent"] * workers


@pytest.mark.parametrize(
    ("host", "port", "sent"),
    [
        ("h", None, b"h"),
        ("h", 8000, b"h:8000"),
        ("::1", 8000, b"[::1]:8000"),
        ("127.0.0.1", 1, b"127.0.0.1:1"),
    ],
)
def test_the_host_header(host: str, port: int | None, sent: bytes) -> None:
    assert sent_host(host, port) == sent
