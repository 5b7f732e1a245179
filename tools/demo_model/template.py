"""What a template of word problems is.

A template draws its numbers; `problems.py` draws people, things and wording. The *hard* range is used for one
problem in five: larger numbers make long carries, which is where a small model slips. `derive` returns the
intermediate results in order; the last one is the answer. It returns None where the drawn numbers make no
sense (a remainder, a negative amount).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Derived = dict[str, int] | None


@dataclass(frozen=True)
class Numbers:
    """Drawn values by letter; templates read them as attributes."""

    values: dict[str, int]

    def __getattr__(self, letter: str) -> int:
        return self.values[letter]


@dataclass(frozen=True)
class Template:
    """One kind of problem. `numbers` maps a letter to (low, high, hard high, step)."""

    name: str
    numbers: dict[str, tuple[int, int, int, int]]
    derive: Callable[[Any], Derived]
    questions: tuple[str, ...]
    answers: tuple[str, ...]


def at_least(least: int, **derived: int) -> Derived:
    """The derived values, or None where one of them is below `least`."""
    return derived if min(derived.values()) >= least else None
