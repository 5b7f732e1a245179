"""The equivalence plot: intervals on the accuracy difference against ±margin, three methods an arm."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from auditor.model.base import Interval
from auditor.model.judgement import AccuracyTest
from auditor.report import numbers
from auditor.report.svg import Canvas, Scale, clip, x_axis

WIDTH = 720
Z90 = 1.6448536269514722


def intervals(test: AccuracyTest) -> tuple[tuple[str, Interval], ...]:
    """The 90% intervals shown, the one that decides first."""
    paired = (("paired score", test.ci90), ("paired Newcombe", test.newcombe90))
    if test.estimate is None:
        return paired
    half = Z90 * test.wald_se
    return (*paired, ("unpaired Wald", Interval(low=test.estimate - half, high=test.estimate + half)))


def plot(tests: Sequence[AccuracyTest], styles: dict[str, int]) -> Markup:
    """Inside the band means equivalent by that method; only the paired score interval decides."""
    reach = max(
        (abs(v) for t in tests for _, i in intervals(t) for v in (i.low, i.high, t.margin)), default=0.05
    )
    limit = reach * 1.15
    height = 50 + 74 * len(tests)
    said = "; ".join(
        f"{t.arm} {numbers.interval_points(t.ci90)} within {numbers.margin(t.margin)}: {t.verdict}"
        for t in tests
    )
    canvas = Canvas(
        WIDTH,
        height,
        id="equivalence",
        title="Accuracy difference from the reference against the margin",
        desc=f"90% intervals of candidate minus reference in percentage points: {said}.",
    )
    x = Scale(-limit, limit, 230, WIDTH - 16)
    bottom = height - 40
    step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if limit / s <= 4 or s == 0.5)
    ticks = [k * step for k in range(-4, 5) if abs(k * step) <= limit]
    for i, t in enumerate(tests):
        top = 8 + 74 * i
        canvas.rect(x(-t.margin), top, x(t.margin) - x(-t.margin), 66, "margin")
        for edge in (-t.margin, t.margin):
            canvas.line(x(edge), top, x(edge), top + 66, "edge")
        style = styles.get(t.arm, 2)
        canvas.text(8, top + 17, clip(t.arm, 18), "strong")
        for j, (name, interval) in enumerate(intervals(t)):
            y = top + 14 + 20 * j
            canvas.text(222, y + 4, name, "tick", "end")
            canvas.line(
                x(interval.low), y, x(interval.high), y, f"l solid s{style}{'' if j == 0 else ' thin'}"
            )
            for end in (interval.low, interval.high):
                canvas.line(x(end), y - 4, x(end), y + 4, f"l solid s{style}{'' if j == 0 else ' thin'}")
            if t.estimate is not None:
                canvas.mark(style, x(t.estimate), y, hollow=j > 0, tip=numbers.interval_points(interval))
    canvas.line(x(0), 4, x(0), bottom, "zero")
    labels = [(v, numbers.signed(v, 0, 100)) for v in ticks]
    x_axis(canvas, x, labels, bottom, "candidate minus reference, percentage points (band: the margin)")
    return canvas.markup()
