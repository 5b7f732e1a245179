"""Real vLLM servers on the CPU for tests: started without the auditor, and models with something planted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from auditor.demo.models import HEAD, TARGET
from auditor.engine.ports import free_port
from auditor.engine.vllm import CPU_ENV
from tests.cases.audits import Ran, cli

PYTHON = Path(
    os.environ.get("AUDIT_ENGINE_PYTHON", Path(__file__).parents[2] / ".venvs/cpu-engine/bin/python")
)
needs_engine = [
    pytest.mark.engine,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not PYTHON.exists(), reason="no CPU engine is installed (make setup-engine)"),
]
BOOT_S = 600.0
EAGLE3 = json.dumps({"method": "eagle3", "model": str(HEAD), "num_speculative_tokens": 3})
NGRAM = json.dumps(
    {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4, "prompt_lookup_min": 2}
)
SMALL = (
    "--display=none --agreement-corpora=demo-sums --limit=24 --max-tokens=160 --certification-prompts=24 "
    "--certification-max-tokens=48 --accuracy-corpus=demo-sums --accuracy-limit=240 --shots=0 "
    "--accuracy-max-tokens=160 --levels=8 --invariance-prompts=24"
).split()
"""Every stage, small: about a minute of measuring for three servers on two idle cores."""
SPECULATE = "--speculative-config"


@dataclass(frozen=True)
class Served:
    url: str
    process: subprocess.Popen[bytes]
    log: Path


REUSE_PORT = """\
import socket

_bind = socket.socket.bind


def bind(self, address):
    if self.family == socket.AF_INET:
        self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return _bind(self, address)


socket.socket.bind = bind
"""


@contextmanager
def serving(
    folder: Path,
    target: Path,
    *args: str,
    name: str = "target",
    port: int = 0,
    shared: bool = False,
    telling: bool = False,
) -> Iterator[Served]:
    """A server as somebody else would run it: no nonce, and no /server_info unless it is `telling`.

    `shared`: its port may be bound by another server as well (SO_REUSEPORT), as vLLM itself does where it
    runs more than one API process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    env = os.environ | CPU_ENV | {
        # what a model class supports, which vLLM finds out by importing itself once more, is kept
        "VLLM_CACHE_ROOT": str(folder.parent / "vllm"), "TRITON_CACHE_DIR": str(folder / "triton"),
        "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
        # the worker inside the engine's process: a quarter less to import (auditor/plan/presets.toml)
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_SERVER_DEV_MODE": str(int(telling)),
    }  # fmt: skip
    command = [
        str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--model", str(target),
        "--served-model-name", name, "--host", "127.0.0.1", "--port", str(port), "--enforce-eager",
        "--no-async-scheduling", "--no-enable-prefix-caching", *args,
    ]  # fmt: skip
    if shared:
        (folder / "sitecustomize.py").write_text(REUSE_PORT, encoding="utf-8")
        env["PYTHONPATH"] = str(folder)
    log = folder / "engine.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env=env, start_new_session=True
        )
    served = Served(f"http://127.0.0.1:{port}", process, log)
    try:
        yield served
    finally:
        # the whole session: an engine process outlives a server that is killed
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
                process.wait(timeout=30)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue


def ready(*servers: Served) -> None:
    """Waits until all answer /health. RuntimeError with the end of the log when one ends instead."""
    deadline = time.monotonic() + BOOT_S
    for served in servers:
        while not _healthy(served.url):
            if served.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(served.log.read_text(errors="replace")[-3000:])
            time.sleep(0.2)


def _healthy(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/health", timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def attached(folder: Path, reference: Served, control: Served, candidate: Served, *args: str) -> Ran:
    """`audit equivalence` on three running servers, every stage small."""
    return cli(
        folder / "run",
        "equivalence",
        f"--reference-url={reference.url}",
        f"--control-url={control.url}",
        f"--candidate-url={candidate.url}",
        f"--output={folder / 'run'}",
        *SMALL,
        *args,
    )


def launched(folder: Path, *args: str, target: Path = TARGET, draft: str = f"eagle3={HEAD}") -> Ran:
    """`audit equivalence` on servers that it starts itself, every stage small."""
    return cli(
        folder / "run",
        "equivalence",
        f"--target={target}",
        f"--draft={draft}",
        f"--engine-python={PYTHON}",
        f"--output={folder / 'run'}",
        *SMALL,
        *args,
    )


def audited(folder: Path, plain: Served, candidates: dict[str, Served], *args: str) -> Ran:
    """`audit equivalence` of all candidates against `plain`, which is its own control."""
    return cli(
        folder / "run",
        "equivalence",
        f"--reference-url={plain.url}",
        f"--control-url={plain.url}",
        *(f"--candidate-url={name}={served.url}" for name, served in candidates.items()),
        f"--output={folder / 'run'}",
        *SMALL,
        *args,
    )


def status(ran: Ran, arm: str) -> dict[str, str]:
    """Status of each gate of `arm`, by the gate's first word."""
    return {
        g.name.partition("/")[0]: g.status
        for g in ran.record.judgement.gates
        if g.name.partition("/")[2] == arm
    }


# ------------------------------------------------------------------ models with something planted


def copied(source: Path, out: Path, **config: Any) -> Path:
    """A copy of a model folder whose config.json has these fields; None removes one."""
    shutil.copytree(source, out)
    path = out / "config.json"
    fields = json.loads(path.read_text("utf-8")) | config
    path.write_text(json.dumps({k: v for k, v in fields.items() if v is not None}), "utf-8")
    return out


Change = Callable[[str, np.ndarray], np.ndarray]
"""(tensor name, float32 values) -> float32 values, possibly of another shape."""


def reweighted(folder: Path, change: Change, dtype: str = "BF16") -> Path:
    """Rewrites model.safetensors in place; integers and masks stay as they are."""
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header: Mapping[str, Any] = json.loads(raw[8 : 8 + size])
    tensors: dict[str, tuple[str, list[int], bytes]] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        start, end = (8 + size + at for at in entry["data_offsets"])
        data = raw[start:end]
        if entry["dtype"] != "BF16":
            tensors[name] = entry["dtype"], entry["shape"], data
            continue
        values = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
        changed = change(name, values.reshape(entry["shape"])).astype(np.float32)
        written = changed.tobytes() if dtype == "F32" else _bfloat16(changed)
        tensors[name] = dtype, list(changed.shape), written
    new: dict[str, Any] = {}
    at = 0
    for name, (kind, shape, data) in tensors.items():
        new[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(new).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(d for _, _, d in tensors.values()))
    return folder


def _bfloat16(values: np.ndarray) -> bytes:
    """Rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def noisy(scale: float, seed: int = 0) -> Change:
    """Gaussian noise of `scale` times each tensor's own standard deviation."""
    rng = np.random.default_rng(seed)

    def change(name: str, values: np.ndarray) -> np.ndarray:
        return values + scale * float(values.std()) * rng.standard_normal(values.shape, np.float32)

    return change
