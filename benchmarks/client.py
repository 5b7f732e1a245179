"""Is the auditor's client ever the bottleneck? `python benchmarks/client.py [--write FILE]`

The accuracy phase, a bare aiohttp loop (the floor) and every other client that is installed ask the same
stub server the same prompts, one after the other in one run. Request wall time and concurrency are what the
stub saw; process wall time, CPU seconds and memory are those of the client's whole process tree. Figures of
different runs do not compare, ratios within one run do. The ideal is the delay times the rounds that the
requests take at that level: a client that costs nothing. In the end all ask vLLM on the CPU (the demo's
target), whose own gauge, read ten times a second, then tells when requests ran and how many.

The other clients: `python -m venv .venvs/peers && .venvs/peers/bin/pip install -r benchmarks/peers.txt`;
`vllm bench serve` comes from the engine environment of `make setup`.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.contenders import Contender, Job, contenders, write_inputs
from benchmarks.engine import Gauge, engine
from benchmarks.stub import NAME, TOKENS

ROOT = Path(__file__).resolve().parents[1]
REQUESTS = 1319
LIMIT_S = 240.0


@dataclass(frozen=True)
class Result:
    """One contender at one delay and level. Times in seconds, memory in MiB."""

    wall_s: float
    mean: float | None
    """Requests in flight over the steady phase; None where none lasted long enough to be seen."""
    peak: int | None
    process_s: float
    cpu_s: float
    memory_mib: float
    asked: int


@dataclass(frozen=True)
class Flight:
    """What a server saw of `requests` requests."""

    wall_s: float
    mean: float | None
    peak: int


def flight(arrived: Sequence[float], answered: Sequence[float | None], level: int) -> Flight:
    """Wall time from the first arrival to the last answer, and requests in flight.

    The mean is over time, from the arrival that completes the level to the last arrival: before and after
    it no client can hold the level. None where that span is shorter than 10 ms.
    """
    ends = [e for e in answered if e is not None]
    moves = sorted([(t, 1) for t in arrived] + [(t, -1) for t in ends])
    first, last = arrived[min(level, len(arrived)) - 1], arrived[-1]
    count = peak = 0
    area, before = 0.0, first
    for at, step in moves:
        if first < at <= last:
            area += count * (at - before)
            before = at
        count += step
        peak = max(peak, count)
    mean = area / (last - first) if last - first > 0.01 else None
    return Flight(max(ends) - arrived[0], mean, peak)


@contextlib.contextmanager
def stub() -> Iterator[str]:
    """The URL of a stub server in a process of its own."""
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("stub.py"))], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as reply:
        return json.load(reply)


def run_process(command: Sequence[str], folder: Path, log: Path) -> tuple[float, float, float, int]:
    """(wall seconds, CPU seconds, peak MiB of the tree, exit status) of one command."""
    env = os.environ | {
        "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HOME": str(folder / "hub"),
        "OPENAI_API_KEY": "none", "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": str(ROOT),
        "GUIDELLM__LOGGING__DISABLED": "true",
    }  # fmt: skip
    begun = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=folder, env=env, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    memory = Memory(process.pid)
    timer = threading.Timer(LIMIT_S, lambda: os.killpg(process.pid, 9))
    timer.start()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - begun
    timer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    memory.stop()
    return wall, usage.ru_utime + usage.ru_stime, memory.peak_mib, process.returncode


class Memory:
    """Peak of the resident memory of a process and all its descendants: the process's own peak as the kernel
    keeps it, looked at twenty times a second, or the sum over the tree, four times a second.

    Not the peak that waiting for the process returns: it includes this process's memory at the fork.
    """

    def __init__(self, pid: int) -> None:
        self.peak_mib = 0.0
        self._process = psutil.Process(pid)
        self._status = Path(f"/proc/{pid}/status")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        looks = 0
        while True:
            self.peak_mib = max(self.peak_mib, self._own(), self._tree() if looks % 5 == 0 else 0.0)
            if self._over.wait(0.05):
                return
            looks += 1

    def _own(self) -> float:
        with contextlib.suppress(OSError):
            for line in self._status.read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) / 1024
        return 0.0

    def _tree(self) -> float:
        total = 0
        with contextlib.suppress(psutil.Error):
            for process in [self._process, *self._process.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    total += process.memory_info().rss
        return total / 2**20


def measure(contender: Contender, job: Job, delay_ms: float) -> Result | str:
    """One run of one contender, or why there is none."""
    get(f"{job.url}/stub/reset?delay_ms={delay_ms}")
    log = job.folder / "output.log"
    wall, cpu, memory, status = run_process(contender.command(contender.python, job), job.folder, log)
    seen = get(f"{job.url}/stub/log")
    # a client may send a request of its own first: the last ones are the measured ones
    arrived, answered = seen["arrived"][-job.requests :], seen["answered"][-job.requests :]
    if status or len(arrived) < job.requests:
        tail = log.read_text(errors="replace").strip().splitlines()[-1:] or [""]
        return f"exit status {status}, {len(arrived)} of {job.requests} requests: {tail[0][:200]}"
    found = flight(arrived, answered, job.in_flight)
    visible = delay_ms > 0
    return Result(
        wall_s=found.wall_s,
        mean=found.mean if visible else None,
        peak=found.peak if visible else None,
        process_s=wall,
        cpu_s=cpu,
        memory_mib=memory,
        asked=len(seen["arrived"]),
    )


def measure_on_engine(contender: Contender, job: Job) -> Result | str:
    """One run of one contender against vLLM, whose own gauge tells when requests ran and how many."""
    log = job.folder / "output.log"
    gauge = Gauge(job.url)
    wall, cpu, memory, status = run_process(contender.command(contender.python, job), job.folder, log)
    gauge.stop()
    asked = gauge.wall_s()
    if status or asked is None:
        tail = log.read_text(errors="replace").strip().splitlines()[-1:] or [""]
        return f"exit status {status}: {tail[0][:200]}"
    return Result(
        wall_s=asked,
        mean=gauge.mean(job.in_flight),
        peak=gauge.peak(),
        process_s=wall,
        cpu_s=cpu,
        memory_mib=memory,
        asked=job.requests,
    )


def middle(results: Sequence[Result]) -> Result:
    """The run with the median wall time."""
    ordered = sorted(results, key=lambda r: r.wall_s)
    return ordered[(len(ordered) - 1) // 2]


def row(
    name: str, delay: float | None, job: Job, found: Result | str, floor: Result | None, load: float
) -> str:
    shown = "vLLM" if delay is None else f"{delay:g}"
    where = f"| {shown} | {job.in_flight} | {name} |"
    if isinstance(found, str):
        return f"{where} {found} ||||||||| {load:.1f} |"
    ratio = f"{found.wall_s / floor.wall_s:.2f}" if floor else "—"
    least = math.ceil(job.requests / job.in_flight) * (delay or 0.0) / 1000
    ideal = f"{found.wall_s / least:.2f}" if least else "—"
    share = f"{100 * found.mean / job.in_flight:.1f}%" if found.mean is not None else "—"
    peak = "—" if found.peak is None else str(found.peak)
    return (
        f"{where} {found.wall_s:.2f} | {ratio} | {ideal} | {share} | {peak} | {found.process_s:.1f} | "
        f"{found.cpu_s:.1f} | {found.memory_mib:.0f} | {load:.1f} |"
    )


HEAD = (
    "| delay, ms | in flight | client | requests, s | × floor | × ideal | mean in flight | peak | process, s "
    "| CPU, s | memory, MiB | load |\n|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def machine() -> str:
    """Processor, cores, Python and date, as the table's caption."""
    model = "unknown processor"
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), model)
    today = datetime.datetime.now(datetime.UTC).date()
    return f"{model}, {os.cpu_count()} cores, Python {sys.version.split()[0]}, {today}"


