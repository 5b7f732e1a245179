"""Damage for fuzzing: valid documents, lines and bytes, changed in structure or at random.

Hypothesis chooses the seed of each mutation, so that a failure shows the seed and is found again.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

T = TypeVar("T")
DEEP, DIGITS = "\x01deep\x01", "\x01digits\x01"
"""Stand for what `json.dumps` cannot write: 5,000 nested lists, a number of 5,000 digits."""
_DEPTH = 5000
POISON: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**30, 10**400, 0.5, -0.0, 1e308, -1e308,
    float("nan"), float("inf"), float("-inf"), "", "x", "\ud800", "\udcff", "\x00", "\u2028", "</script>",
    "~nobody", "..", "/", "=", ",", "²", "٣", "x" * 300, "9" * 5000, [], {}, [[]], [None], {"": {}},
    {"\ud800": 1}, DEEP, DIGITS,
)  # fmt: skip
TOKENS = (
    "NaN", "+Inf", "-Infinity", "1e999", "9" * 400, "9" * 5000, ",", ",,", "=", "{", "}", "[", "]", '"', "'",
    "\\", "#", "\n", "\r", "\x00", "\x1b[31m", "\u2028", "\x85", "²", "٣", "None", "null", "(", ")", ":",
    ";", "-", ".", "~", " ",
    "[" * 3000, "{" * 3000,
)  # fmt: skip
SEEDS = st.integers(0, 2**64 - 1)
_WORD = re.compile(r"\w+|\s+|[^\w\s]")


def fuzz(examples: int, **strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Any]:
    """A test of `check(**drawn)`: a few fixed examples always, `examples` random ones when slow tests run."""

    def decorate(check: Callable[..., None]) -> Any:
        @pytest.mark.parametrize(
            "count", [pytest.param(25, id="smoke"), pytest.param(examples, id="long", marks=pytest.mark.slow)]
        )
        def test(count: int) -> None:
            limits = settings(
                max_examples=count,
                derandomize=count != examples,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            limits(given(**strategies)(check))()

        test.__doc__ = check.__doc__
        return test

    return decorate


def outcome(call: Callable[[], T], refusal: type[Exception]) -> T | None:
    """What `call` returns; None where it refuses in a sentence. Any other exception is a find."""
    try:
        return call()
    except refusal as error:
        if not str(error).strip():
            raise
        return None


class Mutator:
    """One reproducible stream of damage."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def document(self, document: Any, times: int = 3) -> Any:
        """A copy with up to `times` fields dropped, repeated, swapped or replaced."""
        found = copy.deepcopy(document)
        for _ in range(self.random.randint(1, times)):
            places = list(_places(found))
            if not places:
                return self.poison()
            self._change(*self.random.choice(places), places)
        return found

    def json(self, document: Any, times: int = 3) -> bytes:
        """A mutated document as JSON; some texts hold bytes that are no UTF-8."""
        return dumped(self.document(document, times), ascii_only=self.random.random() < 0.7)

    def poison(self) -> Any:
        return copy.deepcopy(self.random.choice(POISON))

    def raw(self, data: bytes, times: int = 3) -> bytes:
        """Bits flipped, pieces dropped, repeated, moved, cut off."""
        found = bytearray(data)
        for _ in range(self.random.randint(1, times)):
            at = self.random.randint(0, len(found))
            end = min(len(found), at + self.random.choice((1, 2, 8, 64, 4096)))
            match self.random.randrange(7):
                case 0 if at < len(found):
                    found[at] ^= 1 << self.random.randrange(8)
                case 1:
                    del found[at:end]
                case 2:
                    found[at:at] = found[at:end]
                case 3:
                    found[at:at] = self.random.choice(TOKENS).encode()
                case 4:
                    found[at:end] = self.random.randbytes(end - at)
                case 5:
                    del found[at:]
                case _:
                    piece = found[at:end]
                    del found[at:end]
                    to = self.random.randint(0, len(found))
                    found[to:to] = piece
        return bytes(found)

    def text(self, text: str, times: int = 4) -> str:
        """Lines and words dropped, repeated, swapped, replaced."""
        for _ in range(self.random.randint(1, times)):
            if self.random.random() < 0.3:
                text = self._pieces(text.splitlines(keepends=True))
            else:
                text = self._pieces(_WORD.findall(text))
        return text

    def _pieces(self, pieces: list[str]) -> str:
        if not pieces:
            return self.random.choice(TOKENS)
        one, two = self.random.randrange(len(pieces)), self.random.randrange(len(pieces))
        match self.random.randrange(5):
            case 0:
                del pieces[one]
            case 1:
                pieces.insert(one, pieces[two])
            case 2:
                pieces[one], pieces[two] = pieces[two], pieces[one]
            case 3:
                pieces[one] = self.random.choice(TOKENS)
            case _:
                pieces.insert(one, self.random.choice(TOKENS))
        return "".join(pieces)

    def _change(self, holder: Any, key: Any, places: list[tuple[Any, Any]]) -> None:
        other, there = self.random.choice(places)
        match self.random.randrange(7):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, list):
                holder.insert(key, copy.deepcopy(holder[key]))
            case 1:
                holder[f"{key}x"] = holder[key]
            case 2:
                holder[key] = copy.deepcopy(other[there])
            case 3 if isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
                holder[key] = self.random.choice((-holder[key], holder[key] * 2**40, holder[key] + 1, 0))
            case _:
                holder[key] = self.poison()


def dumped(document: Any, *, ascii_only: bool = True) -> bytes:
    """JSON of a document that may hold anything of POISON."""
    text = json.dumps(document, ensure_ascii=ascii_only)
    text = text.replace(json.dumps(DEEP), "[" * _DEPTH + "]" * _DEPTH).replace(json.dumps(DIGITS), "9" * 5000)
    return text.encode("utf-8", "surrogatepass")


def _places(document: Any) -> Any:
    """(container, key) of everything inside, depth first."""
    keys: Any = ()
    if isinstance(document, Mapping):
        keys = list(document)
    elif isinstance(document, list):
        keys = range(len(document))
    for key in keys:
        yield document, key
        yield from _places(document[key])
