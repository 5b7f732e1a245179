"""Time of the exact unconditional test against the number of pairs: `python benchmarks/exact_test.py`.

Five per cent of the pairs are discordant, the margin is 0.05. Each figure is the least of several runs: what
the code takes when nothing else wants the processor.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

from auditor.stats.exact import exact_critical_value, exact_tost
from auditor.stats.paired import score_interval
from auditor.stats.power import equivalence_power

SIZES = (59, 164, 500, 1319, 3000, 10_000)
MARGIN = 0.05


def least_ms(call: Callable[[], object], repeats: int) -> float:
    """The least wall time of `repeats` calls, in milliseconds."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return 1000.0 * best


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5, help="runs per figure (default 5)")
    repeats = parser.parse_args().repeats
    print("     n    b    c    exact p  exact ms  score ms  power ms  critical ms")
    for n in SIZES:
        c = round(0.03 * n)
        b = round(0.05 * n) - c
        p = exact_tost(b, c, n, MARGIN).p
        exact = least_ms(partial(exact_tost, b, c, n, MARGIN), repeats)
        score = least_ms(partial(score_interval, b, c, n, 0.9), repeats)
        power = least_ms(partial(equivalence_power, n, MARGIN, 0.05), repeats)
        critical = least_ms(partial(exact_critical_value, n, MARGIN), 1)
        print(f"{n:>6} {b:>4} {c:>4} {p:>10.3g} {exact:>9.1f} {score:>9.2f} {power:>9.2f} {critical:>12.0f}")


if __name__ == "__main__":
    main()
