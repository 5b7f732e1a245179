"""A real server to ask: vLLM for the CPU with the demo's target, and what its gauge shows."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from benchmarks.stub import NAME

TARGET = Path(__file__).resolve().parents[1] / "auditor" / "demo" / "target"
BOOT_S = 300.0
_RUNNING = re.compile(r"^vllm:num_requests_running\{[^}]*\} (\S+)$", re.MULTILINE)


@contextlib.contextmanager
def engine(python: str, tokenizer: Path, log: Path) -> Iterator[str]:
    """The URL of a server with the benchmark's tokenizer. RuntimeError when it does not come up."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = os.environ | {
        "VLLM_TARGET_DEVICE": "cpu", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
    }  # fmt: skip
    command = [
        python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(TARGET),
        "--tokenizer", str(tokenizer), "--served-model-name", NAME, "--host", "127.0.0.1",
        "--port", str(port), "--enforce-eager", "--no-enable-prefix-caching", "--max-num-seqs", "128",
    ]  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env=env, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    url = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + BOOT_S
        while not _answers(f"{url}/health"):
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"vLLM did not come up: {log.read_text(errors='replace')[-500:]}")
            time.sleep(0.5)
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 15)
            process.wait(60)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


class Gauge:
    """Requests running on an engine, read ten times a second while a client is measured."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/metrics"
        self._seen: list[tuple[float, int]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def wall_s(self) -> float | None:
        """From the first to the last moment at which a request ran, to a tenth of a second."""
        busy = [at for at, running in self._seen if running]
        return busy[-1] - busy[0] if busy else None

    def mean(self, level: int) -> float | None:
        """Running requests from the first moment at which the level was reached (else from the first request)
        to the last such moment."""
        busy = [running for _, running in self._seen if running]
        full = [i for i, running in enumerate(busy) if running >= level]
        steady = busy[full[0] : full[-1] + 1] if full else busy
        return sum(steady) / len(steady) if steady else None

    def peak(self) -> int | None:
        return max((running for _, running in self._seen), default=None)

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            with contextlib.suppress(OSError), urllib.request.urlopen(self._url, timeout=5) as reply:
                found = _RUNNING.search(reply.read().decode())
                if found:
                    self._seen.append((time.monotonic(), int(float(found[1]))))
