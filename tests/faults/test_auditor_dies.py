"""The auditor is killed, interrupted or runs out of disk, and goes on with `audit resume`."""

from __future__ import annotations

import asyncio
import random
import resource
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest

from auditor.cancelling import STOPPING, through
from auditor.clock import RealClock
from auditor.measure.watch import summarise_record
from auditor.model.phase import ConcurrencySample
from auditor.record.lines import cut_torn_line
from auditor.run.context import read_samples, write_sample
from tests.cases.audits import Ran, arguments, audit, cli, says
from tests.faults.processes import (
    completions,
    launches,
    lines,
    nothing_left,
    start,
    until,
    verdict,
)
from tests.run.harness import answers

SCRIPT = {
    "all": {"answers": answers(0.7), "latency_ms": 8},
    "arms": {"ngram": {"diverge": {"at": 3, "share": 0.4}}},
}
STAGES = (
    "--stages=agreement,forensics,invariance,accuracy",
    "--gates=certification,head-ran,agreement,accuracy",
    "--accuracy-concurrency=4",
)
"""Every stage runs; whether a level was held depends on the machine's load, so that gate is left out."""
KILLS = 4


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    ran = audit(tmp_path_factory.mktemp("undisturbed"), SCRIPT, *STAGES)
    assert ran.code in (0, 1, 4), ran.out
    return ran


def test_sigkill_at_random_moments_changes_no_verdict_and_loses_nothing(
    undisturbed: Ran, tmp_path: Path
) -> None:
    """Interrupted once and killed four times, each time in another part of the run, then resumed."""
    run_dir, wanted = tmp_path / "run", completions(undisturbed.run_dir)
    rng = random.Random(20)
    moments = [0] + [int(len(wanted) * (k + rng.random()) / KILLS) for k in range(KILLS)]
    command = arguments(tmp_path, SCRIPT, *STAGES)
    for number, moment in enumerate(moments):
        process = start(*command)

        def reached(moment: int = moment) -> bool:
            file = "completions.jsonl" if moment else "journal.jsonl"
            return lines(run_dir / file) > moment

        if not until(reached, process):
            break
        if number == 1:
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=120)
            assert process.returncode == 5
            assert "Traceback" not in err
            assert (run_dir / "audit.json").exists(), "interrupted, but recorded"
        else:
            process.kill()
            process.communicate()
            assert not (run_dir / "report.html").exists() or number > 1
        nothing_left(run_dir)
        if number == 2:
            for name in ("completions.jsonl", "journal.jsonl"):
                with (run_dir / name).open("ab") as file:
                    file.write(b'{"kind":"completion","phase":"batch1/ref')
        command = ["resume", "--display=none", str(run_dir)]
    process = start(*command)
    out, err = process.communicate(timeout=300)
    assert "Traceback" not in err
    assert process.returncode == undisturbed.code, out + err
    nothing_left(run_dir)
    found = Counter(completions(run_dir))
    assert max(found.values()) == 1, "measured twice"
    assert plain(found) == plain(Counter(wanted)), "lost, or measured in addition"
    assert verdict(run_dir) == verdict(undisturbed.run_dir)
    record = Ran(0, out, err, run_dir).record
    assert len(record.resumed) == len(moments)
    assert any("torn last line" in r.note for r in record.resumed)
    assert cli(run_dir, "verify", str(run_dir)).code == 0


def plain(found: Counter[tuple[str, str, int]]) -> set[tuple[str, str, int]]:
    """Without the attempt's number: a launch killed while it started leaves its number unused."""
    return {
        ("/".join("" if "-" in part else part for part in phase.split("/")), prompt, repeat)
        for phase, prompt, repeat in found
    }


