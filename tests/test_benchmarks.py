"""The arithmetic of the benchmarks' figures; the measuring itself is no test."""

from __future__ import annotations

import pytest

from benchmarks.client import flight
from benchmarks.timeline import total, union


def test_requests_in_flight_are_averaged_over_time_while_the_level_can_be_held() -> None:
    # two slots, three rounds of 1 s; between answer and next request each slot is empty for 0.25 s
    arrived = [0.0, 0.0, 1.25, 1.25, 2.5, 2.5]
    answered = [1.0, 1.0, 2.25, 2.25, 3.5, 3.5]
    found = flight(arrived, answered, 2)
    assert (found.wall_s, found.peak) == (3.5, 2)
    assert found.mean == pytest.approx((2 * 1.0 + 0 * 0.25) * 2 / 2.5)


def test_a_client_that_never_leaves_a_slot_empty_holds_the_level_whatever_its_tail() -> None:
    arrived = [0.0, 0.0, 1.0, 1.0, 2.0]
    found = flight(arrived, [1.0, 1.0, 2.0, 2.0, 3.0], 2)
    assert found.mean == pytest.approx(2.0)
    assert found.peak == 2


def test_spans_that_overlap_count_once() -> None:
    assert union([(3.0, 4.0), (0.0, 2.0), (1.0, 2.5), (4.0, 5.0)]) == [(0.0, 2.5), (3.0, 5.0)]
    assert total([(0.0, 2.5), (3.0, 5.0)]) == 4.5
