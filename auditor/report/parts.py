"""What a page is made of, before any markup: sections of blocks. Templates only lay these out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from auditor.model.judgement import DivergenceClass
from auditor.model.plan import AuditPlan

Tone = Literal["", "good", "bad", "warn", "mute"]

STATUS_TONE: dict[str, Tone] = {
    "PASS": "good",
    "FAIL": "bad",
    "INVALID": "bad",
    "ERROR": "bad",
    "UNCERTIFIED": "warn",
    "INCONCLUSIVE": "warn",
    "NOT RUN": "warn",
    "SAME STATE": "good",
    "OTHER STATE": "bad",
    "NOT COMPARABLE": "bad",
    "INTERMEDIATE": "warn",
    "UNVERIFIED": "warn",
}
CLASS_TONE: dict[DivergenceClass, Tone] = {
    "unexplained": "bad",
    "post-stop leak": "bad",
    "length overrun": "bad",
    "short delivery": "bad",
    "stop policy": "bad",
    "degenerate": "bad",
    "unknown": "warn",
    "near tie": "good",
    "exact tie": "good",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One value; `mono` for ids, tokens and digests."""

    text: str | Markup
    tone: Tone = ""
    mono: bool = False
    badge: bool = False
    """Drawn as a status mark: a sign and a colour, so that the colour alone carries nothing."""


Value = str | Markup | Cell


@dataclass(frozen=True, slots=True)
class Table:
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    numeric: frozenset[int] = frozenset()
    """Columns aligned right."""
    note: str = ""
    kind: str = "table"


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot and the table of what it shows."""

    caption: str
    svg: Markup
    table: Table
    wide: bool = False
    kind: str = "figure"


@dataclass(frozen=True, slots=True)
class Grid:
    figures: tuple[Figure, ...]
    kind: str = "grid"


@dataclass(frozen=True, slots=True)
class Note:
    text: str | Markup
    tone: Tone = ""
    kind: str = "note"


@dataclass(frozen=True, slots=True)
class Pairs:
    """Terms and their values."""

    items: tuple[tuple[str, Value], ...]
    kind: str = "pairs"


@dataclass(frozen=True, slots=True)
class Code:
    """Command lines and logs, verbatim, control characters made visible."""

    label: str
    text: Markup
    kind: str = "code"


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks behind a native <details>; printed open."""

    summary: str
    blocks: tuple[Block, ...]
    tone: Tone = ""
    mark: str = ""
    open: bool = False
    kind: str = "fold"


@dataclass(frozen=True, slots=True)
class Heading:
    text: str
    kind: str = "heading"


Block = Table | Figure | Grid | Note | Pairs | Code | Fold | Heading


@dataclass(frozen=True, slots=True)
class Section:
    id: str
    title: str
    intro: str
    blocks: tuple[Block, ...]


def status(text: str) -> Cell:
    """A status or state as a mark."""
    return Cell(text, STATUS_TONE.get(text, "mute"), badge=True)


def mono(text: str) -> Cell:
    return Cell(text, mono=True)


def series(plan: AuditPlan) -> dict[str, int]:
    """Arm name -> index of its line style: 0 reference, 1 control, candidates from 2 on."""
    order = {"reference": 0, "control": 1}
    out: dict[str, int] = {}
    following = 2
    for arm in plan.arms:
        if arm.role in order:
            out[arm.name] = order[arm.role]
        else:
            out[arm.name] = following
            following = following + 1 if following < 7 else 2
    return out
