"""Where the time went: one lane a launch, from start-up over its phases to the stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from auditor.report import numbers
from auditor.report.svg import Canvas, Scale, clip, x_axis

WIDTH = 900
NAMES = {"start": "start-up", "batch1": "batch 1", "dead": "failed start", "calibrate": "scores"}
STAGES = ("certify", "batch1", "load", "replay", "accuracy", "calibrate", "self-draft")


@dataclass(frozen=True, slots=True)
class Bar:
    start: float
    end: float
    kind: str
    """`start`, `dead` or a stage."""
    label: str


@dataclass(frozen=True, slots=True)
class Lane:
    name: str
    start: float
    end: float
    bars: tuple[Bar, ...]


def lanes(rows: Sequence[Lane], end: float) -> Markup:
    """`end`: seconds from the audit's origin to its end."""
    height = 26 * len(rows) + 76
    canvas = Canvas(
        WIDTH,
        height,
        id="timeline",
        title="Where the time went",
        desc="One lane a launch: start-up, then its phases by stage; thin line: the server stood idle. "
        + "; ".join(f"{r.name} from {numbers.seconds(r.start)} to {numbers.seconds(r.end)}" for r in rows)
        + ".",
    )
    x = Scale(0, max(end, 1e-9), 130, WIDTH - 16)
    bottom = 26 * len(rows) + 8
    step = next(
        (s for s in (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200) if end / s <= 8),
        86400,
    )
    ticks = [(k * step, _tick(k * step)) for k in range(int(end // step) + 1)]
    for value, _ in ticks:
        canvas.line(x(value), 4, x(value), bottom, "grid")
    for i, lane in enumerate(rows):
        y = 8 + 26 * i
        canvas.text(122, y + 13, clip(lane.name, 20), "", "end")
        canvas.line(x(lane.start), y + 9, x(lane.end), y + 9, "idle")
        for bar in lane.bars:
            width = max(1.0, x(bar.end) - x(bar.start))
            canvas.rect(x(bar.start), y, width, 18, f"t t-{bar.kind}", bar.label)
            if width > 7 * len(NAMES.get(bar.kind, bar.kind)) and bar.kind != "dead":
                canvas.text(x(bar.start) + width / 2, y + 13, NAMES.get(bar.kind, bar.kind), "in", "middle")
    x_axis(canvas, x, ticks, bottom, "since the start of the audit")
    kinds = ("start", *(s for s in STAGES if any(b.kind == s for r in rows for b in r.bars)))
    if any(b.kind == "dead" for r in rows for b in r.bars):
        kinds = (*kinds, "dead")
    for i, kind in enumerate(kinds):
        cx = 130 + 105 * i
        canvas.rect(cx, height - 24, 14, 12, f"t t-{kind}")
        canvas.text(cx + 19, height - 14, NAMES.get(kind, kind), "tick")
    return canvas.markup()


def _tick(value: float) -> str:
    """A round time without the unit that would be zero."""
    if value >= 3600:
        return f"{value / 3600:g} h"
    return f"{value / 60:g} min" if value >= 60 else f"{value:g} s"
