"""Options of `audit launches`: what it refuses, and the plan that it makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from auditor.cli.launches import plan_study
from auditor.cli.main import main
from auditor.errors import InvalidPlan
from auditor.model.plan import AuditPlan
from auditor.model.study import StudyPlan
from tests.fakes.fake_vllm import write_target

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return str(write_target(tmp_path / "target"))


def made(target: str, *drafts: str, arms: tuple[str, ...] = ("cold",), pin: str = "none", parallel: int = 1,
         **options: object) -> tuple[AuditPlan, StudyPlan]:  # fmt: skip
    return plan_study({"target": target, "draft": drafts, **options}, 6, arms, parallel, None, pin)


def test_the_plan_launches_and_judges_nothing(target: str) -> None:
    plan, study = made(target)
    assert [(a.name, a.role, a.draft) for a in plan.arms] == [("plain", "reference", None)]
    assert (plan.gates, plan.pin, plan.name) == ((), "none", "target-launches")
    assert plan.agreement is plan.forensics is plan.invariance is plan.accuracy is None
    assert (study.count, study.planned) == (6, 6)
    assert plan.engine.one_at_a_time


def test_arms_are_configurations_times_caches(target: str) -> None:
    plan, study = made(target, "ngram", "lookup=ngram", arms=("cold", "warm"), parallel=2)
    assert [(a.name, a.configuration, a.caches) for a in study.arms] == [
        ("plain", "plain", "cold"),
        ("plain-warm", "plain", "warm"),
        ("ngram", "ngram", "cold"),
        ("ngram-warm", "ngram", "warm"),
        ("lookup", "lookup", "cold"),
        ("lookup-warm", "lookup", "warm"),
    ]
    assert [a.role for a in plan.arms] == ["reference", "control", *["candidate"] * 4]
    assert study.planned == 36
    assert not plan.engine.one_at_a_time


def test_only_drafts_of_the_command_line_are_arms(target: str, tmp_path: Path) -> None:
    (tmp_path / "audit.toml").write_text('draft = ["ngram", "suffix"]\nname = "mine"\n')
    plan, _ = made(target)
    assert [a.name for a in plan.arms] == ["plain"]
    assert plan.name == "mine"
    plan, _ = made(target, "suffix")
    assert [a.name for a in plan.arms] == ["plain", "suffix"]


def test_pin_force_is_for_all_launches(target: str) -> None:
    assert made(target, pin="force")[0].pin == "force"


def test_running_servers_are_no_launches(target: str, tmp_path: Path) -> None:
    urls = "\n".join(f'{n}_url = "http://127.0.0.1:1"' for n in ("reference", "control", "candidate"))
    (tmp_path / "audit.toml").write_text(f"[attach]\n{urls}\n")
    with pytest.raises(InvalidPlan, match="attach"):
        made(target)


@pytest.mark.parametrize("name", ["plain=ngram", "x-warm=ngram"])
def test_a_draft_with_the_name_of_an_arm(target: str, name: str) -> None:
    with pytest.raises(InvalidPlan, match="one name"):
        made(target, name, "x=ngram", arms=("cold", "warm"))


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["--count=0"], "count"),
        (["--arms=hot"], "--arms"),
        (["--arms="], "--arms"),
        (["--arms=warm"], "cold"),
        (["--pin=snapshot"], "snapshot"),
        (["--parallel=0"], "parallel"),
        (["--concurrency=1"], "concurrency"),
        (["--certification-prompts=10"], "at least 11"),
        (["--attempts=3"], "attempts"),
        (["--gates=accuracy"], "gates"),
        (["--draft=no-such-head"], "no-such-head"),
    ],
)
def test_bad_input_exits_with_2_and_one_sentence(
    capsys: Capture, target: str, tmp_path: Path, args: list[str], word: str
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["launches", f"--target={target}", f"--output={tmp_path / 'run'}", *args])
    said = capsys.readouterr().err
    assert end.value.code == 2
    assert word in said
    assert "Traceback" not in said
    assert not (tmp_path / "run").exists()


def test_without_a_target(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["launches"])
    assert end.value.code == 2
    assert "--target" in capsys.readouterr().err
