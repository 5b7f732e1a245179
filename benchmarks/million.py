"""A record of a million completions: `python -m benchmarks.million [--completions N …]`

A synthetic audit of three arms is written through the Recorder, resumed, indexed, judged, verified and
rendered; each step in a process of its own, with its wall time, CPU seconds and peak memory. Several sizes
show whether time grows with the size and nothing else.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

TOKENS = 128
CODE = "code"
STEPS = ("write", "resume", "judge", "finish", "verify", "render")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--completions", type=int, nargs="+", default=[250_000, 500_000, 1_000_000])
    parser.add_argument("--folder", type=Path, help="keep the records here instead of a temporary folder")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        STEP[options.step](options.folder, options.completions[0])
        return
    print("| completions | record, MiB | step | wall, s | CPU, s | µs CPU a completion | peak memory, MiB |")
    print("|--:|--:|---|--:|--:|--:|--:|")
    for count in options.completions:
        parent = options.folder or Path(tempfile.mkdtemp(prefix="million-"))
        try:
            for step in STEPS:
                print(_step(step, parent / f"run-{count}", count), flush=True)
        finally:
            if not options.folder:
                shutil.rmtree(parent)


def _step(step: str, folder: Path, count: int) -> str:
    command = [sys.executable, "-m", "benchmarks.million", "--step", step, "--folder", str(folder),
               "--completions", str(count)]  # fmt: skip
    begun = time.monotonic()
    process = subprocess.Popen(command)
    # ru_maxrss includes this process at the fork, which imports the standard library only
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{step} ended with exit status {process.returncode}")
    size = (folder / "completions.jsonl").stat().st_size / 2**20
    cpu = usage.ru_utime + usage.ru_stime
    return (
        f"| {count:,} | {size:.0f} | {step} | {wall:.1f} | {cpu:.1f} | {1e6 * cpu / count:.1f} | "
        f"{usage.ru_maxrss / 1024:.0f} |"
    )


def _plan(count: int):  # type: ignore[no-untyped-def]
    """Three arms; batch 1 and accuracy take the whole corpus, the load a quarter of it twice."""
    from auditor.model.plan import (
        AccuracyPlan,
        AgreementPlan,
        Arm,
        AuditPlan,
        CorpusUse,
        Draft,
        EnginePlan,
        ForensicsPlan,
        InvariancePlan,
    )  # fmt: skip

    draft = Draft(name="eagle3", method="eagle3", path="head")
    return AuditPlan(
        name="a million completions",
        target="synthetic",
        target_kind="random-weight",
        arms=(
            Arm(name="reference", role="reference"),
            Arm(name="control", role="control"),
            Arm(name="eagle3", role="candidate", draft=draft),
        ),
        engine=EnginePlan(),
        agreement=AgreementPlan(corpora=(CorpusUse(name=CODE, max_tokens=TOKENS),)),
        forensics=ForensicsPlan(),
        invariance=InvariancePlan(levels=(8,), prompts=_problems(count) // 4),
        accuracy=AccuracyPlan(corpus=CorpusUse(name="maths", max_tokens=TOKENS)),
    )


def _problems(count: int) -> int:
    """Items of each corpus. Completions an item and arm: batch 1, accuracy, and 3/4 under load and replay."""
    return max(8, round(count / (3 * 2.75)))


def _prompts(count: int):  # type: ignore[no-untyped-def]
    from auditor.model.completion import Prompt

    label = _plan(count).accuracy.label
    certification = [("certification", None)] * 64
    problems = [(CODE, None)] * _problems(count) + [(label, "42")] * _problems(count)
    numbers: dict[str, int] = {}
    for corpus, gold in (*certification, *problems):
        n = numbers[corpus] = numbers.get(corpus, -1) + 1
        yield Prompt(
            id=f"{corpus}/{n}", corpus=corpus, token_ids=tuple((n * 31 + k) % 50_000 for k in range(64)),
            text=f"problem {n} " * 8, gold=gold, max_tokens=TOKENS,
        )  # fmt: skip


def _phases(count: int) -> Iterator[tuple[str, str, str, str, int, int, int]]:
    """(id, stage, arm, corpus, items, level, pass)"""
    n, label = _problems(count), _plan(count).accuracy.label
    for arm in ("reference", "control", "eagle3"):
        launch = f"{arm}-1"
        for k in (1, 2):
            yield f"certify/{launch}/pass{k}", "certify", arm, "certification", 64, 1, k
        yield f"batch1/{launch}/{CODE}", "batch1", arm, CODE, n, 1, 1
        for k in (1, 2):
            yield f"load/{launch}/n8/run{k}", "load", arm, CODE, n // 4, 8, k
        yield f"replay/{launch}", "replay", arm, CODE, n // 4, 1, 1
        yield f"accuracy/{launch}/{label}", "accuracy", arm, label, n, 32, 1


def write(folder: Path, count: int) -> None:
    """One in a thousand of the candidate's completions differs, one in ten thousand failed; 1 in 200 answers
    is wrong, other ones in each arm."""
    import msgspec

    from auditor.model.completion import Completion, RequestFailure
    from auditor.model.launch import Launch
    from auditor.model.phase import ConcurrencySummary, Counters, Phase
    from auditor.model.record import Event
    from auditor.record.store import Recorder

    text = "so the answer is forty-two, step by step. " * 8
    begun, at = time.process_time(), 0.0
    with Recorder.create(folder, _plan(count), _prompts(count)) as recorder:
        for arm in ("reference", "control", "eagle3"):
            launch = Launch(
                id=f"{arm}-1", arm=arm, attempt=1, state="ready", base_url="http://127.0.0.1:1",
                served_name=arm, started_s=0.0, ready_s=1.0,
            )  # fmt: skip
            recorder.event(Event(launch=launch))
        drafted = 0
        for ident, stage, arm, corpus, items, level, k in _phases(count):
            shift = len(arm)
            held = ConcurrencySummary(
                samples=100, rate_hz=12.0, mean_running=float(level), peak_running=level, max_waiting=0,
                held_fraction=1.0, achieved=level,
            )  # fmt: skip
            before = Counters(drafts=drafted, draft_tokens=3 * drafted, accepted_tokens=2 * drafted)
            phase = Phase(
                id=ident, stage=stage, launch=f"{arm}-1", arm=arm,
                corpus=corpus, concurrency=level, pass_no=k, planned=items, state="running", started_s=at,
                before=before if arm == "eagle3" else Counters(),
            )  # fmt: skip
            recorder.event(Event(phase=phase))
            for n in range(items):
                at += 0.001
                ids = [(n * 17 + t * 5) % 50_000 for t in range(TOKENS)]
                failed = arm == "eagle3" and n % 10_000 == 9_999
                if arm == "eagle3" and n % 1000 == 500:
                    ids[n % TOKENS] += 1
                if failed:
                    recorder.answer(
                        RequestFailure(phase=ident, prompt=f"{corpus}/{n}", reason="http-500",
                                       started_s=at, ended_s=at)
                    )  # fmt: skip
                    continue
                wrong = (n + 31 * shift) % 200 == 0
                recorder.answer(
                    Completion(
                        phase=ident, prompt=f"{corpus}/{n}", token_ids=tuple(ids),
                        text=f"{text}#### {41 if wrong else 42}", finish_reason="length", usage_prompt=64,
                        usage_completion=TOKENS, prompt_ids_match=True, started_s=at, ended_s=at + 0.5,
                    )
                )  # fmt: skip
            drafted += items
            after = Counters(drafts=drafted, draft_tokens=3 * drafted, accepted_tokens=2 * drafted)
            recorder.event(
                Event(
                    phase=msgspec.structs.replace(
                        phase, state="done", ended_s=at, generating_s=at - phase.started_s,
                        after=after if arm == "eagle3" else Counters(),
                        concurrency_summary=held if stage in ("load", "accuracy") else None,
                    )
                )
            )  # fmt: skip
        recorder.flush()
    print(f"written in {time.process_time() - begun:.1f} CPU seconds", file=sys.stderr)


def resume(folder: Path, count: int) -> None:
    from auditor.record.store import Recorder

    with Recorder.resume(folder) as recorder:
        assert len(recorder.done(f"batch1/reference-1/{CODE}")) == _problems(count)


def judge(folder: Path, count: int) -> None:
    from auditor.judge.judge import judge as judged
    from auditor.record.evidence import StoredEvidence

    found = judged(StoredEvidence.load(folder, status="complete"))
    agreed = found.agreement[-1].agreement
    print(f"{found.verdict.name}, {agreed.k:,} of {agreed.n:,} agree", file=sys.stderr)


def finish(folder: Path, count: int) -> None:
    """What the end of a run does: index, judge, digests, audit.json."""
    from auditor.judge.judge import judge as judged
    from auditor.model.record import Environment
    from auditor.record.store import Recorder

    with Recorder.resume(folder) as recorder:
        recorder.end_measuring()
        recorder.finish(
            status="complete", error=None, identities=(), command=("audit", "equivalence"),
            environment=Environment(
                auditor_version="0", python="3", platform="synthetic", cpu="", cpu_count=1, memory_gib=1.0,
                devices=(), packages=(),
            ),
            judgement=judged(recorder.evidence("complete")),
        )  # fmt: skip


def verify(folder: Path, count: int) -> None:
    from auditor.record.verify import verify as check

    result = check(folder)
    if result.status != "same":
        sys.exit(f"{result.status}: {result.reason} {result.first_difference}")


def render(folder: Path, count: int) -> None:
    from auditor.record.evidence import StoredEvidence, read_record
    from auditor.report.html import render as html

    page = html(read_record(folder), StoredEvidence.load(folder))
    print(f"a page of {len(page.encode()) / 2**20:.1f} MiB", file=sys.stderr)


STEP: dict[str, Callable[[Path, int], None]] = {
    "write": write, "resume": resume, "judge": judge, "finish": finish, "verify": verify, "render": render,
}  # fmt: skip

if __name__ == "__main__":
    main()