def compare(options: argparse.Namespace, emit: Any) -> None:
    everybody = contenders(options.peers, options.vllm)
    absent = {c.name: why for c in everybody if (why := c.absent()) is not None}
    for name, why in absent.items():
        emit(f"{name}: skipped, {why}.\n")
    present = [c for c in everybody if c.name not in absent and any(o in c.name for o in options.only)]
    emit(HEAD)
    with stub() as url, tempfile.TemporaryDirectory() as folder:
        write_inputs(Path(folder), options.requests, options.prompt_tokens, TOKENS)
        for delay in options.delays:
            for level in options.levels:
                job = Job(url, NAME, Path(folder), options.requests, level, options.prompt_tokens, TOKENS)
                _one_setting(present, job, delay, options.repeats, emit)


def compare_on_engine(options: argparse.Namespace, emit: Any) -> None:
    """Everybody once at each level against one vLLM server on the CPU."""
    present = [
        c
        for c in contenders(options.peers, options.vllm)
        if c.absent() is None and any(o in c.name for o in options.only)
    ]
    emit(f"\nAgainst vLLM for the CPU, {options.engine_requests} requests.\n\n{HEAD}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder, options.engine_requests, options.prompt_tokens, TOKENS)
        with engine(options.vllm, folder / "tokenizer", folder / "engine.log") as url:
            for level in options.levels:
                job = Job(url, NAME, folder, options.engine_requests, level, options.prompt_tokens, TOKENS)
                floor: Result | None = None
                for contender in present:
                    load = os.getloadavg()[0]
                    found = measure_on_engine(contender, job)
                    if contender.name.startswith("aiohttp") and isinstance(found, Result):
                        floor = found
                    emit(row(contender.name, None, job, found, floor, load))


def _one_setting(present: Sequence[Contender], job: Job, delay: float, repeats: int, emit: Any) -> None:
    """Ours and the floor take turns `repeats` times; the others, whose start-up is long, run once."""
    floor: Result | None = None
    ours = [c for c in present if c.name.startswith(("audit", "aiohttp"))]
    runs: dict[str, list[Result]] = {c.name: [] for c in ours}
    loads: dict[str, float] = {}
    failed: dict[str, str] = {}
    for _ in range(repeats):
        for contender in ours:
            loads[contender.name] = os.getloadavg()[0]
            found = measure(contender, job, delay)
            if isinstance(found, str):
                failed[contender.name] = found
            else:
                runs[contender.name].append(found)
    for contender in ours:
        mine: Result | str = failed.get(contender.name) or middle(runs[contender.name])
        if contender.name.startswith("aiohttp") and isinstance(mine, Result):
            floor = mine
        emit(row(contender.name, delay, job, mine, floor, loads[contender.name]))
    for contender in present:
        if contender not in ours:
            load = os.getloadavg()[0]
            emit(row(contender.name, delay, job, measure(contender, job, delay), floor, load))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--delays", type=float, nargs="*", default=[0, 50, 500], help="of the stub, ms")
    parser.add_argument("--levels", type=int, nargs="+", default=[32, 128], help="requests in flight")
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--prompt-tokens", type=int, default=200)
    parser.add_argument(
        "--repeats", type=int, default=3, help="runs of ours and of the floor (the median counts)"
    )
    parser.add_argument("--peers", default=str(ROOT / ".venvs/peers/bin/python"), metavar="PYTHON")
    parser.add_argument("--vllm", default=str(ROOT / ".venvs/cpu-engine/bin/python"), metavar="PYTHON")
    parser.add_argument("--engine-requests", type=int, default=400, help="asked of vLLM; 0: leave it out")
    parser.add_argument("--only", nargs="+", default=[""], help="contenders whose names hold one of these")
    parser.add_argument("--write", type=Path, help="also write the table here")
    options = parser.parse_args()
    lines: list[str] = []

    def emit(text: str) -> None:
        print(text, flush=True)
        lines.append(text)

    emit(f"{options.requests} requests of {options.prompt_tokens} prompt tokens. {machine()}.\n")
    if options.delays:
        compare(options, emit)
    if options.engine_requests:
        compare_on_engine(options, emit)
    if options.write:
        options.write.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
