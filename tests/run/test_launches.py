"""`audit launches` against the scripted engine, through the command line."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from auditor.cli.main import main
from auditor.engine import host
from auditor.model.completion import Prompt
from auditor.model.plan import Arm, AuditPlan, EnginePlan
from auditor.model.study import LaunchStudy, StudyPlan
from auditor.record.digests import digest_file
from auditor.run.launches import seats
from tests.fakes.fake_vllm import install, write_target

Capture = pytest.CaptureFixture[str]
PROMPTS = 12
SMALL = (
    "--display=none",
    f"--certification-prompts={PROMPTS}",
    "--certification-max-tokens=16",
    "--request-timeout=20",
)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripted engines of tests that run beside these are no concern of theirs."""
    monkeypatch.setattr(host, "other_engines", lambda engine: [])


def tuned(state: str, h2: float, h4: float) -> dict[str, Any]:
    configs = [["BLOCK_SIZE_H: 2, BLOCK_SIZE_CHUNK: 64", h2], ["BLOCK_SIZE_H: 4, BLOCK_SIZE_CHUNK: 64", h4]]
    return {"state": state, "flip_rate": 0.3, "autotune": {"_chunk_cumsum_fwd_kernel": configs}}


A, B = tuned("A", 5.5, 5.7), tuned("B", 5.72, 5.51)


def run(capsys: Capture, folder: Path, script: dict[str, Any], *args: str) -> tuple[int, str, Path]:
    """Exit code, standard output and the run folder."""
    python, target, run_dir = (
        install(folder / "engine", script),
        write_target(folder / "target"),
        folder / "run",
    )
    where = (f"--target={target}", f"--engine-python={python}", f"--output={run_dir}")
    with pytest.raises(SystemExit) as end:
        main(["launches", *where, *SMALL, *args])
    shown = capsys.readouterr()
    return int(end.value.code or 0), shown.out + shown.err, run_dir


def document(run_dir: Path) -> LaunchStudy:
    return msgspec.json.decode((run_dir / "launches.json").read_bytes(), type=LaunchStudy)


def partition(study: LaunchStudy) -> list[tuple[str, ...]]:
    return [s.launches for s in study.result.states]


def test_states_are_counted_and_the_kernel_is_named(capsys: Capture, tmp_path: Path) -> None:
    script = {"arms": {"plain": [A, B, B, A]}}
    code, out, run_dir = run(capsys, tmp_path, script, "--count=4", "--concurrency=4")
    assert code == 0, out
    study = document(run_dir)
    assert study.status == "complete"
    assert partition(study) == [("plain-1", "plain-4"), ("plain-2", "plain-3")]
    assert [(s.state, s.share.k, s.share.n) for s in study.result.arms[0].states] == [
        ("A", 2, 4),
        ("B", 2, 4),
    ]
    kernel = study.result.kernels[0]
    assert (kernel.kernel, kernel.tells) == ("_chunk_cumsum_fwd_kernel", "every state")
    assert kernel.race_us == pytest.approx((5.5, 5.7))
    for o in study.result.observations:
        assert (o.repeatability.k, o.repeatability.n) == (PROMPTS, PROMPTS)
        assert o.under_load is not None
        assert o.boot_s is not None
    assert "2 launch states in 4 launches" in out
    assert "state A: 2 of 4" in out
    assert "BLOCK_SIZE_H: 2" in out


def test_the_folder_is_a_record(capsys: Capture, tmp_path: Path) -> None:
    code, out, run_dir = run(capsys, tmp_path, {}, "--count=2")
    assert code == 0, out
    study = document(run_dir)
    plan = msgspec.json.decode((run_dir / "plan.json").read_bytes(), type=AuditPlan)
    assert plan == study.plan
    assert msgspec.json.decode((run_dir / "study.json").read_bytes(), type=StudyPlan) == study.study
    for file in study.files:
        assert digest_file(run_dir / file.path, file.path) == file
    prompts = [
        msgspec.json.decode(x, type=Prompt) for x in (run_dir / "prompts.jsonl").read_bytes().splitlines()
    ]
    assert {p.corpus for p in prompts} == {"certification", "fingerprint"}
    lines = (run_dir / "completions.jsonl").read_bytes().splitlines()
    assert len(lines) == 2 * 2 * PROMPTS
    assert {json.loads(x)["phase"] for x in lines} == {
        f"certify/plain-{n}/pass{k}" for n in (1, 2) for k in (1, 2)
    }
    assert (run_dir / "launches.html").stat().st_size > 0
    assert len(study.fingerprints) == 2
    assert all((run_dir / x.log).exists() for x in study.launches if x.log)


