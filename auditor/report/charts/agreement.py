"""Plots of byte-exact agreement: k of n with Wilson intervals, and survival by token index."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from auditor.model.judgement import Agreement, SurvivalPoint
from auditor.report import numbers
from auditor.report.svg import (
    Canvas,
    Scale,
    at,
    clip,
    floor_of,
    legend,
    legend_height,
    log_ticks,
    percent_ticks,
    slug,
    x_axis,
    y_axis,
)

WIDTH = 400
FEWEST = 5
"""Kaplan-Meier is drawn while so many are at risk: beyond, one divergence takes the curve to zero."""


def forest(corpus: str, rows: Sequence[Agreement], styles: dict[str, int]) -> Markup:
    """One row an arm; the line is the Wilson 95% interval."""
    known = [a for a in rows if a.agreement.wilson95 is not None]
    low = floor_of([a.agreement.wilson95.low for a in known if a.agreement.wilson95])
    height = 30 * max(1, len(rows)) + 50
    said = "; ".join(f"{a.arm} {numbers.proportion(a.agreement)}" for a in rows)
    canvas = Canvas(
        WIDTH,
        height,
        id=f"forest-{slug(corpus)}",
        title=f"Agreement at batch 1, {corpus}",
        desc=f"Share of completions equal to the reference's, with Wilson 95% intervals: {said}.",
    )
    x = Scale(low, 1.0, 110, WIDTH - 16)
    bottom = height - 40
    for value, _ in percent_ticks(low):
        canvas.line(x(value), 4, x(value), bottom, "grid")
    x_axis(canvas, x, percent_ticks(low), bottom, "completions that agree with the reference")
    for i, a in enumerate(rows):
        y = 18 + 30 * i
        style = styles.get(a.arm, 2)
        canvas.text(102, y + 4, clip(a.arm, 17), "", "end")
        interval = a.agreement.wilson95
        if interval is None or not a.agreement.n:
            canvas.text(x.start + 4, y + 4, "nothing compared", "tick")
            continue
        canvas.line(x(interval.low), y, x(interval.high), y, f"l solid s{style}")
        canvas.mark(style, x(a.agreement.k / a.agreement.n), y, tip=numbers.proportion(a.agreement))
    return canvas.markup()


def survival(corpus: str, rows: Sequence[Agreement], styles: dict[str, int]) -> Markup:
    """Share of prompts still in agreement after each token, Kaplan-Meier, with its 95% band."""
    drawn = {a.arm: _drawn(a.survival) for a in rows}
    last = max((p.token for points in drawn.values() for p in points), default=1)
    low = floor_of([p.low for points in drawn.values() for p in points])
    entries = [(styles.get(a.arm, 2), a.arm) for a in rows]
    extra = legend_height(len(entries), WIDTH - 60)
    height = 250 + extra
    canvas = Canvas(
        WIDTH,
        height,
        id=f"survival-{slug(corpus)}",
        title=f"Survival of agreement by token index, {corpus}",
        desc="Kaplan–Meier share of completions that still agree with the reference after each generated "
        f"token, up to token {last:,}, one staircase an arm with its 95% band.",
    )
    top, bottom = 10.0, 200.0
    x = Scale(1, max(2, last), 46, WIDTH - 14, log=True)
    y = Scale(low, 1.0, bottom, top)
    y_axis(canvas, y, percent_ticks(low), x.start, x.end)
    x_axis(canvas, x, log_ticks(max(2, last)), bottom, "generated token (log scale)")
    for a in rows:
        style = styles.get(a.arm, 2)
        points = _thin(drawn[a.arm], x)
        upper = [(x(1), y(1.0)), *((x(p.token), y(p.high)) for p in points)]
        lower = [(x(1), y(1.0)), *((x(p.token), y(p.low)) for p in points)]
        canvas.area(upper, lower, f"band s{style}")
        canvas.steps([(x(1), y(1.0)), *((x(p.token), y(p.survival)) for p in points)], f"l s{style}")
        if points:
            canvas.mark(style, x(points[-1].token), y(points[-1].survival))
    legend(canvas, entries, 46, 248, WIDTH - 60)
    return canvas.markup()


def _drawn(points: Sequence[SurvivalPoint]) -> Sequence[SurvivalPoint]:
    """All points of a corpus too small to ever have enough at risk."""
    return [p for p in points if p.at_risk >= FEWEST] or points


def _thin(points: Sequence[SurvivalPoint], x: Scale) -> list[SurvivalPoint]:
    """The last point of each tenth of a unit of x: what the eye can tell apart, whatever n is."""
    kept: dict[str, SurvivalPoint] = {}
    for p in points:
        kept[at(x(p.token))] = p
    return list(kept.values())
