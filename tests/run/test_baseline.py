"""`--baseline` and `audit diff` on whole audits of the scripted engine: gate, record, verify, exit codes."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from auditor.cli.main import main
from auditor.model.baseline import Baseline, RunDiff
from auditor.model.record import AuditRecord
from tests.fakes.fake_vllm import install, write_target
from tests.run.harness import SMALL, answers

HONEST: dict[str, Any] = {"all": {"answers": answers(0.7)}}
WORSE = {**HONEST, "arms": {"ngram": {"answers": answers(0.7, other=40), "acceptance": 0.3}}}
QUICK = ("--gates=head-ran,agreement,accuracy", "--limit=8", "--certification-prompts=8")


def audit(*args: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as end:
        main(args)
    return int(end.value.code or 0), out.getvalue(), err.getvalue()


def equivalence(folder: Path, name: str, script: Mapping[str, Any], *args: str) -> tuple[int, str, str]:
    """One audit into `folder/name`; all of a folder have one target."""
    python = install(folder / f"engine-{name}", dict(script))
    options = (f"--target={folder / 'target'}", f"--engine-python={python}", f"--output={folder / name}")
    return audit("equivalence", "--draft=ngram", *options, *SMALL, *QUICK, *args)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`release`, and `worse`, which has the release as its baseline."""
    folder = tmp_path_factory.mktemp("runs")
    write_target(folder / "target")
    assert equivalence(folder, "release", HONEST)[0] == 0
    assert equivalence(folder, "worse", WORSE, f"--baseline={folder / 'release'}")[0] == 1
    return folder


def record(run: Path) -> AuditRecord:
    return msgspec.json.decode((run / "audit.json").read_bytes(), type=AuditRecord)


def test_regressions_fail_the_gate_and_verify_recomputes_it(runs: Path) -> None:
    made = record(runs / "worse")
    (found,) = [g for g in made.judgement.gates if g.name == "baseline/ngram"]
    assert found.status == "FAIL"
    assert "accuracy" in found.figure
    assert "acceptance length" in found.figure
    assert "baseline.json" in {f.path for f in made.files}
    assert audit("verify", str(runs / "worse"))[0] == 0


def test_the_folder_alone_is_enough(runs: Path, tmp_path: Path) -> None:
    """The baseline's own folder may be gone when the record is verified."""
    alone = shutil.copytree(runs / "worse", tmp_path / "worse")
    plan = json.loads((alone / "plan.json").read_text("utf-8"))
    assert plan["baseline"]["path"] == str(runs / "release")
    (runs / "release").rename(runs / "away")
    try:
        assert audit("verify", str(alone))[0] == 0
    finally:
        (runs / "away").rename(runs / "release")


@pytest.mark.parametrize("kind", ["edited", "missing", "unlisted", "of other weights"])
def test_a_changed_baseline_is_found(runs: Path, tmp_path: Path, kind: str) -> None:
    run = shutil.copytree(runs / "worse", tmp_path / "worse")
    file = run / "baseline.json"
    if kind == "missing":
        file.unlink()
    elif kind == "edited":
        file.write_bytes(file.read_bytes().replace(b'"margin":0.05', b'"margin":0.15'))
    else:
        document = json.loads((run / "audit.json").read_text("utf-8"))
        if kind == "unlisted":
            document["files"] = [f for f in document["files"] if f["path"] != "baseline.json"]
        else:
            document["identities"][0]["digest"] = "0" * 64
        (run / "audit.json").write_text(json.dumps(document), "utf-8")
    code, out, _ = audit("verify", str(run))
    assert code == 2
    assert "baseline.json" in out


def test_what_is_kept_is_the_run_as_it_was(runs: Path) -> None:
    kept = msgspec.json.decode((runs / "worse" / "baseline.json").read_bytes(), type=Baseline)
    assert (kept.before.run, kept.before.verdict) == ("release", "PASS")
    assert kept.before.date == record(runs / "release").date
    assert {i.name for i in kept.identities} == {i.name for i in record(runs / "worse").identities}


def test_diff_exits_1_and_tells_all(runs: Path, tmp_path: Path) -> None:
    page = tmp_path / "diff.html"
    release, worse = str(runs / "release"), str(runs / "worse")
    code, out, _ = audit("diff", release, worse, f"--html={page}")
    assert code == 1
    assert out.startswith("REGRESSION (exit code 1)")
    assert "Regression" in page.read_text("utf-8")
    code, out, _ = audit("diff", release, worse, "--json")
    found = msgspec.json.decode(out.encode(), type=RunDiff)
    assert (code, found.exit_code, found.outcome) == (1, 1, "regression")
    assert found.before.run == "release"
    assert ("accuracy/ngram", "PASS", "FAIL") in {(g.name, g.before, g.after) for g in found.gates}


def test_diff_exits_0_without_a_regression(runs: Path) -> None:
    code, out, _ = audit("diff", str(runs / "worse"), str(runs / "release"))
    assert (code, out.splitlines()[0]) == (0, "NO REGRESSION (exit code 0)")


def test_diff_exits_4_for_another_target(runs: Path, tmp_path: Path) -> None:
    other = shutil.copytree(runs / "release", tmp_path / "other")
    document = json.loads((other / "audit.json").read_text("utf-8"))
    next(i for i in document["identities"] if i["name"] == "target")["digest"] = "0" * 64
    (other / "audit.json").write_text(json.dumps(document), "utf-8")
    code, out, _ = audit("diff", str(runs / "release"), str(other))
    assert code == 4
    assert "NOT COMPARABLE" in out
    assert "target" in out


@pytest.mark.parametrize("kind", ["absent", "empty", "tampered"])
def test_diff_exits_2_for_what_is_no_intact_audit(runs: Path, tmp_path: Path, kind: str) -> None:
    run = tmp_path / "run"
    if kind == "empty":
        run.mkdir()
    if kind == "tampered":
        shutil.copytree(runs / "release", run)
        with (run / "completions.jsonl").open("ab") as file:
            file.write(b"\n")
    code, _, err = audit("diff", str(runs / "release"), str(run))
    assert code == 2
    assert "Traceback" not in err
    assert ("completions.jsonl was changed" if kind == "tampered" else "audit.json") in err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"status": "interrupted", "error": "stopped by a signal"}, "is interrupted"),
        ({}, None),
        ({"target": "0" * 64}, "another target"),
        (None, "audit.json"),
    ],
)
def test_a_baseline_that_cannot_serve_is_refused_before_any_server(
    runs: Path, tmp_path: Path, change: dict[str, Any] | None, said: str | None
) -> None:
    base = tmp_path / "base"
    if change is not None:
        shutil.copytree(runs / "release", base)
        document = json.loads((base / "audit.json").read_text("utf-8"))
        if "target" in change:
            next(i for i in document["identities"] if i["name"] == "target")["digest"] = change["target"]
        else:
            document |= change
        (base / "audit.json").write_text(json.dumps(document), "utf-8")
    write_target(tmp_path / "target")
    args = [f"--baseline={base}"]
    if said is None:
        # Everything else fits, but no prompt does: another cap.
        args.append("--max-tokens=39")
        args.append("--gates=agreement")
        said = "none of this plan's prompts"
    code, _, err = equivalence(tmp_path, "run", HONEST, *args)
    assert code == 2, err
    assert said in err
    assert not (tmp_path / "run").exists()