def test_warm_launches_copy_the_first_ones_caches(capsys: Capture, tmp_path: Path) -> None:
    script = {"arms": {"plain": [A, B], "plain-warm": A, "ngram": [B, A], "ngram-warm": A}}
    code, out, run_dir = run(
        capsys, tmp_path, script, "--count=2", "--arms=cold,warm", "--draft=ngram", "--parallel=2"
    )
    assert code == 0, out
    study = document(run_dir)
    sources = {x.id: x.cache_from for x in study.launches}
    assert {k for k, v in sources.items() if v == "plain-1"} == {
        "plain-warm-1", "plain-warm-2", "ngram-warm-1", "ngram-warm-2",
    }  # fmt: skip
    assert sources["plain-2"] is sources["ngram-1"] is None
    cache = "triton-cache"
    copied = {p.name for p in (run_dir / "launches/plain-warm-1" / cache).rglob("*.json")}
    assert copied == {"_chunk_cumsum_fwd_kernel.autotune.json"}
    arms = {a.arm: a for a in study.result.arms}
    assert [(s.share.k, s.share.n) for s in arms["plain-warm"].states] == [(2, 2)]
    ngram = {s.launches: s.same_as for s in study.result.states if s.configuration == "ngram"}
    names = {x: s.name for s in study.result.states for x in s.launches}
    assert ngram[("ngram-1",)] == (names["plain-2"],)
    assert names["ngram-2"] == names["ngram-warm-1"]
    assert all(o.drafts for o in study.result.observations if o.configuration == "ngram")


def test_arms_take_turns(capsys: Capture, tmp_path: Path) -> None:
    code, out, run_dir = run(capsys, tmp_path, {}, "--count=2", "--draft=ngram")
    assert code == 0, out
    assert [x.id for x in document(run_dir).launches] == ["plain-1", "ngram-1", "plain-2", "ngram-2"]


def test_a_failed_launch_is_kept_and_the_others_go_on(capsys: Capture, tmp_path: Path) -> None:
    dead = {"exit_at_boot": {"code": 1, "message": "ValueError: scripted end"}}
    late = {"die_after": 15}
    code, out, run_dir = run(capsys, tmp_path, {"arms": {"plain": [A, dead, late, A]}}, "--count=4")
    assert code == 5, out
    study = document(run_dir)
    assert study.status == "error"
    assert "scripted end" in (study.error or "")
    assert [o.observed for o in study.result.observations] == [True, False, False, True]
    assert [x.state for x in study.launches] == ["stopped", "failed", "died", "stopped"]
    assert partition(study) == [("plain-1", "plain-4")]
    assert "scripted end" in (run_dir / "launches.html").read_text("utf-8")


def test_an_arm_that_never_starts_is_given_up(capsys: Capture, tmp_path: Path) -> None:
    dead = {"exit_at_boot": {"code": 1, "message": "ValueError: no such head"}}
    code, out, run_dir = run(
        capsys, tmp_path, {"arms": {"ngram": dead}}, "--count=4", "--draft=ngram", "--parallel=2"
    )
    assert code == 5, out
    study = document(run_dir)
    started = [x.arm for x in study.launches]
    assert started.count("plain") == 4
    assert 2 <= started.count("ngram") < 4
    assert "were not started" in (study.error or "")


@pytest.mark.parametrize("parallel", [1, 3])
def test_without_a_source_of_caches_warm_launches_do_not_wait(
    capsys: Capture, tmp_path: Path, parallel: int
) -> None:
    dead = {"exit_at_boot": {"code": 1, "message": "ValueError: scripted end"}}
    code, out, run_dir = run(
        capsys, tmp_path, {"all": dead}, "--count=2", "--arms=cold,warm", f"--parallel={parallel}"
    )
    assert code == 5, out
    study = document(run_dir)
    assert {x.arm for x in study.launches} == {"plain"}
    assert "no plain launch with cold caches was observed" in (study.error or "")
    assert "No launch was observed" in out


