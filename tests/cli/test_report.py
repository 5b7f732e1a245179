"""`audit report` on a run folder as the record writes it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from auditor.model.record import Event
from auditor.record.store import Recorder
from tests.report import gold


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished record on disk."""
    record, evidence = gold.failing()
    folder = tmp_path_factory.mktemp("run") / "run"
    with Recorder.create(folder, record.plan, evidence.all_prompts) as recorder:
        for answers in evidence.by_phase.values():
            for answer in answers:
                recorder.answer(answer)
        for launch in record.launches:
            recorder.event(Event(launch=launch))
        for phase in record.phases:
            recorder.event(Event(phase=phase))
        recorder.finish(
            status="complete",
            error=None,
            environment=record.environment,
            identities=record.identities,
            command=record.command,
            judgement=record.judgement,
        )
    return folder


def audit(*args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "auditor", "report", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)


def test_html_goes_beside_the_record_and_is_the_same_again(run_dir: Path) -> None:
    first = audit(run_dir)
    assert (first.returncode, first.stdout) == (0, "")
    once = (run_dir / "report.html").read_bytes()
    (run_dir / "report.html").unlink()
    assert audit(run_dir).returncode == 0
    assert (run_dir / "report.html").read_bytes() == once
    assert b" every day." in once.replace(b"<i> </i>", b" "), "completions come from the record"


@pytest.mark.parametrize("kind", ["markdown", "junit", "sarif", "model-card"])
def test_other_formats_go_to_standard_output(run_dir: Path, kind: str) -> None:
    result = audit(run_dir, "--format", kind)
    assert (result.returncode, result.stderr) == (0, "")
    if kind == "junit":
        assert ET.fromstring(result.stdout).attrib["failures"] == "4"
    elif kind == "sarif":
        assert json.loads(result.stdout)["version"] == "2.1.0"
    else:
        assert "FAIL" in result.stdout


def test_html_to_standard_output(run_dir: Path) -> None:
    result = audit(run_dir, "--output", "-")
    assert result.stdout.startswith("<!doctype html>")
    assert result.returncode == 0


def test_output_path(run_dir: Path, tmp_path: Path) -> None:
    assert audit(run_dir, "--format", "junit", "--output", tmp_path / "j.xml").returncode == 0
    assert os.listdir(tmp_path) == ["j.xml"]


def test_an_output_that_cannot_be_written_is_an_error(run_dir: Path, tmp_path: Path) -> None:
    result = audit(run_dir, "--output", tmp_path / "absent" / "report.html")
    assert result.returncode == 5
    assert "could not be written" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_folder_without_a_record_is_refused(tmp_path: Path) -> None:
    result = audit(tmp_path)
    assert result.returncode == 2
    assert "audit.json" in result.stderr
    assert "Traceback" not in result.stderr
    assert os.listdir(tmp_path) == []


def test_an_unknown_format_is_a_usage_error(run_dir: Path) -> None:
    result = audit(run_dir, "--format", "pdf")
    assert result.returncode == 2
    assert "model-card" in result.stderr
