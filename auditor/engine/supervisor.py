"""Holds one engine for the auditor, and takes it down when the auditor is gone. Run as a script:

    python -I -S supervisor.py LOG COMMAND…

SIGKILL of the auditor must leave no process behind, and an engine's helpers do not end with their parent
(vLLM's EngineCore outlives a killed API server). So this small process, in a session of its own, holds a
pipe to the auditor: when it closes, for whatever reason, the engine is ended.

stdin   `stop SECONDS\\n`: TERM to the engine's group, KILL after SECONDS. End of file: the same, 3 s.
stdout  `pid N\\n` once it runs, `failed MESSAGE\\n` if it cannot be run, `exit CODE\\n` when all is gone
        (CODE negative for a signal, as in subprocess).
Whatever the engine left behind when it ended is killed too, also what moved to another session: this process
is the reaper of all orphans among its descendants. Nothing else is ever signalled. Imports stdlib only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_POLL_S = 0.1
_LEFTOVER_S = 2.0
_ORPHANED_GRACE_S = 3.0


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _die_with_parent() -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _parents() -> dict[int, tuple[int, int, str]]:
    """pid -> (parent, process group, state) of every process that can be seen."""
    seen: dict[int, tuple[int, int, str]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # the title may hold blanks and brackets: fields start after the last bracket
                fields = Path("/proc", entry, "stat").read_text(errors="replace").rpartition(")")[2].split()
                seen[int(entry)] = (int(fields[1]), int(fields[2]), fields[0])
    return seen


def _ours(group: int) -> list[int]:
    """Living processes of the engine's group or descended from this process."""
    table = _parents()
    mine = {os.getpid()}
    grew = True
    while grew:
        new = {pid for pid, (parent, _, _) in table.items() if parent in mine} - mine
        mine |= new
        grew = bool(new)
    mine |= {pid for pid, (_, pgid, _) in table.items() if pgid == group}
    mine.discard(os.getpid())
    return sorted(pid for pid in mine if table.get(pid, (0, 0, "Z"))[2] not in "ZX")


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
    for pid in _ours(group):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _reap(leader: int) -> None:
    """Collects ended orphans, but leaves the leader a zombie: its group id cannot be reused until the end."""
    for pid, (parent, _, state) in _parents().items():
        if parent == os.getpid() and pid != leader and state == "Z":
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _ended(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _end(group: int, grace_s: float) -> None:
    """TERM, wait, KILL, wait: until nothing of the engine lives."""
    deadline = time.monotonic() + grace_s
    _signal(group, signal.SIGTERM)
    _signal(group, signal.SIGCONT)  # a stopped process takes TERM only when it goes on
    while _ours(group) and time.monotonic() < deadline:
        time.sleep(_POLL_S / 4)
        _reap(group)
    while _ours(group):
        _signal(group, signal.SIGKILL)
        time.sleep(_POLL_S / 4)
        _reap(group)


def _wait_for_the_end(group: int) -> float | None:
    """Until the engine ends by itself (None), or the grace in seconds of a stop that was asked for."""
    auditor = os.getppid()
    while not _ended(group):
        _reap(group)
        if os.getppid() != auditor:  # a forked copy of the auditor may still hold the pipe open
            return _ORPHANED_GRACE_S
        readable, _, _ = select.select([sys.stdin.fileno()], [], [], _POLL_S)
        if readable:
            order = os.read(sys.stdin.fileno(), 256).decode(errors="replace").split()
            return float(order[1]) if order[:1] == ["stop"] else _ORPHANED_GRACE_S
    return None


def _tell(line: str) -> None:
    with contextlib.suppress(OSError):
        os.write(sys.stdout.fileno(), f"{line}\n".encode())


def main(log: str, command: list[str]) -> int:
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        with open(log, "ab") as out:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                restore_signals=True,
                preexec_fn=_set_up_child,
            )
    except OSError as error:
        _tell(f"failed {error.strerror or error}: {error.filename or command[0]}")
        return 1
    _tell(f"pid {child.pid}")
    grace_s = _wait_for_the_end(child.pid)
    _end(child.pid, _LEFTOVER_S if grace_s is None else grace_s)
    _tell(f"exit {child.wait()}")
    return 0


def _set_up_child() -> None:
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    _die_with_parent()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
