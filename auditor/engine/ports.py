"""A port that is ours: free when we chose it, and silent until our own process speaks on it."""

from __future__ import annotations

import socket

from auditor.errors import PortShared

LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """A loopback port that nobody listens on now. The engine binds it seconds later: see `refuse_answers`."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def answers(port: int, *, timeout_s: float = 0.5) -> bool:
    """Whether something accepts connections on the loopback port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(timeout_s)
        return probe.connect_ex((LOOPBACK, port)) == 0


def refuse_answers(port: int) -> None:
    """Raises PortShared when something answers on `port` before our own server was started."""
    if answers(port):
        raise PortShared(
            f"another process answers on port {port}",
            expected="no listener before our own server starts",
            todo="run the audit again; it will choose another port",
        )
