"""tests/README.md: every case and every fault has a test that exists, and the tables cannot go stale."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

TESTS = Path(__file__).parent
ROW = re.compile(r"^\| (?P<what>[^|]+) \| (?P<face>[^|]+) \| (?P<outcome>[^|]+) \| `(?P<test>[^`]+)` \|$")
FAULTS = (
    "SIGKILL of the auditor", "SIGKILL of an engine", "SIGSTOP of an engine", "disk full", "torn last line",
    "corrupted record", "clock that jumps", "stalls mid-body", "429, 500, 503", "out of order", "10 MB",
    "ids out of the vocabulary", "NaN and −inf", "duplicate ids", "empty corpus", "non-UTF-8 bytes",
    "existing output folder", "markup", "ANSI", "secrets", "trust_env", "paths in a plan",
    "--trust-remote-code", "loopback", "process",
)  # fmt: skip


def rows() -> list[re.Match[str]]:
    lines = (TESTS / "README.md").read_text("utf-8").splitlines()
    found = [ROW.match(line) for line in lines if line.startswith("| ")]
    return [row for row in found if row is not None]


def functions(path: Path) -> set[str]:
    return {n.name for n in ast.parse(path.read_text("utf-8")).body if isinstance(n, ast.FunctionDef)}


def test_every_open_case_is_in_the_table() -> None:
    lines = (TESTS / "data" / "cases_open.jsonl").read_text("utf-8").splitlines()
    wanted = {json.loads(line)["id"] for line in lines}
    assert len(wanted) == 56
    assert wanted - {row["what"] for row in rows()} == set()


def test_every_test_of_the_tables_exists() -> None:
    assert rows()
    for row in rows():
        path, _, name = row["test"].partition("::")
        assert name in functions(TESTS / path), row["test"]


def test_every_test_named_by_a_case_or_of_a_fault_is_in_the_tables() -> None:
    listed = {row["test"] for row in rows()}
    for path in sorted((TESTS / "cases").glob("test_*.py")):
        for name in functions(path):
            case = re.match(r"test_([A-I]\d+)_", name)
            if case:
                assert any(row["what"] == case[1] for row in rows()), name
    for word in FAULTS:
        assert any(word in f"{row['what']} {row['outcome']}" for row in rows()), word
    assert len(listed) > 80
