"""Stalls and achieved concurrency, from readings alone."""

from __future__ import annotations

import pytest

from auditor.measure.metrics import Load
from auditor.measure.watch import InFlight, StallWatch, summarise
from auditor.model.phase import ConcurrencySample, ConcurrencySummary
from tests.measure.support import ManualClock

LIMIT = 300.0
ABSENT = Load(None, None, None, None)


def first_stall(
    loads: list[Load | None], limit: float = LIMIT, finish_every: int = 0
) -> tuple[int, str] | None:
    """Index and words of the first verdict, one look every 5 s."""
    watch = StallWatch(0.0, limit)
    for i, load in enumerate(loads, 1):
        if finish_every and i % finish_every == 0:
            watch.finished(5.0 * i)
        reason = watch.look(5.0 * i, load)
        if reason is not None:
            return i, reason
    return None


def test_a_queue_that_never_moves_is_a_stall_after_30_s() -> None:
    found = first_stall([Load(0, 4, 10, 10)] * 100)
    assert found == (6, "4 requests wait and none runs for 30 s")


def test_running_without_a_token_is_a_stall_after_the_limit() -> None:
    found = first_stall([Load(1, 0, 10, 10)] * 100)
    assert found is not None
    at, words = found
    assert at == 61  # the first look is the first sign of life
    assert words == "no token for 300 s (running 1, waiting 0)"


def test_no_answer_at_all_is_a_stall_after_the_limit() -> None:
    found = first_stall([None] * 100)
    assert found == (60, "neither a request nor /metrics was answered for 300 s")


@pytest.mark.parametrize(
    "loads",
    [
        [Load(1, 0, tokens, 10) for tokens in range(200)],
        [Load(1, 0, 5, tokens) for tokens in range(200)],
        [ABSENT] * 200,
        [Load(None, 3, None, None)] * 200,
        [None] * 59 + [ABSENT] + [None] * 59,
        [Load(0, 4, 10, 10)] * 5 + [Load(1, 3, 10, 10)] + [Load(0, 4, 10, 10)] * 5,
    ],
    ids=["decodes", "prefills", "no families", "no running gauge", "answers once", "queue moves"],
)
def test_a_server_that_moves_or_does_not_tell_is_no_stall(loads: list[Load | None]) -> None:
    assert first_stall(loads) is None


def test_finished_requests_are_progress() -> None:
    assert first_stall([Load(0, 4, 10, 10)] * 100, finish_every=4) is None
    assert first_stall([None] * 200, finish_every=50) is None


def test_a_finish_of_long_ago_does_not_turn_time_back() -> None:
    watch = StallWatch(0.0, 10.0)
    assert watch.look(100.0, Load(1, 0, 1, 1)) is None
    watch.finished(3.0)
    assert watch.look(105.0, Load(1, 0, 1, 1)) is None


def test_a_short_limit_bounds_every_sign() -> None:
    assert first_stall([Load(0, 1, 1, 1)] * 9, limit=5.0) is not None


def samples(*rows: tuple[float, int, int, int]) -> list[ConcurrencySample]:
    return [ConcurrencySample(at_s=t, running=r, waiting=w, in_flight=f) for t, r, w, f in rows]


