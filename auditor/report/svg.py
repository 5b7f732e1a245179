"""Inline SVG: a canvas with an accessible name, scales, axes and marks.

Colours come from the page's style sheet through classes `s0` … `s7`; every series also has its own mark and
dash, so that no plot depends on telling colours apart. Coordinates are user units, y downward.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from auditor.report.visible import plain

MARKS = ("circle", "square", "triangle", "diamond", "circle", "square", "triangle", "diamond")


def at(value: float) -> str:
    """A coordinate: at most one decimal."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def slug(text: str) -> str:
    """An id that is unique a text: everything but ASCII letters and digits becomes its code point."""
    return "".join(c if c.isascii() and c.isalnum() else f"_{ord(c):x}_" for c in text)


def clip(text: str, limit: int) -> str:
    """At most `limit` characters; the full text stands in the table beneath the plot."""
    safe = plain(text)
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps [low, high] to [start, end]; `log` for positive data."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, v = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, v = math.log(low), math.log(high), math.log(v)
        share = 0.5 if high == low else (v - low) / (high - low)
        return self.start + share * (self.end - self.start)


class Canvas:
    """Collects shapes. `title` names the plot in one phrase, `desc` says what it shows in a sentence."""

    def __init__(self, width: int, height: int, *, id: str, title: str, desc: str) -> None:
        self.width, self.height = width, height
        self._id, self._title, self._desc = id, title, desc
        self._out: list[str] = []

    def line(self, x1: float, y1: float, x2: float, y2: float, cls: str) -> None:
        self._out.append(f'<path class="{cls}" d="M{at(x1)} {at(y1)}L{at(x2)} {at(y2)}"/>')

    def steps(self, points: Sequence[tuple[float, float]], cls: str) -> None:
        """A falling staircase through `points`; points that would not move the pen are left out."""
        if not points:
            return
        x, y = at(points[0][0]), at(points[0][1])
        d = [f"M{x} {y}"]
        for px, py in points[1:]:
            nx, ny = at(px), at(py)
            if nx != x:
                d.append(f"H{nx}")
            if ny != y:
                d.append(f"V{ny}")
            x, y = nx, ny
        self._out.append(f'<path class="{cls}" d="{"".join(d)}"/>')

    def polyline(self, points: Sequence[tuple[float, float]], cls: str) -> None:
        if points:
            d = "L".join(f"{at(x)} {at(y)}" for x, y in points)
            self._out.append(f'<path class="{cls}" d="M{d}"/>')

    def area(
        self, upper: Sequence[tuple[float, float]], lower: Sequence[tuple[float, float]], cls: str
    ) -> None:
        """The region between two staircases over the same x."""
        if not upper:
            return
        d = [f"M{at(upper[0][0])} {at(upper[0][1])}"]
        d += [f"H{at(x)}V{at(y)}" for x, y in upper[1:]]
        back = list(reversed(lower))
        d.append(f"V{at(back[0][1])}")
        d += [f"V{at(y)}H{at(x)}" for x, y in back[1:]]
        self._out.append(f'<path class="{cls}" d="{"".join(d)}Z"/>')

    def rect(self, x: float, y: float, w: float, h: float, cls: str, tip: str = "") -> None:
        body = f"><title>{escape(plain(tip))}</title></rect>" if tip else "/>"
        self._out.append(
            f'<rect class="{cls}" x="{at(x)}" y="{at(y)}" width="{at(w)}" height="{at(h)}"{body}'
        )

    def text(self, x: float, y: float, text: str, cls: str = "", anchor: str = "start") -> None:
        more = f' class="{cls}"' if cls else ""
        end = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self._out.append(f'<text{more} x="{at(x)}" y="{at(y)}"{end}>{escape(plain(text))}</text>')

    def mark(self, series: int, x: float, y: float, *, hollow: bool = False, tip: str = "") -> None:
        """The series' own shape. Hollow: the point is not what was asked for."""
        shape, r = MARKS[series % len(MARKS)], 4.2
        if shape == "circle":
            d = f"M{at(x - r)} {at(y)}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 -{2 * r} 0Z"
        elif shape == "square":
            d = f"M{at(x - 3.7)} {at(y - 3.7)}h7.4v7.4h-7.4Z"
        elif shape == "triangle":
            d = f"M{at(x)} {at(y - 5)}l4.8 8.4h-9.6Z"
        else:
            d = f"M{at(x)} {at(y - 5.2)}l5.2 5.2l-5.2 5.2l-5.2 -5.2Z"
        tail = f"><title>{escape(plain(tip))}</title></path>" if tip else "/>"
        self._out.append(f'<path class="m s{series}{" hollow" if hollow else ""}" d="{d}"{tail}')

    def markup(self) -> Markup:
        return Markup(
            f'<svg role="img" aria-labelledby="{self._id}-t {self._id}-d" '
            f'viewBox="0 0 {self.width} {self.height}">'
            f'<title id="{self._id}-t">{escape(plain(self._title))}</title>'
            f'<desc id="{self._id}-d">{escape(plain(self._desc))}</desc>{"".join(self._out)}</svg>'
        )


