"""Engines killed or stopped in each kind of phase, while the audit goes on; then it is resumed."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from auditor.model.record import Event
from auditor.record.lines import read_lines
from tests.cases.audits import Ran, audit, cli, says
from tests.faults.processes import completions, nothing_left
from tests.run.harness import answers

STAGES = ("certify", "batch1", "load", "accuracy")
KILLED = tuple(f"kill-{stage}" for stage in STAGES)
STOPPED = tuple(f"stop-{stage}" for stage in STAGES)
OTHER = "other-state"
"""Killed at batch 1 as well; restarted, its server is in another state."""


class Sniper(threading.Thread):
    """Watches the journal and signals an arm's engine in the stage that the arm is named after."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__(daemon=True)
        self.journal = run_dir / "journal.jsonl"
        self.pids: dict[str, int] = {}
        self.hit: dict[str, str] = {}
        self.over = threading.Event()

    def run(self) -> None:
        seen = 0
        decoder = msgspec.json.Decoder(Event)
        while not self.over.is_set():
            whole = list(read_lines(self.journal)) if self.journal.exists() else []
            for _, line in whole[seen:]:
                self.look(decoder.decode(line))
            seen = len(whole)
            time.sleep(0.01)

    def look(self, event: Event) -> None:
        if event.launch is not None and event.launch.pid is not None:
            self.pids[event.launch.arm] = event.launch.pid
        phase = event.phase
        if phase is None or phase.state != "running" or phase.arm in self.hit:
            return
        how, _, stage = phase.arm.partition("-")
        if phase.arm == OTHER:
            how, stage = "kill", "batch1"
        if stage == phase.stage and how in ("kill", "stop"):
            os.kill(self.pids[phase.arm], signal.SIGKILL if how == "kill" else signal.SIGSTOP)
            self.hit[phase.arm] = phase.id


@pytest.fixture(scope="module")
def shot(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ran, Sniper]:
    folder = tmp_path_factory.mktemp("shot")
    sniper = Sniper(folder / "run")
    sniper.start()
    try:
        ran = audit(
            folder,
            {
                "all": {"answers": answers(0.7), "latency_ms": 25},
                "arms": {OTHER: [{}, {"state": "B", "flip_rate": 0.5}]},
            },
            "--stages=agreement,forensics,invariance,accuracy",
            "--gates=certification,head-ran,agreement,accuracy",
            "--accuracy-limit=16",
            "--accuracy-concurrency=4",
            "--request-timeout=4",
            drafts=[f"{arm}=ngram" for arm in (*KILLED, *STOPPED, OTHER)],
        )
    finally:
        sniper.over.set()
        sniper.join()
    return ran, sniper


def test_every_engine_was_hit_where_it_should_be(shot: tuple[Ran, Sniper]) -> None:
    _, sniper = shot
    assert {arm: phase.split("/")[0] for arm, phase in sniper.hit.items()} == {
        arm: "batch1" if arm == OTHER else arm.partition("-")[2] for arm in (*KILLED, *STOPPED, OTHER)
    }


@pytest.mark.parametrize("arm", [*KILLED, *STOPPED])
def test_a_lost_engine_is_an_error_of_its_arm_alone(shot: tuple[Ran, Sniper], arm: str) -> None:
    ran, sniper = shot
    assert ran.code == 5
    phase = next(p for p in ran.record.phases if p.id == sniper.hit[arm])
    assert phase.state == "error"
    says(phase.reason or "", "died" if arm in KILLED else "no reply within 4 s")
    mine = [g for g in ran.record.judgement.gates if g.name.endswith(f"/{arm}")]
    broken = [g for g in mine if g.status == "ERROR"]
    assert broken
    says(broken[0].remedy, "audit resume")
    assert all(g.status != "FAIL" for g in mine), "a lost engine is no wrong answer"
    for gate in ran.record.judgement.gates:
        if gate.name.endswith(("/control", "/reference")):
            assert gate.status == "PASS", gate


def test_no_process_no_port_is_left(shot: tuple[Ran, Sniper]) -> None:
    ran, sniper = shot
    nothing_left(ran.run_dir)
    assert not [arm for arm, pid in sniper.pids.items() if psutil.pid_exists(pid)]


def test_the_report_of_a_broken_audit_says_so(shot: tuple[Ran, Sniper]) -> None:
    ran, _ = shot
    says(ran.out, "ERROR (exit code 5)", "audit resume")
    page = (ran.run_dir / "report.html").read_text("utf-8")
    says(page, "ERROR", "audit resume")
    assert ran.record.status == "error"


def test_resuming_asks_for_the_rest_from_restarted_engines_and_refuses_another_state(
    shot: tuple[Ran, Sniper],
) -> None:
    ran, _ = shot
    before = {p.id: p for p in ran.record.phases if p.state == "done"}
    again = cli(ran.run_dir, "resume", "--display=none", str(ran.run_dir))
    record = again.record
    for arm in (*KILLED, *STOPPED):
        restarted = [x for x in record.launches if x.restart_of == f"{arm}-1"]
        assert len(restarted) == 1
        for gate in ("certification", "agreement"):
            assert again.gate(f"{gate}/{arm}").status == "PASS", again.gate(f"{gate}/{arm}")
        (accuracy,) = [t for t in record.judgement.accuracy if t.arm == arm]
        assert accuracy.both + accuracy.neither == 16
    assert {p.id: p for p in record.phases if p.id in before} == before, "what was done is not repeated"
    found = completions(again.run_dir)
    assert len(found) == len(set(found)), "measured twice"
    assert again.code == 5
    says(again.out, f"{OTHER}-1 was restarted from its own caches and shows another fingerprint")
    nothing_left(again.run_dir)
    assert cli(again.run_dir, "verify", str(again.run_dir)).code == 0


def test_an_engine_lost_while_it_scores_is_scored_by_resuming(tmp_path: Path) -> None:
    """It dies at the second score: a canary, two fingerprints, eight answers and a score came before."""
    faults = {"diverge": {"at": 3, "share": 1.0}}
    ran = audit(
        tmp_path,
        {"all": {}, "arms": {"ngram": [{**faults, "die_after": 12}, faults]}},
        "--gates=agreement",
        "--controls=none",
    )
    assert ran.code == 5, ran.out
    says(ran.out, "died while it was scoring")
    assert ran.launch("ngram-1").state == "died"
    nothing_left(ran.run_dir)
    again = cli(ran.run_dir, "resume", "--display=none", str(ran.run_dir))
    assert again.code == 0, again.out
    mine = [d for d in again.record.judgement.divergences if d.arm == "ngram"]
    assert len(mine) >= 7
    assert all(d.other_score is not None and d.other_score.margin is not None for d in mine)
    assert cli(again.run_dir, "verify", str(again.run_dir)).code == 0
