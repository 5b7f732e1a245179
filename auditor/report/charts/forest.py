"""Differences between two runs with their 95% intervals, one line each, around zero."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from auditor.model.baseline import Change
from auditor.report import numbers
from auditor.report.svg import Canvas, Scale, clip, x_axis

WIDTH = 720
ROW = 24


def plot(changes: Sequence[Change], styles: dict[str, int]) -> Markup:
    """Left of zero: lower in the run after. Hollow marks: unpaired. Changes without an interval are left out
    (the table has them)."""
    rows = [(c, c.interval95, c.difference) for c in changes if c.interval95 and c.difference is not None]
    reach = max((abs(v) for _, i, _ in rows for v in (i.low, i.high)), default=0.05)
    limit = min(1.0, reach * 1.1)
    height = 52 + ROW * len(rows)
    canvas = Canvas(
        WIDTH,
        height,
        id="forest",
        title="Change between the runs with 95% intervals",
        desc="; ".join(f"{_name(c)} {numbers.interval_points(i)}" for c, i, _ in rows) + ".",
    )
    x = Scale(-limit, limit, 270, WIDTH - 16)
    bottom = height - 40
    for n, (change, interval, difference) in enumerate(rows):
        y = 16 + ROW * n
        style = styles.get(change.arm, 2)
        canvas.text(262, y + 4, clip(_name(change), 40), "tick", "end")
        canvas.line(x(interval.low), y, x(interval.high), y, f"l solid s{style}")
        for end in (interval.low, interval.high):
            canvas.line(x(end), y - 4, x(end), y + 4, f"l solid s{style}")
        canvas.mark(style, x(difference), y, hollow=not change.paired, tip=numbers.interval_points(interval))
    canvas.line(x(0), 4, x(0), bottom, "zero")
    step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if limit / s <= 4 or s == 0.5)
    ticks = [k * step for k in range(-4, 5) if abs(k * step) <= limit]
    labels = [(v, numbers.signed(v, 0, 100)) for v in ticks]
    x_axis(canvas, x, labels, bottom, "run after minus run before, percentage points")
    return canvas.markup()


def _name(change: Change) -> str:
    return f"{change.arm}, {change.what}, {change.subject}"