def y_axis(
    canvas: Canvas, scale: Scale, ticks: Sequence[tuple[float, str]], left: float, right: float
) -> None:
    """Horizontal grid lines with labels at the left."""
    for value, label in ticks:
        y = scale(value)
        canvas.line(left, y, right, y, "grid")
        canvas.text(left - 6, y + 3.5, label, "tick", "end")


def x_axis(
    canvas: Canvas, scale: Scale, ticks: Sequence[tuple[float, str]], bottom: float, label: str
) -> None:
    """Tick labels beneath `bottom` and the axis' name beneath them."""
    canvas.line(scale.start, bottom, scale.end, bottom, "axis")
    for value, text in ticks:
        x = scale(value)
        canvas.line(x, bottom, x, bottom + 4, "axis")
        canvas.text(x, bottom + 16, text, "tick", "middle")
    canvas.text((scale.start + scale.end) / 2, bottom + 31, label, "label", "middle")


def legend(canvas: Canvas, entries: Sequence[tuple[int, str]], x: float, y: float, width: float) -> None:
    """Marks with names, in as many columns as fit `width`; names are clipped."""
    columns = max(1, min(len(entries), int(width // 130)))
    step = width / columns
    for i, (index, name) in enumerate(entries):
        cx, cy = x + step * (i % columns), y + 15 * (i // columns)
        canvas.line(cx, cy - 4, cx + 18, cy - 4, f"l s{index}")
        canvas.mark(index, cx + 9, cy - 4)
        canvas.text(cx + 23, cy, clip(name, int((step - 26) / 5.8)), "tick")


def legend_height(count: int, width: float) -> int:
    """Height that `legend` takes for `count` entries."""
    columns = max(1, min(count, int(width // 130)))
    return 15 * math.ceil(count / columns)


def log_ticks(high: float) -> list[tuple[float, str]]:
    """Powers of four from 1 to `high`, `high` itself included when it stands clear of the last one."""
    ticks: list[float] = []
    value = 1.0
    while value <= high:
        ticks.append(value)
        value *= 4
    if high / ticks[-1] >= 1.8:
        ticks.append(high)
    return [(t, f"{t:,.0f}") for t in ticks]


def percent_ticks(low: float) -> list[tuple[float, str]]:
    """Ticks from `low` (a fraction) to 1 in steps that give at most six labels."""
    for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.25):
        if (1 - low) / step <= 5:
            break
    count = round((1 - low) / step)
    return [(1 - step * i, f"{100 * (1 - step * i):.0f}%") for i in range(count + 1)]


def floor_of(values: Sequence[float]) -> float:
    """A round lower end of a fraction axis that ends at 1 and holds every value."""
    least = min(values, default=0.0)
    for low in (0.95, 0.9, 0.8, 0.75, 0.5):
        if least >= low:
            return low
    return 0.0
