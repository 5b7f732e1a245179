"""Counter arithmetic: windows, restarts, absent families."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.model.counters import (
    CounterDelta,
    Restarted,
    acceptance_by_position,
    acceptance_length,
    acceptance_rate,
    delta,
    lifetime_acceptance_rate,
)
from auditor.model.phase import Counters


def test_f1_families_old_new_and_none() -> None:
    assert lifetime_acceptance_rate(Counters(acceptance_rate_gauge=0.61)) == 0.61
    new = lifetime_acceptance_rate(Counters(accepted_tokens=100, draft_tokens=164))
    assert new == pytest.approx(0.61, abs=0.0005)
    assert lifetime_acceptance_rate(Counters()) is None


def test_f4_window_not_lifetime() -> None:
    window = delta(
        Counters(accepted_tokens=8000, draft_tokens=10000),
        Counters(accepted_tokens=8100, draft_tokens=11000),
    )
    assert isinstance(window, CounterDelta)
    assert acceptance_rate(window) == pytest.approx(0.10)


def test_f5_inert_head_is_measured_not_hidden() -> None:
    window = delta(
        Counters(drafts=0, accepted_tokens=0, draft_tokens=0),
        Counters(drafts=30000, accepted_tokens=6, draft_tokens=90000),
    )
    assert isinstance(window, CounterDelta)
    assert acceptance_length(window) == pytest.approx(1.0002)


@pytest.mark.parametrize(
    ("before", "after", "phrase"),
    [
        (Counters(drafts=120), Counters(drafts=3), "drafts 120 -> 3"),
        (
            Counters(drafts=120, generation_tokens=9),
            Counters(generation_tokens=9),
            "drafts 120 -> absent",
        ),
        (
            Counters(accepted_per_position=(5, 2)),
            Counters(accepted_per_position=(6, 1)),
            "accepted_per_position [5, 2] -> [6, 1]",
        ),
        (
            Counters(accepted_per_position=(5, 2), generation_tokens=1),
            Counters(generation_tokens=2),
            "accepted_per_position -> absent",
        ),
    ],
)
def test_a_counter_that_falls_is_a_restart(before: Counters, after: Counters, phrase: str) -> None:
    result = delta(before, after)
    assert isinstance(result, Restarted)
    assert result.fallen == (phrase,)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, Counters(drafts=1)),
        (Counters(drafts=1), None),
        (Counters(), Counters(drafts=1)),
        (Counters(drafts=1), Counters(acceptance_rate_gauge=0.5)),
    ],
)
def test_a_missing_reading_is_unknown(before: Counters | None, after: Counters | None) -> None:
    assert delta(before, after) is None


def test_a_family_that_appears_stays_unknown() -> None:
    window = delta(Counters(generation_tokens=4), Counters(generation_tokens=9, drafts=3))
    assert isinstance(window, CounterDelta)
    assert window.generation_tokens == 5
    assert window.drafts is None


def test_no_drafts_has_no_acceptance() -> None:
    window = delta(
        Counters(drafts=7, accepted_tokens=9, draft_tokens=21, accepted_per_position=(7, 2)),
        Counters(drafts=7, accepted_tokens=9, draft_tokens=21, accepted_per_position=(7, 2)),
    )
    assert isinstance(window, CounterDelta)
    assert window.drafts == 0
    assert acceptance_length(window) is None
    assert acceptance_rate(window) is None
    assert acceptance_by_position(window) is None


def test_positions_are_padded_and_rated_by_draft() -> None:
    window = delta(
        Counters(drafts=10, accepted_per_position=(8,)),
        Counters(drafts=20, accepted_per_position=(17, 5)),
    )
    assert isinstance(window, CounterDelta)
    assert acceptance_by_position(window) == pytest.approx((0.9, 0.5))


_counts = st.integers(min_value=0, max_value=2**53)


@given(base=_counts, more=_counts)
def test_windows_add_up(base: int, more: int) -> None:
    first, second = Counters(drafts=base), Counters(drafts=base + more)
    window = delta(first, second)
    assert isinstance(window, CounterDelta)
    assert window.drafts == more
    assert isinstance(delta(second, first), Restarted) is (more > 0)
