"""A printed figure never claims more than what it was computed from."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.model.base import Interval
from auditor.report import numbers

FRACTIONS = st.floats(0, 1)
DIFFERENCES = st.floats(-1, 1)


def value(text: str) -> float:
    return float(text.strip("%").replace(",", "").replace(numbers.MINUS, "-").replace("+", ""))


def ends(text: str) -> tuple[float, float]:
    low, high = text.split("]")[0].strip("[").split(", ")
    return value(low), value(high)


@pytest.mark.parametrize(
    ("k", "n", "shown"),
    [
        (2999, 3000, "99.97%"),
        (1, 3000, "0.03%"),
        (164, 164, "100%"),
        (0, 164, "0%"),
        (153, 164, "93.3%"),
        (999_999, 1_000_000, "99.9999%"),
        (0, 0, "—"),
    ],
)
def test_share(k: int, n: int, shown: str) -> None:
    assert numbers.share(k, n) == shown


@given(st.integers(1, 10**9), st.data())
def test_share_is_whole_only_when_it_is(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    shown = numbers.share(k, n)
    if "than" in shown:
        assert 0 < k < n
        return
    assert (value(shown) == 0) == (k == 0)
    assert (value(shown) == 100) == (k == n)
    assert abs(value(shown) - 100 * k / n) <= 0.05 + 1e-9


@given(FRACTIONS)
def test_percent_is_whole_only_when_it_is(p: float) -> None:
    shown = numbers.percent(p)
    if "than" not in shown:
        assert (value(shown) == 0) == (p == 0)
        assert (value(shown) == 100) == (p == 1)


@given(DIFFERENCES, DIFFERENCES)
def test_intervals_are_rounded_outward(a: float, b: float) -> None:
    interval = Interval(low=min(a, b), high=max(a, b))
    low, high = ends(numbers.interval_points(interval))
    assert low <= interval.low * 100 + 1e-9
    assert high >= interval.high * 100 - 1e-9
    assert interval.low * 100 - low <= 0.01 + 1e-9
    assert high - interval.high * 100 <= 0.01 + 1e-9


@given(FRACTIONS, FRACTIONS)
def test_percent_intervals_are_rounded_outward(a: float, b: float) -> None:
    interval = Interval(low=min(a, b), high=max(a, b))
    low, high = ends(numbers.interval_percent(interval))
    assert low <= interval.low * 100 + 1e-9
    assert high >= interval.high * 100 - 1e-9


def test_exact_ends_stay_exact() -> None:
    assert numbers.interval_percent(Interval(low=0.29, high=0.57)) == "[29.0, 57.0]%"


@given(st.floats(1e-12, 1), st.sampled_from([0.05, 0.01, 0.025]))
def test_p_stands_on_its_side_of_alpha(p: float, alpha: float) -> None:
    shown = numbers.p_value(p, alpha)
    printed = float(shown.replace(numbers.MINUS, "-"))
    assert (printed < alpha) == (p < alpha)
    assert (printed == 1) == (p == 1)


@given(st.floats(0, 10), st.floats(0, 10))
def test_a_figure_stands_on_its_side_of_its_bound(figure: float, bound: float) -> None:
    shown = value(numbers.against(figure, bound))
    assert (shown > bound) == (figure > bound)
    assert (shown < bound) == (figure < bound)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (numbers.against(1.0499, 1.05), "1.0499"),
        (numbers.points(-0.0614), "−6.14 pp"),
        (numbers.points(0.0), "0.00 pp"),
        (numbers.points(-1e-9), "0.00 pp"),
        (numbers.p_value(0.0), "< 1e−300"),
        (numbers.p_value(4e-16), "4.0e−16"),
        (numbers.margin(0.05), "±5 pp"),
        (numbers.margin(0.025), "±2.5 pp"),
        (numbers.rate(0.0), "0"),
        (numbers.rate(0.000012345), "1.23e−5"),
        (numbers.seconds(0.4), "0.40 s"),
        (numbers.seconds(59.6), "1 min 00 s"),
        (numbers.seconds(3840), "1 h 04 min"),
        (numbers.size(812), "812 B"),
        (numbers.size(4_404_019), "4.2 MiB"),
        (numbers.integer(-1234), "−1,234"),
        (numbers.listing(["a", "b", "c"], 2), "a, b and 1 more"),
        (numbers.against(math.inf), "inf"),
    ],
)
def test_forms(text: str, shown: str) -> None:
    assert text == shown


@pytest.mark.parametrize(
    "form",
    [
        numbers.integer,
        numbers.proportion,
        numbers.number,
        numbers.signed,
        numbers.points,
        numbers.interval_percent,
        numbers.interval_points,
        numbers.percent,
        numbers.p_value,
        numbers.rate,
        numbers.seconds,
    ],
)
def test_absent_is_a_dash_and_never_zero(form: object) -> None:
    assert form(None) == "—"  # type: ignore[operator]
