"""One fake server as a context manager: a real child process, without the auditor's launcher."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fakes import fake_vllm


@dataclass(frozen=True)
class Stub:
    base_url: str
    model: str
    pid: int
    process: subprocess.Popen[bytes]


@contextmanager
def serve(
    folder: Path, faults: dict[str, Any] | None = None, *, name: str = "stub-0", args: tuple[str, ...] = ()
) -> Iterator[Stub]:
    """Starts a fake server with these faults, yields it when it answers. Log: `folder/<name>.log`."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{name}.log"
    env = os.environ | {"FAKE_VLLM_SCRIPT": json.dumps({"all": faults or {}}), "VLLM_SERVER_DEV_MODE": "1"}
    command = [sys.executable, "-S", "-E", fake_vllm.PROGRAM, "-m", "vllm.entrypoints.openai.api_server",
               "--model", "fake", "--served-model-name", name, "--host", "127.0.0.1",
               "--port", "0", *args]  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env)
    try:
        port = _port(log, process)
        yield Stub(
            f"http://127.0.0.1:{port}", (faults or {}).get("served_name") or name, process.pid, process
        )
    finally:
        process.kill()
        process.wait()


def _port(log: Path, process: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found = re.search(r"startup complete\. port (\d+)", log.read_text(errors="replace"))
        if found:
            return int(found[1])
        if process.poll() is not None:
            break
        time.sleep(0.02)
    raise RuntimeError(f"the fake server did not start: {log.read_text(errors='replace')[-2000:]}")
