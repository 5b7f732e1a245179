"""The rooms of the package, and the one direction: plan -> engine -> measure -> record -> judge -> report.

Only `run` and `cli` see all rooms. Judging and statistics are pure: no file, clock, network or chance.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "auditor"
COMMON = {"errors", "clock", "resources", "cancelling", "model"}
"""May be imported from every room; `model` itself imports nothing of ours but `model`."""
MAY_SEE = {
    "model": set(),
    "stats": set(),
    "plan": {"stats"},
    "engine": {"plan"},
    "measure": {"plan", "engine"},
    "record": {"plan", "engine", "measure", "judge"},
    "judge": {"stats"},
    "report": {"stats", "judge", "record"},
    "demo": {"plan"},
}
"""Rooms that a room may import besides COMMON and itself. `record` sees `judge` to verify a record."""
LEAVES = {"auditor.record.digests"}
"""Modules that see nothing but COMMON themselves, so that any room may use them."""
IMPURE = {
    "asyncio", "datetime", "http", "httpx", "io", "logging", "multiprocessing", "os", "pathlib", "pickle",
    "platform", "random", "secrets", "shutil", "signal", "socket", "ssl", "subprocess", "sys", "tempfile",
    "threading", "time", "urllib", "uuid", "zoneinfo", "gzip", "mmap", "glob", "datasets", "psutil", "click",
}  # fmt: skip
PURE_LIBRARIES = {"msgspec", "numpy", "scipy"}


def imports(file: Path) -> set[str]:
    """Absolute dotted names that a file imports, those inside functions and type-checking blocks too."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            found.add(node.module or "")
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def rooms(names: set[str]) -> set[str]:
    """Rooms behind the names; a leaf counts for none."""
    ours = {n for n in names if n.startswith("auditor.")}
    return {n.split(".")[1] for n in ours if not any(n == x or n.startswith(f"{x}.") for x in LEAVES)}


def files(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


def back_edges(room: str, names: set[str]) -> set[str]:
    allowed = MAY_SEE[room] | {room} | (COMMON if room != "model" else set())
    known = set(MAY_SEE) | COMMON | {"run", "cli"}
    return (rooms(names) & known) - allowed


@pytest.mark.parametrize("room", sorted(MAY_SEE))
def test_no_room_imports_against_the_direction(room: str) -> None:
    wrong = {f.relative_to(ROOT): edges for f in files(room) if (edges := back_edges(room, imports(f)))}
    assert not wrong


@pytest.mark.parametrize("room", ["judge", "stats", "model"])
def test_judging_is_pure(room: str) -> None:
    for file in files(room):
        names = {name.split(".")[0] for name in imports(file)}
        assert not names & IMPURE, file
        outside = names - {"auditor", "__future__"} - PURE_LIBRARIES
        # What is left is the standard library's: nothing else may be installed for judging.
        assert outside <= sys.stdlib_module_names, file


@pytest.mark.parametrize("leaf", sorted(LEAVES))
def test_leaves_see_nothing_but_the_common_modules(leaf: str) -> None:
    file = ROOT.parent / f"{leaf.replace('.', '/')}.py"
    if file.exists():
        assert rooms(imports(file)) <= COMMON


def test_model_needs_msgspec_only() -> None:
    for file in files("model"):
        names = {name.split(".")[0] for name in imports(file)}
        assert not names & (PURE_LIBRARIES - {"msgspec"}), file


def test_a_back_edge_would_be_found() -> None:
    assert back_edges("judge", {"auditor.report.html"}) == {"report"}
    assert back_edges("stats", {"auditor.judge.margin"}) == {"judge"}
    assert back_edges("model", {"auditor.errors"}) == {"errors"}
    assert not back_edges("report", {"auditor.record.store", "auditor.model.plan"})
