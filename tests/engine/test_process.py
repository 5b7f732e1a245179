"""The supervisor: what it holds ends with the auditor, whatever ends the auditor."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from auditor.engine.process import EngineProcess, read_environ
from auditor.errors import EngineError

# an engine with a helper of its own group and one that left the group; both ignore TERM
ENGINE = """
import subprocess, sys, time
deaf = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True);"
    "time.sleep(600)"
)
for own in (False, True):
    command = [sys.executable, "-S", "-E", "-c", deaf]
    child = subprocess.Popen(command, start_new_session=own, stdout=subprocess.PIPE)
    child.stdout.readline()
    print("child", child.pid, flush=True)
print("up", flush=True)
time.sleep(600)
"""

AUDITOR = """
import os, sys, time
from pathlib import Path
from auditor.engine.process import EngineProcess
command = [sys.executable, "-S", "-E", "-c", Path(sys.argv[1]).read_text()]
process = EngineProcess.spawn(command, os.environ, Path(sys.argv[2]))
print(process.pid, flush=True)
if len(sys.argv) > 3:
    if os.fork() == 0:  # a forked worker keeps the pipe open
        time.sleep(30)
time.sleep(600)
"""


def _until(log: Path, word: str) -> str:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        text = log.read_text() if log.exists() else ""
        if word in text.split():
            return text
        time.sleep(0.02)
    raise AssertionError(f"no {word} in {log}")


def _gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if not any(psutil.pid_exists(p) and psutil.Process(p).status() != psutil.STATUS_ZOMBIE for p in pids):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("forked", [False, True], ids=["alone", "with-a-forked-worker"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["SIGKILL", "SIGTERM"])
def test_the_engine_ends_with_the_auditor(tmp_path: Path, number: signal.Signals, forked: bool) -> None:
    script, log = tmp_path / "engine.py", tmp_path / "engine.log"
    script.write_text(ENGINE)
    auditor = subprocess.Popen(
        [sys.executable, "-c", AUDITOR, str(script), str(log), *(["fork"] if forked else [])],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert auditor.stdout is not None
    engine = int(auditor.stdout.readline())
    children = [int(line.split()[1]) for line in _until(log, "up").splitlines() if line.startswith("child")]
    workers = [c.pid for c in psutil.Process(auditor.pid).children() if "supervisor" not in str(c.cmdline())]
    auditor.send_signal(number)
    auditor.wait()
    auditor.stdout.close()
    assert len(children) == 2
    assert _gone([engine, *children])
    for worker in workers:
        os.kill(worker, signal.SIGKILL)


def test_an_engine_that_ends_by_itself_leaves_nothing(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    code = ENGINE.replace('print("up", flush=True)\ntime.sleep(600)', 'print("up", flush=True)\nsys.exit(7)')
    process = EngineProcess.spawn([sys.executable, "-S", "-E", "-c", code], os.environ, log)
    children = [int(line.split()[1]) for line in _until(log, "up").splitlines() if line.startswith("child")]
    while process.poll() is None:
        time.sleep(0.02)
    assert process.returncode == 7
    assert _gone([process.pid, *children])


def test_stop_after_the_supervisor_was_killed_still_ends_the_engine(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    process = EngineProcess.spawn([sys.executable, "-S", "-E", "-c", ENGINE], os.environ, log)
    children = [int(line.split()[1]) for line in _until(log, "up").splitlines() if line.startswith("child")]
    assert {c.pid for c in process.descendants()} == set(children)
    parent = psutil.Process(process.pid).parent()
    assert parent is not None
    parent.kill()
    assert asyncio.run(process.stop(0.2)) == -signal.SIGKILL
    assert _gone([process.pid, *children])


def test_output_goes_to_the_log_and_the_environment_is_exact(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    code = "import os, sys, time; print(*os.environ, 'up', file=sys.stderr, flush=True); time.sleep(60)"
    process = EngineProcess.spawn([sys.executable, "-S", "-E", "-c", code], {"ONLY": "this"}, log)
    assert "ONLY" in _until(log, "up")
    assert (read_environ(process.pid) or {})["ONLY"] == "this"
    assert "PATH" not in (read_environ(process.pid) or {})
    assert os.getpgid(process.pid) == process.pid != os.getpgid(0)
    asyncio.run(process.stop(5))
    assert process.returncode == -signal.SIGTERM
    assert read_environ(process.pid) is None


def test_what_cannot_be_executed_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="No such file or directory"):
        EngineProcess.spawn([str(tmp_path / "nothing")], os.environ, tmp_path / "log")