def test_a_server_that_does_not_repeat_itself(capsys: Capture, tmp_path: Path) -> None:
    wild = {"unrepeatable": {"share": 1.0}, "flip_rate": 0.3}
    code, out, run_dir = run(capsys, tmp_path, {"all": wild}, "--count=2")
    assert code == 0, out
    study = document(run_dir)
    assert study.result.states == ()
    assert study.result.arms[0].without_state == 2
    assert "do not repeat themselves" in out


def test_several_at_once(capsys: Capture, tmp_path: Path) -> None:
    script = {"all": {"latency_ms": 100}, "arms": {"plain": [A, A, A]}}
    code, out, run_dir = run(capsys, tmp_path, script, "--count=3", "--parallel=3")
    assert code == 0, out
    study = document(run_dir)
    assert {x.id for x in study.launches} == {"plain-1", "plain-2", "plain-3"}
    assert len(partition(study)) == 1
    first, second, _ = sorted(study.launches, key=lambda x: x.started_s)
    assert first.ended_s is not None
    assert second.started_s < first.ended_s, "the second started while the first was measured"


@pytest.mark.parametrize("times", [1, 2])
def test_a_signal_keeps_what_was_measured(capsys: Capture, tmp_path: Path, times: int) -> None:
    script = {"arms": {"plain": [A, A | {"latency_ms": 300}]}}
    run_dir = tmp_path / "run"

    def interrupt_second_launch() -> None:
        journal = run_dir / "journal.jsonl"
        while not (journal.exists() and b'"certify/plain-2/pass1"' in journal.read_bytes()):
            time.sleep(0.02)
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)

    watcher = threading.Thread(target=interrupt_second_launch)
    watcher.start()
    code, out, _ = run(capsys, tmp_path, script, "--count=3")
    watcher.join()
    assert code == 5, out
    study = document(run_dir)
    assert study.status == "interrupted"
    assert [o.observed for o in study.result.observations] == [True, False]
    assert [x.state for x in study.launches] == ["stopped", "stopped"]
    for launch in study.launches:
        assert launch.pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(launch.pid, 0)


def test_a_study_cannot_be_resumed_as_an_audit(capsys: Capture, tmp_path: Path) -> None:
    code, _, run_dir = run(capsys, tmp_path, {}, "--count=1")
    assert code == 0
    with pytest.raises(SystemExit) as end:
        main(["resume", str(run_dir)])
    assert end.value.code == 2
    assert "study of launch states" in capsys.readouterr().err


def test_json_on_standard_output(capsys: Capture, tmp_path: Path) -> None:
    python, target = install(tmp_path / "engine", {}), write_target(tmp_path / "target")
    where = (f"--target={target}", f"--engine-python={python}", f"--output={tmp_path / 'run'}")
    with pytest.raises(SystemExit):
        main(["launches", *where, *SMALL, "--count=1", "--json"])
    assert msgspec.json.decode(capsys.readouterr().out.encode(), type=LaunchStudy).study.count == 1


def plan_with(devices: Iterable[str], *args: str) -> AuditPlan:
    engine = EnginePlan(devices=tuple(devices), args=args)
    return AuditPlan(name="x", target="x", arms=(Arm(name="plain", role="reference"),), engine=engine)


@pytest.mark.parametrize(
    ("devices", "parallel", "placed", "fractions"),
    [
        ((), 1, [""], [None]),
        (("0", "1"), 2, ["0", "1"], [None, None]),
        (("0", "1"), 4, ["0", "1", "0", "1"], [0.45] * 4),
        (("0+1", "2+3"), 2, ["0+1", "2+3"], [None, None]),
        (("0",), 3, ["0"] * 3, [0.3] * 3),
    ],
)
def test_seats(
    devices: tuple[str, ...], parallel: int, placed: list[str], fractions: list[float | None]
) -> None:
    found = seats(plan_with(devices), parallel)
    assert [s.device for s in found] == placed
    assert [s.memory_fraction for s in found] == fractions


def test_seats_of_one_device_start_in_turn_unless_the_cache_has_a_size() -> None:
    one, two, other = seats(plan_with(("0", "1")), 3)
    assert one.starting is other.starting
    assert one.starting is not two.starting
    fixed = seats(plan_with(("0",), "--kv-cache-memory-bytes", "6G"), 3)
    assert [s.starting for s in fixed] == [None] * 3
