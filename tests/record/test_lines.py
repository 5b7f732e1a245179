"""The writer's thread and its queue, where the disk is slower than the answers."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from auditor.record import lines


def test_what_waits_for_a_slow_disk_is_bounded_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe that nobody reads stands for a disk that does not get on."""
    limit, size, count = 50_000, 10_000, 200
    monkeypatch.setattr(lines, "MAX_BACKLOG_BYTES", limit)
    path = tmp_path / "slow"
    os.mkfifo(path)
    pipe = os.open(path, os.O_RDWR)
    writer = lines.LineWriter({"slow": path})
    waiting: list[int] = []

    def append() -> None:
        for n in range(count):
            writer.append("slow", b"%05d" % n + b"x" * (size - 6))
            waiting.append(writer._queued - writer._written)

    appender = threading.Thread(target=append)
    appender.start()
    appender.join(0.3)  # long enough to enqueue all of them where nothing held it back
    assert appender.is_alive()
    received = bytearray()
    while len(received) < size * count:
        received += os.read(pipe, 2**16)
    appender.join()
    writer.close()
    os.close(pipe)
    assert max(waiting) <= limit + size
    assert [int(line[:5]) for line in received.splitlines()] == list(range(count))
