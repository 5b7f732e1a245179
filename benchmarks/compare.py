"""`audit compare` against reading the files: `python -m benchmarks.compare [--pairs N] [--tokens T]`

Both files are written to a temporary folder; one pair in a hundred differs, and half of the other lines
differ in what is no answer (an arrival time). The bare readers split the files into lines, or decode every
line with msgspec as well, and compare nothing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

READ = "import sys\nfor f in sys.argv[1:]:\n    for line in open(f, 'rb', buffering=1 << 20): pass\n"
DECODE = (
    "import sys, msgspec\n"
    "class Line(msgspec.Struct):\n    id: str\n    token_ids: list[int]\n"
    "read = msgspec.json.Decoder(Line).decode\n"
    "for f in sys.argv[1:]:\n    for line in open(f, 'rb', buffering=1 << 20): read(line)\n"
)


def write(path: Path, pairs: int, tokens: int, candidate: bool) -> None:
    numbers = [(7919 * k) % 50_000 for k in range(tokens + 997)]
    shown = [str(n) for n in numbers]
    with path.open("w") as file:
        for i in range(pairs):
            ids = shown[i % 997 : i % 997 + tokens]
            if candidate and i % 100 == 7:
                ids[tokens // 2] = "50001"
            late = ',"arrived":2' if candidate and i % 2 else ""
            file.write(
                f'{{"id":"p/{i}","token_ids":[{", ".join(ids)}],"text":"{"word " * 20}",'
                f'"finish_reason":"length","usage":{{"completion_tokens":{tokens}}}{late}}}\n'
            )


def timed(command: list[str]) -> tuple[float, float, float]:
    """(wall seconds, CPU seconds, peak MiB)"""
    begun = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    return time.monotonic() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--tokens", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / "reference.jsonl", Path(folder) / "candidate.jsonl"]
        for i, file in enumerate(files):
            write(file, options.pairs, options.tokens, bool(i))
        size = sum(f.stat().st_size for f in files) / 2**20
        print(f"{options.pairs:,} pairs of {options.tokens:,} tokens, {size:,.0f} MiB in two files")
        print("| | wall, s | CPU, s | MiB/s of CPU time | peak memory, MiB |\n|---|--:|--:|--:|--:|")
        call = "import sys; from auditor.cli.main import main; main(sys.argv[1:])"
        audit = [sys.executable, "-c", call, "compare", *map(str, files)]
        for name, command in (
            ("read the lines", [sys.executable, "-c", READ, *map(str, files)]),
            ("read and decode the ids", [sys.executable, "-c", DECODE, *map(str, files)]),
            ("audit compare", audit),
        ):
            wall, cpu, memory = timed(command)
            print(f"| {name} | {wall:.1f} | {cpu:.1f} | {size / cpu:,.0f} | {memory:.0f} |", flush=True)


if __name__ == "__main__":
    main()
