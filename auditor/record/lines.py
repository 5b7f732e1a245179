"""JSON lines on disk: one writer thread that appends whole lines, and readers that know offsets.

A line is on disk whole or not at all: a torn last line can only come from a kill or a full disk, and is
cut off before anything is appended again. The event loop encodes and enqueues; only the thread meets the
disk, so that a slow disk never holds up a request. One queue for all files keeps their order: a phase is
never `done` on disk before its completions are.
"""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from auditor.errors import RecordError, StorageError

_MAX_BATCH = 2048
MAX_BACKLOG_BYTES = 64 * 2**20
"""What may wait for the disk. Far more than any server fills between two writes; above it `append` waits,
because memory without end would lose the record."""
_BACKLOG_LOOK_S = 0.002
DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO})
"""Refusals of a disk, as against those of a network or a wrong path."""


class _Sync:
    """A point in the queue that somebody waits for."""

    def __init__(self) -> None:
        self.reached = threading.Event()


class LineWriter:
    """Appends lines to several files in the order of the calls, from a thread of its own."""

    def __init__(self, paths: dict[str, Path]) -> None:
        self._fds: dict[str, int] = {}
        try:
            for name, path in paths.items():
                self._fds[name] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as err:
            for fd in self._fds.values():
                os.close(fd)
            raise storage_error(err, str(path)) from err
        self._paths = paths
        self._queue: queue.SimpleQueue[tuple[str, bytes] | _Sync | None] = queue.SimpleQueue()
        self._error: StorageError | None = None
        self._closed = False
        # each is changed by one thread only, so that no lock is needed to compare them
        self._queued = self._written = 0
        self._thread = threading.Thread(target=self._run, name="record-writer", daemon=True)
        self._thread.start()

    def append(self, name: str, line: bytes) -> None:
        """Enqueue one line (without its newline); waits only while MAX_BACKLOG_BYTES are still to be written.
        Called by one thread. Raises StorageError once the disk has refused a line."""
        self.check()
        while self._queued - self._written > MAX_BACKLOG_BYTES:
            time.sleep(_BACKLOG_LOOK_S)
            self.check()
        self._queued += len(line) + 1
        self._queue.put((name, line + b"\n"))

    def check(self) -> None:
        """Raise the StorageError that the thread met, if any."""
        if self._error is not None:
            raise self._error

    def flush(self) -> None:
        """Wait until all that was appended is in the files and synced to the device."""
        if not self._closed:
            point = _Sync()
            self._queue.put(point)
            point.reached.wait()
        self.check()

    def close(self) -> None:
        """Write what is queued and close the files. Idempotent; raises nothing."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        self._thread.join()
        for fd in self._fds.values():
            os.close(fd)

    def _run(self) -> None:
        current, pending = "", list[bytes]()
        while True:
            try:
                item = self._queue.get_nowait() if pending else self._queue.get()
            except queue.Empty:
                self._write(current, b"".join(pending))
                pending.clear()
                continue
            line_of_current = isinstance(item, tuple) and item[0] == current
            if pending and (not line_of_current or len(pending) >= _MAX_BATCH):
                self._write(current, b"".join(pending))
                pending.clear()
            if item is None:
                return
            if isinstance(item, _Sync):
                self._sync()
                item.reached.set()
            else:
                current = item[0]
                pending.append(item[1])

    def _write(self, name: str, data: bytes) -> None:
        if self._error is not None:
            return
        fd = self._fds[name]
        before = os.fstat(fd).st_size
        written = 0
        try:
            view = memoryview(data)
            while written < len(data):
                written += os.write(fd, view[written:])
        except OSError as err:
            whole = before + data.rfind(b"\n", 0, written) + 1
            with contextlib.suppress(OSError):
                os.ftruncate(fd, whole)
            self._error = storage_error(err, self._paths[name].name)
        self._written += len(data)

    def _sync(self) -> None:
        for name, fd in self._fds.items():
            try:
                os.fdatasync(fd)
            except OSError as err:
                self._error = self._error or storage_error(err, self._paths[name].name)


def storage_error(err: OSError, what: str) -> StorageError:
    """The disk's refusal as a sentence; everything written before it is kept."""
    return StorageError(
        f"Could not write {what}: {err.strerror or err}",
        expected="a writable folder with free space; everything recorded before is kept",
        todo="free some space and continue with `audit resume DIR`",
    )


def cut_torn_line(path: Path) -> int:
    """Cut an unfinished last line off `path` and return how many bytes went; 0 when it was whole."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        end = size
        block = 1 << 16
        while end > 0:
            start = max(0, end - block)
            file.seek(start)
            at = file.read(end - start).rfind(b"\n")
            if at >= 0:
                end = start + at + 1
                break
            end = start
        if end < size:
            file.truncate(end)
    return size - end


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """(offset, line without newline) of every whole line. An unfinished last line is left out.

    Raises RecordError when the file cannot be read.
    """
    offset = 0
    try:
        with path.open("rb", buffering=1 << 20) as file:
            for line in file:
                if not line.endswith(b"\n"):
                    return
                yield offset, line[:-1]
                offset += len(line)
    except OSError as err:
        raise RecordError(
            f"Cannot read {path.name}: {err.strerror or err}",
            expected="a file of a run folder",
            todo="restore it from a copy",
        ) from err
