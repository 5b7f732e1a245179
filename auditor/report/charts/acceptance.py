"""Acceptance rate by draft position, one line a stage."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from auditor.report import numbers
from auditor.report.svg import Canvas, Scale, legend, legend_height, slug, x_axis, y_axis

WIDTH = 400


def by_position(arm: str, lines: Sequence[tuple[str, tuple[float, ...]]]) -> Markup:
    """`lines`: (phase, acceptance rate by position as fractions)."""
    width = max((len(rates) for _, rates in lines), default=1)
    said = "; ".join(f"{name}: {', '.join(numbers.percent(r) for r in rates)}" for name, rates in lines)
    entries = [(2 + i % 6, name) for i, (name, _) in enumerate(lines)]
    canvas = Canvas(
        WIDTH,
        250 + legend_height(len(entries), WIDTH - 60),
        id=f"acceptance-{slug(arm)}",
        title=f"Acceptance by draft position, {arm}",
        desc=f"Share of drafts whose token at that position was accepted. {said}.",
    )
    bottom = 200.0
    x = Scale(0.5, width + 0.5, 46, WIDTH - 14)
    y = Scale(0, 1, bottom, 10)
    y_axis(canvas, y, [(v / 4, f"{25 * v}%") for v in range(5)], x.start, x.end)
    every = max(1, width // 8)
    x_axis(canvas, x, [(float(k), str(k)) for k in range(1, width + 1, every)], bottom, "draft position")
    for i, (name, rates) in enumerate(lines):
        style = 2 + i % 6
        points = [(x(k), y(rate)) for k, rate in enumerate(rates, 1)]
        canvas.polyline(points, f"l s{style}")
        for (px, py), rate in zip(points, rates, strict=True):
            canvas.mark(style, px, py, tip=f"{name}: {numbers.percent(rate)}")
    legend(canvas, entries, 46, 248, WIDTH - 60)
    return canvas.markup()
