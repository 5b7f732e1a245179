"""What an interpreter says about the engine in it: versions at once, the server's flags from its help text.

The help text takes vLLM 10 to 30 s to print, because printing it imports everything. It is therefore kept in
the user's cache folder, by interpreter and versions, when it took more than 2 s.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from auditor.engine.base import EngineInfo
from auditor.engine.diary import parse_json
from auditor.errors import InvalidPlan

_PROBE = """
import json, platform
from importlib.metadata import PackageNotFoundError, version
found = {"python": platform.python_version()}
for name in %r:
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        pass
print(json.dumps(found))
"""
_PROBE_TIMEOUT_S = 60.0
_HELP_TIMEOUT_S = 300.0
_WORTH_KEEPING_S = 2.0
_LONG_OPTION = re.compile(r"(?<![\w-])--[a-zA-Z0-9][\w.-]*")


def inspect_engine(
    python: str, env: Mapping[str, str], packages: Sequence[str], engines: Sequence[str], module: str
) -> EngineInfo:
    """Versions of `packages` and flags of `python -m module`. The first of `engines` found gives the version.

    Raises InvalidPlan when the interpreter cannot be run or has none of `engines`.
    """
    python = python or sys.executable
    return _inspect(python, tuple(sorted(env.items())), tuple(packages), tuple(engines), module)


@functools.lru_cache(maxsize=16)
def _inspect(
    python: str,
    env: tuple[tuple[str, str], ...],
    packages: tuple[str, ...],
    engines: tuple[str, ...],
    module: str,
) -> EngineInfo:
    found = _versions(python, dict(env), packages)
    engine = next((name for name in engines if name in found), None)
    if engine is None:
        raise InvalidPlan(
            f"{python} has no {engines[0]}",
            expected=f"an interpreter with {' or '.join(engines)}",
            todo="give --engine-python the interpreter that has the engine, or install the extra `vllm`",
        )
    cpu = engine.endswith("-cpu") or found[engine].endswith("+cpu")
    child_env = dict(env) | ({"VLLM_TARGET_DEVICE": "cpu"} if cpu else {})
    return EngineInfo(
        python=python,
        version=found[engine],
        packages={k: v for k, v in found.items() if k != "python"},
        cpu=cpu,
        flags=_flags(python, child_env, module, found),
    )


def _run(
    command: Sequence[str], env: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=dict(env),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        check=False,
    )


def _versions(python: str, env: Mapping[str, str], packages: tuple[str, ...]) -> dict[str, str]:
    try:
        done = _run([python, "-c", _PROBE % (packages,)], env, _PROBE_TIMEOUT_S)
        found: Any = parse_json(done.stdout.strip().splitlines()[-1]) if done.stdout.strip() else None
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise InvalidPlan(
            f"the engine's interpreter {python} could not be run ({error})",
            expected="a Python interpreter",
            todo="check --engine-python",
        ) from error
    if not isinstance(found, dict):
        why = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise InvalidPlan(
            f"the engine's interpreter {python} did not answer ({why})",
            expected="a Python interpreter",
            todo="check --engine-python",
        )
    return {str(k): str(v) for k, v in found.items()}


def _flags(
    python: str, env: Mapping[str, str], module: str, found: Mapping[str, str]
) -> frozenset[str] | None:
    identity = hashlib.sha256(repr((os.path.abspath(python), module, sorted(found.items()))).encode())
    kept = cache_folder() / f"flags-{identity.hexdigest()[:24]}.json"
    if (remembered := kept_flags(kept)) is not None:
        return remembered
    started = time.monotonic()
    flags = _ask_help(python, env, module)
    if flags and time.monotonic() - started > _WORTH_KEEPING_S:
        try:
            kept.parent.mkdir(parents=True, exist_ok=True)
            partial = kept.with_suffix(f".{os.getpid()}")
            partial.write_text(json.dumps(sorted(flags)))
            partial.replace(kept)
        except OSError:
            pass  # a cache that cannot be written costs time only
    return flags


def kept_flags(path: Path) -> frozenset[str] | None:
    """Flags kept by an earlier run; None when there are none or the file is damaged."""
    try:
        return frozenset(msgspec.json.decode(path.read_bytes(), type=list[str]))
    except (OSError, ValueError, RecursionError):
        return None


def _ask_help(python: str, env: Mapping[str, str], module: str) -> frozenset[str] | None:
    """Long options in the help text; None when there is none. Older versions know `--help` only."""
    for words in (["--help=all"], ["--help"]):
        try:
            done = _run([python, "-m", module, *words], env, _HELP_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired):
            continue
        flags = frozenset(_LONG_OPTION.findall(done.stdout))
        if done.returncode == 0 and "--model" in flags:
            return flags
    return None


def cache_folder() -> Path:
    """Where the auditor keeps what it asked an engine, between runs of the same user."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "equivalence-auditor"
