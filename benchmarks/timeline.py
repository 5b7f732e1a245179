"""Where the time of an audit went: `python -m benchmarks.timeline DIR…`, from the audit.json of each.

The figure is wall time over the least that the same work takes on the same servers: the span in which any
server was starting, plus the span in which any request was in flight, each counted once however many servers
overlap, and the time in which the two overlap counted once as well. 1.00: some server always started or
generated. What is left over is listed by where it was spent: before the first launch, between phases, after
the last one.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from auditor.model.record import AuditRecord
from auditor.record.evidence import read_record
from auditor.report.sections.overview import end_of

Span = tuple[float, float]


@dataclass(frozen=True)
class Timeline:
    """Seconds. `starting` and `generating` are unions over all servers; `sum_*` add up the servers."""

    wall: float
    starting: float
    generating: float
    either: float
    sum_starting: float
    sum_generating: float
    notes: float
    """Steps that are no phase (fingerprints, scores, stops) outside of both."""

    @property
    def ratio(self) -> float | None:
        """Wall over start-up and pure generation; None when nothing was started or generated."""
        return self.wall / self.either if self.either else None


def timeline(record: AuditRecord) -> Timeline:
    """A phase counts by its time with a request in flight, taken from its beginning."""
    end = end_of(record)
    starts = [
        (x.started_s, x.started_s + x.ready_s if x.ready_s is not None else x.ended_s or end)
        for x in record.launches
        if x.state != "attached"
    ]
    generates = [(p.started_s, p.started_s + (p.generating_s or 0.0)) for p in record.phases]
    both = union((*starts, *generates))
    noted = union((*both, *((n.started_s, n.ended_s) for n in record.notes)))
    return Timeline(
        wall=end,
        starting=total(union(starts)),
        generating=total(union(generates)),
        either=total(both),
        sum_starting=total(starts),
        sum_generating=total(generates),
        notes=total(noted) - total(both),
    )


def union(spans: Iterable[Span]) -> list[Span]:
    """Disjoint spans that cover the same time, in order."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def total(spans: Sequence[Span]) -> float:
    return sum(end - start for start, end in spans)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="DIR")
    print("| run | wall, s | starting | generating | either | wall ÷ either | other steps | rest |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for run in parser.parse_args().runs:
        if not (run / "audit.json").exists():
            continue  # a study of launch states
        found = timeline(read_record(run))
        ratio = "—" if found.ratio is None else f"{found.ratio:.3f}"
        print(
            f"| {run.resolve().name} | {found.wall:.0f} | {found.starting:.0f} ({found.sum_starting:.0f}) | "
            f"{found.generating:.0f} ({found.sum_generating:.0f}) | {found.either:.0f} | {ratio} | "
            f"{found.notes:.0f} | {found.wall - found.either - found.notes:.0f} |"
        )
    print("\nIn brackets: added up over the servers.")


if __name__ == "__main__":
    main()
