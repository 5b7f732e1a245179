"""What vLLM found out about model classes, kept between launches.

To learn what a model's class supports, vLLM imports itself in one more process, and keeps the answer in
VLLM_CACHE_ROOT/modelinfos beside the hash of the class's source file. Cache roots of launches are private and
start empty, so that every launch would ask again: about ten seconds each. The answers are facts about source
code, which vLLM checks against that hash, and no state of a launch: they are copied in and out.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from pathlib import Path

from auditor.engine.base import EngineInfo
from auditor.engine.inspect import cache_folder
from auditor.engine.pins import VLLM_CACHE

_FOLDER = "modelinfos"


def bring(info: EngineInfo, launch: Path) -> None:
    """Copies what is kept of this engine into the cache root of a launch folder; what is there stays."""
    _copy(_kept(info), launch / VLLM_CACHE / _FOLDER, replace=False)


def keep(info: EngineInfo, launch: Path) -> None:
    """Keeps what a launch found out."""
    _copy(launch / VLLM_CACHE / _FOLDER, _kept(info), replace=True)


def _kept(info: EngineInfo) -> Path:
    """Of one interpreter and its versions."""
    identity = repr((os.path.abspath(info.python), info.version, sorted(info.packages.items())))
    return cache_folder() / f"{_FOLDER}-{hashlib.sha256(identity.encode()).hexdigest()[:24]}"


def _copy(source: Path, target: Path, *, replace: bool) -> None:
    # a cache that cannot be read or written costs time only
    with contextlib.suppress(OSError):
        for path in sorted(source.glob("*.json")):
            there = target / path.name
            if not there.exists() or (replace and there.read_bytes() != path.read_bytes()):
                target.mkdir(parents=True, exist_ok=True)
                partial = target / f".{path.name}.{os.getpid()}"
                shutil.copyfile(path, partial)
                partial.replace(there)