def test_a_full_disk_ends_in_one_sentence_and_resuming_gives_the_same_verdict(
    undisturbed: Ran, tmp_path: Path
) -> None:
    sizes = {n: (undisturbed.run_dir / n).stat().st_size for n in ("prompts.jsonl", "completions.jsonl")}
    limit = (sizes["completions.jsonl"] + sizes["prompts.jsonl"]) // 2
    assert sizes["prompts.jsonl"] < limit < sizes["completions.jsonl"], sizes

    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    run_dir = tmp_path / "run"
    process = start(*arguments(tmp_path, SCRIPT, *STAGES), preexec_fn=full)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 5, out + err
    assert "Traceback" not in err
    says(err, "Could not write", "free some space", "audit resume")
    assert not (run_dir / "report.html").exists()
    assert not list(run_dir.glob("*.part"))
    nothing_left(run_dir)
    ran = cli(run_dir, "resume", "--display=none", str(run_dir))
    assert ran.code == undisturbed.code, ran.out + ran.err
    assert max(Counter(completions(run_dir)).values()) == 1
    assert verdict(run_dir) == verdict(undisturbed.run_dir)


def test_a_second_signal_during_clean_up_waits_for_the_servers() -> None:
    ended: list[bool] = []
    told: list[str] = []

    async def clean_up() -> None:
        await asyncio.sleep(0.05)
        ended.append(True)

    async def scene() -> None:
        task = asyncio.ensure_future(through(clean_up(), told.append))
        for _ in range(3):
            await asyncio.sleep(0)
            task.cancel()
        await task

    asyncio.run(scene())
    assert ended == [True]
    assert STOPPING in told


def test_a_level_is_judged_by_the_samples_of_all_processes(tmp_path: Path) -> None:
    """Four samples of the killed process, one of them of another phase, and a torn one; then two more."""
    path = tmp_path / "samples.jsonl"
    seen = [("load/a", 2), ("load/a", 2), ("load/b", 1), ("load/a", 1)]
    with path.open("ab") as file:
        for at, (phase, running) in enumerate(seen):
            write_sample(file, phase, ConcurrencySample(at_s=at, running=running, waiting=0, in_flight=2))
        file.write(b'{"phase":"load/a","at_s":9')
    assert len(read_samples(path, "load/a")) == 3, "the torn one is left out"
    assert cut_torn_line(path) > 0
    with path.open("ab") as file:
        for at in (20, 21):
            write_sample(file, "load/a", ConcurrencySample(at_s=at, running=2, waiting=0, in_flight=2))
    found = summarise_record(read_samples(path, "load/a"), [], 2, RealClock())
    assert (found.samples, found.held_fraction, found.achieved) == (5, 0.8, 2)


@pytest.mark.parametrize("name", ["completions.jsonl", "journal.jsonl", "prompts.jsonl", "plan.json"])
def test_a_corrupted_record_is_refused_by_digest_and_named(
    undisturbed: Ran, tmp_path: Path, name: str
) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(undisturbed.run_dir, run_dir)
    path = run_dir / name
    raw = bytearray(path.read_bytes())
    at = raw.index(b"0", len(raw) // 3)
    raw[at] = ord("1")
    path.write_bytes(raw)
    ran = cli(run_dir, "verify", str(run_dir))
    assert ran.code == 2
    says(ran.out + ran.err, name, "was changed", "sha256")


def test_a_damaged_line_inside_is_not_resumed_over(undisturbed: Ran, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(undisturbed.run_dir, run_dir)
    (run_dir / "audit.json").unlink()
    path = run_dir / "completions.jsonl"
    raw = bytearray(path.read_bytes())
    raw[raw.index(b'"phase"')] = 0x7D
    path.write_bytes(raw)
    ran = cli(run_dir, "resume", "--display=none", str(run_dir))
    assert ran.code == 2
    says(ran.err, "Line 1 of completions.jsonl is damaged", "start a new audit")
    assert not launches(run_dir).keys() - {x.id for x in undisturbed.record.launches}


def test_a_complete_audit_is_not_resumed(undisturbed: Ran) -> None:
    ran = cli(undisturbed.run_dir, "resume", str(undisturbed.run_dir))
    assert ran.code == 2
    says(ran.err, "is complete", "audit report")
