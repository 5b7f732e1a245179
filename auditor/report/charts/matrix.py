"""Launch against launch: how many certification prompts they answered alike, grouped by state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from auditor.report import numbers
from auditor.report.svg import Canvas, clip

LEVELS = 5
"""Shades between none (h0) and all (h5); the figure stands in the cell as well."""
_LARGEST_CELL, _SMALLEST_CELL, _WIDTH = 52.0, 9.0, 640.0
_LEGIBLE = 24.0


@dataclass(frozen=True, slots=True)
class Label:
    launch: str
    state: str
    """Name of its state, a dash without one."""


@dataclass(frozen=True, slots=True)
class Square:
    k: int
    n: int
    prints: str
    """`equal`, `differ`, `missing`; for the diagonal `itself`."""


def shade(k: int, n: int) -> int:
    """0 only for none and `LEVELS` only for all: one differing prompt is another shade."""
    if n == 0 or k == 0:
        return 0
    if k == n:
        return LEVELS
    return min(LEVELS - 1, 1 + int(k / n * (LEVELS - 1)))


def matrix(labels: Sequence[Label], squares: dict[tuple[str, str], Square]) -> Markup:
    """`squares` by (row, column), in both orders. A heavy line separates states, a dot in the corner says
    that the fingerprints are equal. Columns are numbered where the names do not fit above them."""
    cell = max(_SMALLEST_CELL, min(_LARGEST_CELL, _WIDTH / max(1, len(labels))))
    longest = max((len(x.launch) for x in labels), default=4)
    numbered = 6.2 * longest > cell
    left = (62.0 if numbered else 30.0) + 6.3 * min(longest, 20)
    top = 34.0
    side = cell * len(labels)
    canvas = Canvas(
        int(left + side + 12),
        int(top + side + 44),
        id="launch-matrix",
        title="Agreement of every launch with every other",
        desc=_described(labels, squares),
    )
    for i, row in enumerate(labels):
        y = top + i * cell
        name = f"{clip(row.launch, 20)} · {i + 1}" if numbered else row.launch
        canvas.text(left - 24, y + cell / 2 + 4, name, "tick", "end")
        canvas.text(left - 8, y + cell / 2 + 4, row.state, "strong", "end")
        middle = left + (i + 0.5) * cell
        canvas.text(middle, top - 18, str(i + 1) if numbered else row.launch, "tick", "middle")
        canvas.text(middle, top - 6, row.state, "strong", "middle")
        for j, column in enumerate(labels):
            _cell(canvas, squares.get((row.launch, column.launch)), row, column, left + j * cell, y, cell)
    _borders(canvas, labels, left, top, cell)
    _key(canvas, left, top + side + 20)
    return canvas.markup()


def _cell(
    canvas: Canvas, square: Square | None, row: Label, column: Label, x: float, y: float, cell: float
) -> None:
    if square is None:
        canvas.rect(x, y, cell, cell, "h none", f"{row.launch} and {column.launch}: not compared")
        return
    level = shade(square.k, square.n)
    who = (
        f"{row.launch} against itself"
        if row.launch == column.launch
        else f"{row.launch} and {column.launch}, fingerprints {square.prints}"
    )
    tip = f"{who}: {numbers.counts(square.k, square.n)}"
    canvas.rect(x, y, cell, cell, f"h h{level}{' self' if row.launch == column.launch else ''}", tip)
    if cell >= _LEGIBLE:
        on = "on" if level >= 4 else "off"
        canvas.text(x + cell / 2, y + cell / 2 + 4, str(square.k), on, "middle")
        if square.prints == "equal":
            canvas.rect(x + cell - 9, y + 4, 5, 5, f"dot {on}")


def _borders(canvas: Canvas, labels: Sequence[Label], left: float, top: float, cell: float) -> None:
    side = cell * len(labels)
    edges = [i for i in range(1, len(labels)) if labels[i].state != labels[i - 1].state]
    for i in (0, *edges, len(labels)):
        canvas.line(left, top + i * cell, left + side, top + i * cell, "border")
        canvas.line(left + i * cell, top, left + i * cell, top + side, "border")


def _key(canvas: Canvas, x: float, y: float) -> None:
    for level in range(LEVELS + 1):
        canvas.rect(x + 14 * level, y, 14, 12, f"h h{level}")
    canvas.text(x + 14 * (LEVELS + 1) + 6, y + 10, "none to all equal", "tick")


def _described(labels: Sequence[Label], squares: dict[tuple[str, str], Square]) -> str:
    names = [x.launch for x in labels]
    said = [
        f"{a} and {b} {numbers.counts(s.k, s.n)}"
        for i, a in enumerate(names)
        for b in names[i + 1 :]
        if (s := squares.get((a, b))) is not None
    ]
    rest = len(said) - 40
    return "; ".join(said[:40]) + (f"; and {rest} more pairs in the table" if rest > 0 else "") + "."
