"""The demo's artefacts, read without PyTorch, and its generator, which lives outside the package."""

import importlib
import json
import struct
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "auditor" / "demo"
CORPUS = ROOT / "corpora" / "demo-sums"


class Checkpoint:
    """Header and raw bytes of a safetensors file."""

    def __init__(self, path: Path) -> None:
        content = path.read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        self.header: dict[str, dict[str, Any]] = json.loads(content[8 : 8 + length])
        self.header.pop("__metadata__", None)
        self._data = content[8 + length :]

    def raw(self, name: str) -> bytes:
        """The tensor's bytes, little endian."""
        start, end = self.header[name]["data_offsets"]
        return self._data[start:end]

    def integers(self, name: str) -> list[int]:
        """The values of an int64 tensor."""
        assert self.header[name]["dtype"] == "I64"
        data = self.raw(name)
        return list(struct.unpack(f"<{len(data) // 8}q", data))


def config(name: str) -> dict[str, Any]:
    """config.json of one of the models."""
    value: dict[str, Any] = json.loads((DEMO / name / "config.json").read_text())
    return value


def manifest() -> list[dict[str, Any]]:
    """The manifest's file entries."""
    entries: list[dict[str, Any]] = tomllib.loads((DEMO / "MANIFEST.toml").read_text())["files"]
    return entries


@pytest.fixture
def problems(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """tools/demo_model/problems.py; its folder is no package, so its siblings are found by path."""
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "demo_model"))
    return importlib.import_module("problems")
