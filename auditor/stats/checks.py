"""What every statistic refuses before it computes anything: counts and rates that cannot be.

Each refusal is a `ValueError` whose text is one sentence: what was seen and what was expected.
"""

from __future__ import annotations

import math
import operator


def require_count(name: str, value: int, *, least: int = 0) -> int:
    """`value` as an int; ValueError unless it is a whole number ≥ `least`."""
    try:
        count = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} is {value!r}: expected a whole number.") from None
    if count < least:
        raise ValueError(f"{name} is {count}: expected at least {least}.")
    return count


def require_successes(successes: int, trials: int) -> tuple[int, int]:
    """(K, N) as ints; ValueError unless N ≥ 1 and 0 ≤ K ≤ N."""
    n = require_count("the number of trials", trials, least=1)
    k = require_count("the number of successes", successes)
    if k > n:
        raise ValueError(f"{k} successes in {n} trials: expected at most as many successes as trials.")
    return k, n


def require_open_unit(name: str, value: float) -> float:
    """`value` as a float; ValueError unless 0 < value < 1."""
    number = float(value)
    if not 0.0 < number < 1.0:
        raise ValueError(f"{name} is {number:g}: expected a number between 0 and 1, both excluded.")
    return number


def require_unit(name: str, value: float) -> float:
    """`value` as a float; ValueError unless 0 ≤ value ≤ 1."""
    number = float(value)
    if not 0.0 <= number <= 1.0:
        raise ValueError(f"{name} is {number:g}: expected a number from 0 to 1.")
    return number


def require_alpha(value: float) -> float:
    """A one-sided test level; ValueError unless 0 < α < 0.5."""
    number = float(value)
    if not 0.0 < number < 0.5:
        raise ValueError(f"alpha is {number:g}: expected a one-sided level between 0 and 0.5.")
    return number


def require_positive(name: str, value: float) -> float:
    """`value` as a float; ValueError unless it is finite and > 0."""
    number = float(value)
    if not (math.isfinite(number) and number > 0.0):
        raise ValueError(f"{name} is {number:g}: expected a positive number.")
    return number
