"""Figures as text. A printed figure never claims more than what it was computed from.

Three rules, each a property in tests/report/test_numbers.py:
* a share of n prints 0 or 100 only when it is exactly that (2,999 of 3,000 is 99.97%, never 100%);
* interval ends are rounded outward;
* a figure that is compared with a bound is printed with as many digits as it takes to be on the same
  side of that bound as the figure itself.
Nothing here returns a figure for a missing value: `None` prints as a dash.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

from auditor.model.base import Interval
from auditor.model.judgement import Proportion

ABSENT = "—"
MINUS = "−"
_MAX_DIGITS = 15


def _fixed(value: float, digits: int, rounding: str = ROUND_HALF_EVEN, scale: int = 1) -> str:
    """`value * scale` with `digits` decimals; a typographic minus; no negative zero.

    Decimal from the shortest repr, so that 0.29 as a percentage is 29 and not 28.999999999999996."""
    exact = Decimal(repr(float(value))) * scale
    text = format(exact.quantize(Decimal(1).scaleb(-digits), rounding=rounding), ",f")
    if text.startswith("-"):
        return text[1:] if not text.strip("-0.,") else MINUS + text[1:]
    return text


def _parse(text: str) -> float:
    return float(text.replace(",", "").replace(MINUS, "-"))


def integer(value: int | None) -> str:
    """Whole number with thousands separators."""
    return ABSENT if value is None else f"{value:,}".replace("-", MINUS)


def counts(k: int, n: int) -> str:
    return f"{k:,} of {n:,}"


def share(k: int, n: int, digits: int = 1) -> str:
    """k of n as a percentage; more digits where rounding would print 0 or 100. n = 0: a dash."""
    if n <= 0:
        return ABSENT
    if k in (0, n):
        return "100%" if k else "0%"
    exact = Decimal(100) * k / n
    for d in range(digits, _MAX_DIGITS):
        shown = exact.quantize(Decimal(1).scaleb(-d), rounding=ROUND_HALF_EVEN)
        if 0 < shown < 100:
            return f"{shown:f}%"
    return "more than 99.999999%" if 2 * k > n else "less than 0.000001%"


def proportion(p: Proportion | None) -> str:
    """`153 of 164 (93.3%)`."""
    return ABSENT if p is None else of(p.k, p.n)


def of(k: int, n: int) -> str:
    """Counts first, then the share: `383 of 384 (99.7%)`; `0 of 0` has no share."""
    return f"{counts(k, n)} ({share(k, n)})" if n else counts(k, n)


def against(value: float | None, *bounds: float, digits: int = 2, scale: int = 1) -> str:
    """`value * scale` with enough digits to stand on the same side of every bound as the value itself."""
    if value is None:
        return ABSENT
    if not math.isfinite(value):
        return str(value).replace("-", MINUS)
    for d in range(digits, _MAX_DIGITS):
        shown = _fixed(value, d, scale=scale)
        if all(_side(_parse(shown) / scale, b) == _side(value, b) for b in bounds):
            return shown
    return format(Decimal(repr(float(value))) * scale, "f").replace("-", MINUS)


def _side(value: float, bound: float) -> int:
    return (value > bound) - (value < bound)


def number(value: float | None, digits: int = 2) -> str:
    """A plain figure without a bound to stand beside."""
    return against(value, digits=digits)


def signed(value: float | None, digits: int = 2, scale: int = 1) -> str:
    """With a sign, `+` included. `scale` 100 for percentage points."""
    if value is None:
        return ABSENT
    text = _fixed(value, digits, scale=scale)
    return text if text.startswith(MINUS) or not text.strip("0.,") else "+" + text


def points(value: float | None) -> str:
    """A difference of fractions in percentage points."""
    return ABSENT if value is None else signed(value, 2, 100) + " pp"


def interval_percent(interval: Interval | None, digits: int = 1) -> str:
    """Ends of an interval on a fraction, in percent, rounded outward."""
    if interval is None:
        return ABSENT
    low = _fixed(interval.low, digits, ROUND_FLOOR, 100)
    high = _fixed(interval.high, digits, ROUND_CEILING, 100)
    return f"[{low}, {high}]%"


def interval_points(interval: Interval | None, digits: int = 2) -> str:
    """Ends of an interval on a difference of fractions, in percentage points, rounded outward."""
    if interval is None:
        return ABSENT
    low = _fixed(interval.low, digits, ROUND_FLOOR, 100)
    high = _fixed(interval.high, digits, ROUND_CEILING, 100)
    return f"[{_plus(low)}, {_plus(high)}] pp"


def _plus(text: str) -> str:
    return text if text.startswith(MINUS) or not text.strip("0.,") else "+" + text


def percent(value: float | None, digits: int = 1) -> str:
    """A fraction whose counts are unknown (a margin, a held share); never rounded to 0 or 100."""
    if value is None:
        return ABSENT
    if value in (0.0, 1.0):
        return "100%" if value else "0%"
    for d in range(digits, _MAX_DIGITS):
        shown = _fixed(value, d, scale=100)
        if _parse(shown) not in (0.0, 100.0):
            return shown + "%"
    return "more than 99.999999%" if value > 0.5 else "less than 0.000001%"


def margin(value: float) -> str:
    """±0.05 as `±5 pp`."""
    text = _fixed(value, 6, scale=100).rstrip("0").rstrip(".")
    return f"±{text} pp"


def p_value(p: float | None, alpha: float = 0.05) -> str:
    """Three decimals, more where needed to be on p's side of alpha; scientific below 0.001."""
    if p is None:
        return ABSENT
    if p == 0.0:
        return "< 1e−300"
    if p < 0.001 and alpha >= 0.001:
        mantissa, exponent = f"{p:.1e}".split("e")
        return f"{mantissa}e{MINUS}{abs(int(exponent))}"
    return against(p, alpha, 1.0, digits=3)


def rate(value: float | None) -> str:
    """Small rates (hazards a token): three significant digits, plain down to 1e-4."""
    if value is None:
        return ABSENT
    if value == 0:
        return "0"
    if abs(value) >= 1e-4:
        digits = 6 if 0 < abs(value) < 1e-3 else 5
        return _fixed(value, digits)
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa}e{MINUS}{abs(int(exponent))}"


def seconds(value: float | None) -> str:
    """A duration: `0.42 s`, `47 s`, `3 min 12 s`, `1 h 04 min`."""
    if value is None:
        return ABSENT
    if value < 10:
        return f"{_fixed(value, 2)} s"
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def size(value: int) -> str:
    """Bytes: `812 B`, `4.2 MiB`."""
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{value:,} B" if unit == "B" else f"{_fixed(amount, 1)} {unit}"
        amount /= 1024
    return f"{_fixed(amount, 1)} TiB"


def listing(items: Iterable[str], limit: int = 12) -> str:
    """Items joined by commas, at most `limit` of them, the rest counted."""
    all_items = tuple(items)
    text = ", ".join(all_items[:limit])
    rest = len(all_items) - limit
    return f"{text} and {rest:,} more" if rest > 0 else text
