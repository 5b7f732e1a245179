"""One HTTP/1.1 connection on the event loop: h11 reads and writes the protocol, asyncio moves the bytes.

A request leaves in one write, in the step of the task that asks, and its answer wakes that task directly.
Layers that pass control on in between (a pool, a stream, a cancel scope) make all workers of a loaded phase
go from stage to stage together when their answers come in a burst: none asks again before the last one has
been read, and a tenth of the asked concurrency is lost.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from collections.abc import Sequence
from typing import NamedTuple

import h11

KEEP_ALIVE_S = 2.0
"""Idle time after which a connection is not used again: servers close theirs after 5 s, and a request that
meets the close would be lost."""
MAX_HEAD_BYTES = 2**17

Headers = Sequence[tuple[bytes, bytes]]


class HttpReply(NamedTuple):
    status: int
    body: bytes


class Broken(Exception):
    """The exchange ended without a whole reply; the connection is of no further use."""


class TooLong(Exception):
    """The reply is longer than was allowed."""


class Connection(asyncio.Protocol):
    """Made by `connect`. One exchange at a time; whoever asks waits for the future that `send` returns."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._transport: asyncio.Transport | None = None
        self._lost = self._loop.create_future()
        self._waiter: asyncio.Future[HttpReply | None] | None = None
        self._status = 0
        self._body = bytearray()
        self._limit = 0
        self._idle_since = 0.0

    def usable(self) -> bool:
        """Whether another request may be sent: idle, not for long, and nothing came in between."""
        return (
            self._transport is not None
            and not self._transport.is_closing()
            and self._waiter is None
            and self._http.our_state is h11.IDLE
            and self._loop.time() - self._idle_since < KEEP_ALIVE_S
            and not self._readable()
        )

    def send(
        self, method: bytes, target: bytes, headers: Headers, body: bytes, limit: int
    ) -> asyncio.Future[HttpReply | None]:
        """Send one request. The future gets the reply, or Broken, or TooLong above `limit` bytes of body.

        It is the caller's: a result that the caller sets (None at a deadline) or its cancellation gives the
        exchange up, and `abort` has to follow.
        """
        assert self._transport is not None
        self._waiter = waiter = self._loop.create_future()
        self._limit, self._status, self._body = limit, 0, bytearray()
        data = self._http.send(h11.Request(method=method, target=target, headers=list(headers))) or b""
        if body:
            data += self._http.send(h11.Data(data=body)) or b""
        data += self._http.send(h11.EndOfMessage()) or b""
        self._transport.write(data)
        return waiter

    def abort(self) -> None:
        """Close at once; a reply that still comes is not read."""
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Close, and wait until the socket is."""
        self.abort()
        await asyncio.wait((self._lost,))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._idle_since = self._loop.time()

    def data_received(self, data: bytes) -> None:
        self._feed(data)

    def eof_received(self) -> None:
        self._feed(b"")

    def connection_lost(self, error: Exception | None) -> None:
        if self._waiter is not None:
            self._fail(Broken(str(error) if error else "the server closed the connection"))
        if not self._lost.done():
            self._lost.set_result(None)

    def _feed(self, data: bytes) -> None:
        if self._waiter is None or self._waiter.done():
            self.abort()  # nobody asked for this
            return
        try:
            self._http.receive_data(data)
            while (event := self._http.next_event()) is not h11.NEED_DATA:
                if isinstance(event, h11.Response):
                    self._status = event.status_code
                elif isinstance(event, h11.Data):
                    self._body += event.data
                    if len(self._body) > self._limit:
                        self._fail(TooLong())
                        return
                elif isinstance(event, h11.EndOfMessage):
                    self._done()
                    return
                elif not isinstance(event, h11.InformationalResponse):
                    self._fail(Broken("the server closed the connection"))
                    return
        except h11.ProtocolError as error:
            silent = not data and not self._status
            self._fail(Broken("the server closed the connection without an answer" if silent else str(error)))

    def _done(self) -> None:
        waiter, self._waiter = self._waiter, None
        assert waiter is not None
        whole = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        if whole and not self._http.trailing_data[0]:
            self._http.start_next_cycle()
            self._idle_since = self._loop.time()
        else:
            self.abort()
        waiter.set_result(HttpReply(self._status, bytes(self._body)))

    def _fail(self, error: Exception) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)
        self.abort()

    def _readable(self) -> bool:
        """Whether the server said something after its reply (as a rule that it closes)."""
        assert self._transport is not None
        if self._transport.get_extra_info("sslcontext") is not None:
            return False
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket"), select.POLLIN)
        return bool(poll.poll(0))


async def connect(host: str, port: int, tls: ssl.SSLContext | None) -> Connection:
    """Open one connection. Raises OSError (also for TLS)."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Connection, host, port, ssl=tls)
    return connection


def sent_host(host: str, port: int | None) -> bytes:
    """The value of the Host header."""
    try:
        socket.inet_pton(socket.AF_INET6, host)
        host = f"[{host}]"
    except OSError:
        pass
    return (host if port is None else f"{host}:{port}").encode("idna" if not host.isascii() else "ascii")
