"""What this machine has: engine processes of others, accelerators, memory. Looks only, signals nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from auditor.engine.base import Engine

GIB = 1 << 30
_SECOND_LOOK_S = 1.0


@dataclass(frozen=True, kw_only=True)
class EngineProcessSeen:
    pid: int
    title: str
    age_s: float
    memory_gib: float
    orphan: bool
    """Its server is gone: an engine's helper whose parent is no engine process."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    index: str
    name: str
    total_gib: float
    free_gib: float
    driver: str = ""
    pids: tuple[int, ...] = ()
    """Processes that hold memory on it, where the driver tells."""


def other_engines(engine: Engine) -> tuple[EngineProcessSeen, ...]:
    """Engine processes that are not descendants of this one, orphans first.

    An orphan is looked at twice, a second apart: a helper that is just ending with its server is none.
    """
    seen = {p.pid: p for p in _engines(engine)}
    if any(p.orphan for p in seen.values()):
        time.sleep(_SECOND_LOOK_S)
        again = {p.pid: p for p in _engines(engine)}
        seen = {pid: p for pid, p in again.items() if not p.orphan or (pid in seen and seen[pid].orphan)}
    return tuple(sorted(seen.values(), key=lambda p: (not p.orphan, p.pid)))


def _engines(engine: Engine) -> Iterator[EngineProcessSeen]:
    ours = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    for process in psutil.process_iter():
        try:
            name, argv = process.name(), process.cmdline()
            if process.pid in ours or not engine.is_engine_process(name, argv):
                continue
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            parent = process.parent()
            helper = name.startswith("VLLM::") or (bool(argv) and argv[0].startswith("VLLM::"))
            has_server = parent is not None and engine.is_engine_process(parent.name(), parent.cmdline())
            yield EngineProcessSeen(
                pid=process.pid,
                title=name if helper else " ".join(argv[:4])[:80],
                age_s=max(0.0, time.time() - process.create_time()),
                memory_gib=process.memory_info().rss / GIB,
                orphan=helper and not has_server,
            )
        except psutil.Error:
            continue


def gpus() -> tuple[Gpu, ...] | None:
    """NVIDIA accelerators by pynvml or nvidia-smi; None when neither can be asked."""
    try:
        return tuple(_by_nvml())
    except Exception:  # pynvml is optional, and raises types of its own when there is no driver
        return _by_smi()


def _by_nvml() -> Iterator[Gpu]:
    import pynvml

    pynvml.nvmlInit()
    try:
        driver = _decoded(pynvml.nvmlSystemGetDriverVersion())
        for i in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(i)
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            yield Gpu(
                index=str(i),
                name=_decoded(pynvml.nvmlDeviceGetName(handle)),
                total_gib=memory.total / GIB,
                free_gib=memory.free / GIB,
                driver=driver,
                pids=tuple(p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)),
            )
    finally:
        pynvml.nvmlShutdown()


def _decoded(text: Any) -> str:
    return text.decode() if isinstance(text, bytes) else str(text)


def _by_smi() -> tuple[Gpu, ...] | None:
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return None
    query = "--query-gpu=index,name,memory.total,memory.free,driver_version"
    try:
        done = subprocess.run(
            [smi, query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        return tuple(parse_smi(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def parse_smi(text: str) -> Iterator[Gpu]:
    """Rows `index, name, MiB, MiB, driver`. Raises ValueError for other text."""
    for line in filter(None, map(str.strip, text.splitlines())):
        index, name, total, free, driver = (field.strip() for field in line.split(","))
        yield Gpu(
            index=index, name=name, total_gib=float(total) / 1024, free_gib=float(free) / 1024, driver=driver
        )


def available_memory_gib() -> float:
    """Memory that can still be had: the machine's, or what the container's limit leaves if that is less."""
    free = psutil.virtual_memory().available / GIB
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            used = int((group / "memory.current").read_text())
            stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            # page cache is given back when memory is asked for
            used -= int(stat.get("inactive_file", 0)) + int(stat.get("active_file", 0))
            free = min(free, (int(limit) - used) / GIB)
    except (OSError, ValueError):
        pass
    return free


def free_disk_gib(folder: Path) -> float:
    """Free space where `folder` is, or will be."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free / GIB
