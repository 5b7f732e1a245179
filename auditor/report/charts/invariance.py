"""Self-agreement under load against concurrency, the reference's curve under the candidate's."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from auditor.model.judgement import Invariance
from auditor.report import numbers
from auditor.report.svg import (
    Canvas,
    Scale,
    floor_of,
    legend,
    legend_height,
    percent_ticks,
    slug,
    x_axis,
    y_axis,
)

WIDTH = 400


def place(row: Invariance) -> int | None:
    """Where the point stands: the level asked for when it was held, else what was achieved."""
    return row.level if row.held else row.achieved


def curve(
    arm: str, rows: Sequence[Invariance], reference: Sequence[Invariance], styles: dict[str, int]
) -> Markup:
    """`rows` of one arm; `reference` is drawn beneath. Hollow marks: the level was not held."""
    lines = [(name, part) for name, part in (("reference", reference), (arm, rows)) if part]
    if reference and reference[0].arm == arm:
        lines = [(arm, rows)]
    named = [(part[0].arm, part) for _, part in lines]
    points = [r for _, part in named for r in part if r.self_agreement.wilson95 and place(r)]
    low = floor_of([r.self_agreement.wilson95.low for r in points if r.self_agreement.wilson95])
    levels = sorted({r.level for _, part in named for r in part} | {p for r in points if (p := place(r))})
    top_level = max(levels, default=2)
    entries = [(styles.get(name, 2), name) for name, _ in named]
    extra = legend_height(len(entries), WIDTH - 60)
    said = "; ".join(
        f"{r.arm} at {place(r)}: {numbers.proportion(r.self_agreement)}{'' if r.held else ' (not held)'}"
        for r in points
    )
    canvas = Canvas(
        WIDTH,
        250 + extra,
        id=f"invariance-{slug(arm)}",
        title=f"Self-agreement under load, {arm}",
        desc="Share of completions equal to the same server's batch-1 completion: "
        f"{said or 'nothing measured'}.",
    )
    bottom = 200.0
    x = Scale(1, max(2, top_level), 56, WIDTH - 20, log=True)
    y = Scale(low, 1.0, bottom, 10)
    y_axis(canvas, y, percent_ticks(low), x.start - 10, x.end)
    ticks = [(float(v), str(v)) for v in levels]
    x_axis(canvas, x, ticks, bottom, "requests in flight (log scale; where not held: achieved)")
    for i, (name, part) in enumerate(named):
        style = styles.get(name, 2)
        line: list[tuple[float, float]] = []
        for r in part:
            at = place(r)
            if at is None or r.self_agreement.wilson95 is None:
                continue
            # Side by side, or the second interval would hide the first.
            px, interval = x(at) + 5 * i, r.self_agreement.wilson95
            line.append((px, y(r.self_agreement.k / r.self_agreement.n)))
            canvas.line(px, y(interval.low), px, y(interval.high), f"l solid thin s{style}")
        canvas.polyline(line, f"l s{style}")
        shown = [r for r in part if place(r) is not None and r.self_agreement.wilson95 is not None]
        for (px, py), r in zip(line, shown, strict=True):
            canvas.mark(style, px, py, hollow=not r.held, tip=numbers.proportion(r.self_agreement))
    legend(canvas, entries, 56, 248, WIDTH - 70)
    return canvas.markup()