def test_steady_phase_leaves_out_ramp_and_tail() -> None:
    found = summarise(
        samples(
            (0.0, 1, 0, 1), (0.1, 3, 0, 4), (0.2, 4, 0, 4), (0.3, 3, 1, 4), (0.4, 4, 0, 4), (0.5, 4, 0, 4),
            (0.6, 2, 0, 2),
        ),
        4,
    )  # fmt: skip
    assert found.samples == 4
    assert found.rate_hz == pytest.approx(10.0)
    assert found.mean_running == pytest.approx(3.75)
    assert (found.peak_running, found.max_waiting, found.achieved) == (4, 1, 4)
    assert found.held_fraction == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("rows", "mean", "held"),
    [
        # five of eight ended, and the next five are prefilled for seconds in which no token is counted
        ([(8, 0, 100), *[(3, 0, 110)] * 6, (8, 0, 400), (8, 0, 408)], 8.0, 1.0),
        # tokens are counted meanwhile: only the last of these steps can have been the full one
        ([(8, 0, 100), *[(3, 0, 110 + i) for i in range(6)], (8, 0, 400), (8, 0, 408)], 47 / 9, 4 / 9),
        # a server with three slots shows three before and after every step
        ([(8, 0, 100), *[(3, 5, 110 + i // 3) for i in range(8)]], 32 / 9, 1 / 9),
        # an engine that counts no tokens cannot be read that way
        ([(8, 0, None), *[(3, 0, None)] * 6, (8, 0, None), (8, 0, None)], 42 / 9, 3 / 9),
    ],
    ids=["one long step", "many steps", "three slots", "no counters"],
)
def test_a_reading_lags_by_the_step_in_progress(
    rows: list[tuple[int, int, int | None]], mean: float, held: float
) -> None:
    found = summarise(
        [
            ConcurrencySample(at_s=i / 10, running=r, waiting=w, in_flight=8, tokens=t)
            for i, (r, w, t) in enumerate(rows)
        ],
        8,
    )
    assert found.mean_running == pytest.approx(mean)
    assert found.held_fraction == pytest.approx(held)


def test_i9_a_pool_of_100_is_labelled_100() -> None:
    found = summarise(samples(*((i / 10, 100, 0, 128) for i in range(50))), 128)
    assert (found.achieved, found.peak_running, found.held_fraction) == (100, 100, 0.0)


def test_64_asked_of_a_server_capped_at_8_measures_8_with_a_queue() -> None:
    sent = [i / 10 for i in range(50)]  # one request a sample is new, and waits
    found = summarise(samples(*((i / 10, 8, 56, 64) for i in range(50))), 64, sent, 0.25)
    assert (found.achieved, found.max_waiting, found.held_fraction) == (8, 56, 0.0)


@pytest.mark.parametrize(
    ("sent", "waiting", "held"),
    [([9.9], 0, True), ([9.0], 0, False), ([9.9], 1, False), ([10.1], 0, False), ([], 0, False)],
    ids=["just sent", "sent long ago", "just sent but waits", "sent after the sample", "nothing sent"],
)
def test_a_request_on_its_way_fills_its_slot(sent: list[float], waiting: int, held: bool) -> None:
    found = summarise(samples((10.0, 7, waiting, 8)), 8, sent, 0.25)
    assert found.held_fraction == float(held)
    assert found.mean_running == 7


def test_nothing_is_claimed_without_a_steady_sample() -> None:
    assert summarise(samples((0.1, 4, 0, 3)), 4) == ConcurrencySummary(
        samples=0,
        rate_hz=None,
        mean_running=None,
        peak_running=None,
        max_waiting=None,
        held_fraction=None,
        achieved=None,
    )
    assert summarise(samples((0.1, 4, 0, 4)), 4).rate_hz is None


@pytest.mark.parametrize(
    ("seconds", "tokens", "expected"),
    [
        (18.0, 96, 0.5625),  # 190 ms a token: three of them
        (4.0, 400, 0.25),
        (1.0, 100, 0.1),  # never over a tenth of the request's life
        (1.0, 0, 0.1),
    ],
)
def test_admission_follows_the_pace_of_the_server(seconds: float, tokens: int, expected: float) -> None:
    flight = InFlight(ManualClock())
    assert flight.admission_s() is None
    flight.completed(seconds, tokens)
    assert flight.admission_s() == pytest.approx(expected)


def test_busy_time_counts_overlap_once_and_idle_not_at_all() -> None:
    clock = ManualClock()
    flight = InFlight(clock)
    for action, seconds in [("in", 2.0), ("in", 3.0), ("out", 1.0), ("out", 10.0), ("in", 0.5), ("out", 0.0)]:
        if action == "in":
            flight.enter()
        else:
            flight.leave()
        clock.advance(seconds)
    assert flight.busy_s == pytest.approx(6.5)
    assert list(flight.sent_s) == [0.0, 2.0, 16.0]
