"""The pipelines in examples/: valid by the vendors' schemas, and saying what the command line understands."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from auditor.cli.equivalence import equivalence

EXAMPLES = Path(__file__).parents[2] / "examples"
PIPELINES = {"github-actions.yml": "vendor.github-workflows", "gitlab-ci.yml": "vendor.gitlab-ci"}
RUN_FILES = {"report.html", "summary.md", "junit.xml", "audit.sarif", "audit.json"}
RAW_FILES = {"prompts.jsonl", "completions.jsonl", "journal.jsonl", "*.jsonl"}


def load(name: str) -> Any:
    return yaml.safe_load((EXAMPLES / name).read_text(encoding="utf-8"))


def commands(name: str) -> list[list[str]]:
    """Every `audit …` command of a pipeline, as words."""
    document = load(name)
    if name.startswith("github"):
        scripts = [step["run"] for step in document["jobs"]["audit"]["steps"] if "run" in step]
    else:
        scripts = document["equivalence-audit"]["script"]
    words = [shlex.split(line) for script in scripts for line in script.splitlines()]
    return [line for line in words if line and line[0].endswith("/audit")]


@pytest.mark.parametrize(("name", "schema"), PIPELINES.items())
def test_schema(name: str, schema: str) -> None:
    transform = ["--data-transform", "gitlab-ci"] if "gitlab" in schema else []
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        schema,
        *transform,
        EXAMPLES / name,
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("name", PIPELINES)
def test_commands_exist(name: str) -> None:
    found = commands(name)
    assert found, "the pipeline runs no audit"
    options = {o for p in equivalence.params if isinstance(p, click.Option) for o in p.opts}
    for words in found:
        assert words[1] == "equivalence"
        flags = {w for w in words if w.startswith("--")}
        assert "--draft" in flags
        assert flags <= options


@pytest.mark.parametrize("name", PIPELINES)
def test_nothing_hides_the_exit_code(name: str) -> None:
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for hiding in ("continue-on-error", "allow_failure", "|| true", "set +e"):
        assert hiding not in code


@pytest.mark.parametrize("name", PIPELINES)
def test_documents_are_kept_also_after_a_failure(name: str) -> None:
    document = load(name)
    if name.startswith("github"):
        uploads = [s for s in document["jobs"]["audit"]["steps"] if "upload" in s.get("uses", "")]
        assert all("cancelled()" in s["if"] for s in uploads)
        paths = {Path(p).name for s in uploads for p in s["with"].get("path", "").split()}
        assert any(s["with"].get("sarif_file") == "audit-run/audit.sarif" for s in uploads)
    else:
        artifacts = document["equivalence-audit"]["artifacts"]
        assert artifacts["when"] == "always"
        paths = {Path(p).name for p in artifacts["paths"]} | {Path(artifacts["reports"]["junit"]).name}
    assert paths >= RUN_FILES
    assert paths <= RUN_FILES | RAW_FILES


def test_actions_are_pinned_and_rights_are_named() -> None:
    document = load("github-actions.yml")
    assert document["permissions"] == {}
    used = [s["uses"] for s in document["jobs"]["audit"]["steps"] if "uses" in s]
    assert all(len(u.split("@")[1]) == 40 for u in used)
