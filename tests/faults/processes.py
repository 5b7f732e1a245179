"""Audits as processes of their own, to be killed; what they leave behind."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import psutil

from auditor.model.completion import Answer, Completion
from auditor.model.launch import Launch
from auditor.model.record import Event
from auditor.record.lines import read_lines

WAIT_S = 120.0
"""Patience with a loaded machine; nothing is asserted about time."""


def start(*args: str, env: Mapping[str, str] | None = None, **more: Any) -> subprocess.Popen[str]:
    """`audit ARGS` as a process in a session of its own, not measured by coverage: where the disk is full its
    data file could not be written either."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    return subprocess.Popen(
        [sys.executable, "-m", "auditor", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=inherited | dict(env or {}),
        start_new_session=True,
        **more,
    )


def lines(path: Path) -> int:
    """Whole lines of a file; 0 while it is not there."""
    return sum(1 for _ in read_lines(path)) if path.exists() else 0


def until(what: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> bool:
    """Wait until `what` holds. False when the process ended first."""
    deadline = time.monotonic() + WAIT_S
    while not what():
        if process is not None and process.poll() is not None:
            return False
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.003)
    return True


def launches(run_dir: Path) -> dict[str, Launch]:
    """Last state of each launch in the journal, as far as it is whole."""
    found: dict[str, Launch] = {}
    decoder = msgspec.json.Decoder(Event)
    path = run_dir / "journal.jsonl"
    for _, line in read_lines(path) if path.exists() else ():
        launch = decoder.decode(line).launch
        if launch is not None:
            found[launch.id] = launch
    return found


def nothing_left(run_dir: Path) -> None:
    """No engine of this run lives, and none of its ports is bound."""
    seen = launches(run_dir)
    here = str(run_dir.parent)

    def ours() -> list[str]:
        found = []
        for process in psutil.process_iter():
            try:
                words = " ".join(process.cmdline())
                if here in words and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(f"{process.pid} {words[:200]}")
            except psutil.Error:
                continue
        return found

    deadline = time.monotonic() + 30
    while ours() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ours() == []
    for launch in seen.values():
        if launch.port:
            with socket.socket() as probe:
                assert probe.connect_ex(("127.0.0.1", launch.port)) != 0, f"port of {launch.id} is bound"


def completions(run_dir: Path) -> list[tuple[str, str, int]]:
    """(phase, prompt, repeat) of every completion in the file, in order, so that none hides another."""
    decoder: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)
    answers = [decoder.decode(line) for _, line in read_lines(run_dir / "completions.jsonl")]
    return [(a.phase, a.prompt, a.repeat) for a in answers if isinstance(a, Completion)]


def verdict(run_dir: Path) -> dict[str, Any]:
    """What an audit concluded, without what depends on the clock: verdict, gates, agreement, accuracy."""
    judgement = json.loads((run_dir / "audit.json").read_text())["judgement"]
    return {
        "verdict": judgement["verdict"]["name"],
        "gates": [(g["name"], g["status"]) for g in judgement["gates"]],
        "agreement": [(a["arm"], a["corpus"], a["agreement"]) for a in judgement["agreement"]],
        "divergences": [(d["arm"], d["prompt"], d["position"], d["cls"]) for d in judgement["divergences"]],
        "accuracy": [(t["arm"], t["both"], t["neither"], t["verdict"]) for t in judgement["accuracy"]],
        "states": [(c["arm"], c["state"], c["fingerprints"]) for c in judgement["certificates"]],
    }
