"""Arithmetic on two readings of a server's counters: what happened between them, and nothing else.

Lifetime totals say nothing about a phase, so every figure here comes from differences. A counter never
falls while its process lives: one that did (or that vanished) was restarted, and the difference is void.
"""

from __future__ import annotations

from auditor.model.base import Model
from auditor.model.phase import Counters


class CounterDelta(Model, frozen=True, kw_only=True):
    """Increase of each counter between two readings. None: absent from one of them, which is not zero."""

    drafts: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    accepted_per_position: tuple[int, ...] | None = None
    preemptions: int | None = None
    prompt_tokens: int | None = None
    generation_tokens: int | None = None
    prefix_cache_hits: int | None = None


class Restarted(Model, frozen=True, kw_only=True):
    """The two readings are of different processes."""

    fallen: tuple[str, ...]
    """One phrase a counter, for example `drafts 120 -> 3` or `drafts 120 -> absent`."""


_TOTALS = (
    "drafts",
    "draft_tokens",
    "accepted_tokens",
    "preemptions",
    "prompt_tokens",
    "generation_tokens",
    "prefix_cache_hits",
)


def delta(before: Counters | None, after: Counters | None) -> CounterDelta | Restarted | None:
    """Differences of two readings of one server.

    None when either reading is missing or exposes no counter at all. A family that only the later
    reading has stays None: its earlier value is unknown. Shorter per-position lists are padded with
    zeros, because engines add a position when it is first accepted.
    """
    if before is None or after is None or _is_blank(before) or _is_blank(after):
        return None
    fallen: list[str] = []
    rises: dict[str, int | None] = {}
    for name in _TOTALS:
        rises[name] = _rise(name, getattr(before, name), getattr(after, name), fallen)
    per_position = _per_position(before.accepted_per_position, after.accepted_per_position, fallen)
    if fallen:
        return Restarted(fallen=tuple(fallen))
    return CounterDelta(
        drafts=rises["drafts"],
        draft_tokens=rises["draft_tokens"],
        accepted_tokens=rises["accepted_tokens"],
        accepted_per_position=per_position,
        preemptions=rises["preemptions"],
        prompt_tokens=rises["prompt_tokens"],
        generation_tokens=rises["generation_tokens"],
        prefix_cache_hits=rises["prefix_cache_hits"],
    )


def acceptance_length(window: CounterDelta) -> float | None:
    """Mean tokens a target step, 1 + accepted/drafts, at least 1. None without drafts in the window."""
    if not window.drafts or window.accepted_tokens is None:
        return None
    return 1.0 + window.accepted_tokens / window.drafts


def acceptance_rate(window: CounterDelta) -> float | None:
    """Accepted over proposed draft tokens, 0 to 1. None when nothing was proposed in the window."""
    if not window.draft_tokens or window.accepted_tokens is None:
        return None
    return window.accepted_tokens / window.draft_tokens


def acceptance_by_position(window: CounterDelta) -> tuple[float, ...] | None:
    """Share of drafts whose i-th token was accepted, first position first. None without drafts."""
    if not window.drafts or window.accepted_per_position is None:
        return None
    return tuple(count / window.drafts for count in window.accepted_per_position)


def lifetime_acceptance_rate(reading: Counters) -> float | None:
    """Accepted over proposed since the server started: the counters' ratio, else the gauge of older
    engines. For servers that only a single reading exists of; a phase uses `acceptance_rate`.
    """
    if reading.draft_tokens is not None and reading.accepted_tokens is not None:
        return reading.accepted_tokens / reading.draft_tokens if reading.draft_tokens else None
    return reading.acceptance_rate_gauge


def _is_blank(reading: Counters) -> bool:
    return reading.accepted_per_position is None and all(getattr(reading, n) is None for n in _TOTALS)


def _rise(name: str, before: int | None, after: int | None, fallen: list[str]) -> int | None:
    if before is None:
        return None
    if after is None:
        fallen.append(f"{name} {before} -> absent")
        return None
    if after < before:
        fallen.append(f"{name} {before} -> {after}")
        return None
    return after - before


def _per_position(
    before: tuple[int, ...] | None, after: tuple[int, ...] | None, fallen: list[str]
) -> tuple[int, ...] | None:
    if before is None:
        return None
    if after is None:
        fallen.append("accepted_per_position -> absent")
        return None
    width = max(len(before), len(after))
    old = before + (0,) * (width - len(before))
    new = after + (0,) * (width - len(after))
    if any(b > a for b, a in zip(old, new, strict=True)):
        fallen.append(f"accepted_per_position {list(before)} -> {list(after)}")
        return None
    return tuple(a - b for b, a in zip(old, new, strict=True))
