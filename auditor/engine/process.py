"""One engine process and all it starts: spawned, watched and stopped through the supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from auditor.engine import supervisor
from auditor.errors import EngineError

_SPAWN_S = 30.0
_AFTER_KILL_S = 15.0


class EngineProcess:
    """A running engine. `pid` is the engine's own, and the leader of its process group and session."""

    def __init__(self, holder: subprocess.Popen[bytes], log: Path) -> None:
        self._holder = holder
        self._status = b""
        self._family: dict[int, psutil.Process] = {}
        self.log = log
        self.pid = 0
        self.returncode: int | None = None

    @classmethod
    def spawn(cls, argv: Sequence[str], env: Mapping[str, str], log: Path) -> EngineProcess:
        """Starts `argv` with exactly `env`; stdout and stderr are appended to `log`, never piped.

        Raises EngineError when the program cannot be executed.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        holder = subprocess.Popen(
            [sys.executable, "-I", "-S", supervisor.__file__, str(log), *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(env),
            start_new_session=True,
        )
        process = cls(holder, log)
        assert holder.stdout is not None
        os.set_blocking(holder.stdout.fileno(), False)
        deadline = time.monotonic() + _SPAWN_S
        while process.pid == 0:
            if process.poll() is not None or time.monotonic() > deadline:
                process._close()
                raise EngineError(
                    f"the engine's command could not be run ({process._failure() or 'no answer'})",
                    expected="an executable interpreter with the engine",
                    todo="check --engine-python",
                )
            time.sleep(0.005)
        return process

    def _failure(self) -> str:
        for line in self._status.decode(errors="replace").splitlines():
            if line.startswith("failed "):
                return line.removeprefix("failed ")
        return ""

    def poll(self) -> int | None:
        """Exit status once the engine and all it started are gone (negative: by that signal), else None."""
        if self.returncode is not None:
            return self.returncode
        assert self._holder.stdout is not None
        closed = False
        with contextlib.suppress(BlockingIOError, ValueError):
            while chunk := os.read(self._holder.stdout.fileno(), 4096):
                self._status += chunk
            closed = True
        for line in self._status.decode(errors="replace").splitlines():
            word, _, rest = line.partition(" ")
            if word == "pid":
                self.pid = int(rest)
            elif word == "exit":
                self.returncode = int(rest)
            elif word == "failed":
                self.returncode = 127
        if self.returncode is None and closed:
            # the supervisor itself was killed: PDEATHSIG ends the engine, its group is ours to end
            self._kill_group()
            self.returncode = -signal.SIGKILL
        if self.returncode is not None:
            self._close()
        return self.returncode

    def descendants(self) -> tuple[psutil.Process, ...]:
        """Processes that the engine started, the engine itself not included."""
        with contextlib.suppress(psutil.Error):
            engine = self._family.setdefault(self.pid, psutil.Process(self.pid))
            children = engine.children(recursive=True)
            self._family.update((child.pid, child) for child in children)
            return tuple(children)
        return ()

    async def stop(self, grace_s: float = 10.0) -> int | None:
        """TERM to the engine's group, KILL after `grace_s`; returns when nothing of it is left."""
        if self.poll() is not None:
            return self.returncode
        self._order(grace_s)
        deadline = time.monotonic() + grace_s + _AFTER_KILL_S
        while self.poll() is None and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        if self.poll() is None:
            self._kill_group()
            self._holder.kill()
            self.returncode = -signal.SIGKILL
            self._close()
        return self.returncode

    def _order(self, grace_s: float) -> None:
        assert self._holder.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self._holder.stdin.write(f"stop {grace_s}\n".encode())
            self._holder.stdin.flush()

    def _kill_group(self) -> None:
        """Last resort, without the supervisor: the processes seen so far, each checked not to be another
        that got its pid since."""
        self.descendants()
        for member in self._family.values():
            with contextlib.suppress(psutil.Error):
                member.kill()

    def _close(self) -> None:
        for pipe in (self._holder.stdin, self._holder.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._holder.wait(timeout=_AFTER_KILL_S)


def read_environ(pid: int) -> dict[str, str] | None:
    """The environment that a process was started with, from /proc; None when it cannot be read."""
    try:
        raw = Path("/proc", str(pid), "environ").read_bytes()
    except OSError:
        return None
    pairs = (item.partition(b"=") for item in raw.split(b"\0") if b"=" in item)
    return {k.decode(errors="replace"): v.decode(errors="replace") for k, _, v in pairs}
