"""The closed loop on a scripted engine and a clock moved by hand: no socket, no real waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditor.errors import PortShared, StorageError
from auditor.measure.metrics import Load
from auditor.measure.phases import PhaseSpec, run_phase
from auditor.model.completion import Answer, Completion, RequestFailure
from auditor.model.phase import ConcurrencySample, Counters, Phase, Stage
from tests.measure.support import Engine, Journal, ManualClock, prompt, settle


def spec(n: int, concurrency: int = 1, stage: Stage = "batch1", **more: Any) -> PhaseSpec:
    return PhaseSpec(
        id=f"{stage}/a-1/c",
        stage=stage,
        launch="a-1",
        arm="a",
        corpus="c",
        concurrency=concurrency,
        prompts=tuple(prompt(f"c/{i}") for i in range(n)),
        **more,
    )


def run(
    what: PhaseSpec, engine: Engine, journal: Journal | None = None, **options: Any
) -> tuple[Phase, Journal]:
    kept = journal or Journal()

    async def main() -> Phase:
        task = asyncio.ensure_future(run_phase(what, engine.client, kept, engine.clock, **options))
        phase = await engine.clock.run(task)
        await settle()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not others, "a phase leaves no task behind"
        assert isinstance(phase, Phase), "the phase hung"
        return phase

    phase = asyncio.run(main())
    assert engine.closed == engine.clients, "a phase leaves no connection behind"
    assert kept.phases[-1] == phase
    return phase, kept


def engine(**options: Any) -> Engine:
    return Engine(ManualClock(), **options)


@settings(max_examples=25)
@given(n=st.integers(0, 12), concurrency=st.integers(1, 6), done=st.sets(st.integers(0, 11)))
def test_each_item_once_and_exactly_n_in_flight(n: int, concurrency: int, done: set[int]) -> None:
    server = engine()
    left = [f"c/{i}" for i in range(n) if i not in done]
    phase, kept = run(spec(n, concurrency, "load"), server, done=frozenset((f"c/{i}", 0) for i in done))
    assert server.asked == left
    assert sorted(a.prompt for a in kept.answers) == sorted(left)
    assert server.peak == min(concurrency, len(left))
    assert (phase.state, phase.planned) == ("done", n)
    assert phase.generating_s == pytest.approx(-(-len(left) // concurrency))


def test_solo_work_is_in_order_and_written_as_it_goes() -> None:
    seen: list[tuple[int, int, int, int]] = []
    server = engine(readings=[Counters(drafts=5), Counters(drafts=9)])
    _, kept = run(spec(3, logprobs=1), server, progress=lambda *now: seen.append(now))
    assert [a.prompt for a in kept.answers] == ["c/0", "c/1", "c/2"]
    assert [a.started_s for a in kept.answers] == [0.0, 1.0, 2.0]
    assert seen == [(1, 3, 0, 2), (2, 3, 0, 4), (3, 3, 0, 6)]
    first, last = kept.phases
    assert (first.state, first.before, first.after, first.ended_s) == (
        "running",
        Counters(drafts=5),
        None,
        None,
    )
    assert (last.before, last.after) == (Counters(drafts=5), Counters(drafts=9))
    assert (last.started_s, last.ended_s, last.generating_s) == (0.0, 3.0, 3.0)
    assert last.concurrency_summary is None
    assert isinstance(kept.answers[0], Completion)
    assert kept.answers[0].logprobs == (-0.5, -0.5)


def test_a_failed_item_stays_and_later_items_still_run() -> None:
    server = engine(fail={"c/1": "http-400", "c/2": "connection", "c/3": "bad-reply"})
    phase, kept = run(spec(5), server)
    assert kept.reasons() == ["ok", "http-400", "connection", "bad-reply", "ok"]
    assert server.asked == [f"c/{i}" for i in range(5)], "nothing is asked twice"
    assert phase.state == "done"


def test_a_fall_of_a_counter_voids_the_phase() -> None:
    phase, _ = run(spec(1), engine(readings=[Counters(drafts=9), Counters(drafts=2)]))
    assert (phase.state, phase.reason) == ("void", "the server restarted during the phase: drafts 9 -> 2")


def test_samples_at_10_hz_or_more_on_a_connection_of_their_own() -> None:
    samples: list[ConcurrencySample] = []
    server = engine(seconds=5.0)
    phase, _ = run(spec(16, 4, "load"), server, on_sample=samples.append)
    found = phase.concurrency_summary
    assert found is not None
    assert found.samples >= 200
    assert found.rate_hz is not None
    assert found.rate_hz >= 10
    assert (found.achieved, found.peak_running, found.held_fraction) == (4, 4, 1.0)
    assert server.peak == 4
    assert server.clients == 5
    assert len(samples) >= found.samples


def test_a_server_with_fewer_slots_is_labelled_with_what_it_ran() -> None:
    phase, _ = run(spec(64, 16, "load"), engine(seconds=5.0, slots=3))
    found = phase.concurrency_summary
    assert found is not None
    assert (found.achieved, found.max_waiting, found.held_fraction) == (3, 13, 0.0)


def test_a_server_without_gauges_shows_no_concurrency() -> None:
    phase, _ = run(spec(8, 4, "load"), engine(loads=lambda: Load(None, None, None, None)))
    assert phase.state == "done"
    assert phase.concurrency_summary is not None
    assert phase.concurrency_summary.held_fraction is None


def test_a_dead_engine_ends_the_phase_at_once() -> None:
    server = engine(seconds=30.0)
    phase, kept = run(
        spec(6, 2, "load"), server, alive=lambda: "Killed (signal 9)" if server.clock.now() > 40 else None
    )
    assert kept.reasons() == ["ok"] * 2 + ["engine-died"] * 4
    assert {a.prompt for a in kept.answers} == {f"c/{i}" for i in range(6)}
    assert (phase.state, phase.reason) == ("error", "the engine died: Killed (signal 9)")
    assert phase.ended_s == pytest.approx(40.25)
    assert server.asked == [f"c/{i}" for i in range(4)]


@pytest.mark.parametrize("reason", ["connection", "http-500"])
def test_a_lost_request_waits_until_death_can_be_seen(reason: str) -> None:
    server = engine(fail={"c/1": reason})
    phase, kept = run(spec(3), server, alive=lambda: "Killed" if server.clock.now() >= 3.0 else None)
    assert kept.reasons() == ["ok", "engine-died", "engine-died"]
    assert phase.state == "error"


def test_a_lost_request_on_a_living_server_waits_once_a_phase() -> None:
    server = engine(fail={f"c/{i}": "connection" for i in range(20)}, seconds=0.01)
    phase, kept = run(spec(20), server)
    assert kept.reasons() == ["connection"] * 20
    assert phase.ended_s is not None
    assert 2.0 < phase.ended_s < 3.0


def stuck(load: Load | None) -> Callable[[], Load | None]:
    return lambda: load


@pytest.mark.parametrize(
    ("load", "stage", "concurrency", "latest_s", "words"),
    [
        (Load(0, 3, 5, 5), "load", 4, 31, "3 requests wait and none runs"),
        (Load(0, 1, 5, 5), "batch1", 1, 40, "1 requests wait and none runs"),
        (Load(4, 0, 5, 5), "load", 4, 301, "no token for 300 s"),
        (Load(1, 0, 5, 5), "batch1", 1, 310, "no token for 300 s"),
        (None, "load", 4, 301, "neither a request nor /metrics"),
        (Load(None, None, None, None), "batch1", 1, 600, "nothing else was answered meanwhile"),
    ],
)
def test_a_stalled_engine_is_an_error_not_a_hang(
    load: Load | None, stage: Stage, concurrency: int, latest_s: float, words: str
) -> None:
    server = engine(seconds=float("inf"), loads=stuck(load))
    phase, kept = run(spec(9, concurrency, stage), server)
    assert kept.reasons() == ["stalled"] * 9
    assert phase.state == "error"
    assert phase.reason is not None
    assert words in phase.reason
    assert phase.ended_s is not None
    assert phase.ended_s <= latest_s
    assert len(server.asked) == concurrency, "nothing is sent to a stalled engine"


def test_i10_a_timeout_at_batch_1_ends_the_phase() -> None:
    server = engine(fail={"c/1": "timeout"}, deadline=31.0)
    phase, kept = run(spec(3), server)
    assert kept.reasons() == ["ok", "stalled", "stalled"]
    assert server.asked == ["c/0", "c/1"], "one attempt"
    assert server.peak == 1
    assert phase.state == "error"


def test_a_timeout_while_others_finish_is_one_failure() -> None:
    server = engine(fail={"c/1": "timeout"}, seconds=20.0, deadline=60.0)
    phase, kept = run(spec(9, 2, "load"), server)
    assert sorted(kept.reasons()) == ["ok"] * 8 + ["timeout"]
    assert phase.state == "done"


def test_a_foreign_server_on_the_port_aborts() -> None:
    server = engine(fail={"c/1": "foreign-nonce"})
    kept = Journal()
    with pytest.raises(PortShared, match="one server a port"):
        run(spec(6, 3, "load"), server, kept)
    assert [a.prompt for a in kept.answers if isinstance(a, RequestFailure)] == ["c/1"]
    assert kept.phases[-1].state == "error"


@pytest.mark.parametrize(
    ("done", "asked", "reason"),
    [
        (2, ["c/2"], "resumed: 2 of 3 answers were there already; counters cover the others only"),
        (3, [], "resumed: all 3 answers were there already, so that no counters belong to them"),
    ],
)
def test_resuming_says_what_its_counters_cover(done: int, asked: list[str], reason: str) -> None:
    server = engine(readings=[Counters(drafts=5), Counters(drafts=9)])
    seen: list[int] = []
    phase, kept = run(
        spec(3),
        server,
        done=frozenset((f"c/{i}", 0) for i in range(done)),
        progress=lambda answered, *_: seen.append(answered),
    )
    assert server.asked == asked
    assert (phase.state, phase.reason) == ("done", reason)
    assert (phase.before is None) is (not asked)
    assert seen == list(range(done + 1, 4))
    assert len(kept.answers) == len(asked)


def test_repeats_of_a_prompt_are_apart() -> None:
    twice = PhaseSpec(id="p", stage="load", launch="a-1", arm="a", prompts=(prompt("c/0"),), rounds=2)
    _, kept = run(twice, engine(), done=frozenset({("c/0", 0)}))
    assert [(a.prompt, a.repeat) for a in kept.answers] == [("c/0", 1)]


def test_cancelling_leaves_a_consistent_journal_and_nothing_running() -> None:
    server, kept = engine(), Journal()

    async def main() -> None:
        task = asyncio.ensure_future(run_phase(spec(9, 3, "load"), server.client, kept, server.clock))
        await server.clock.run(task, until=1.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await settle()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert kept.reasons() == ["ok"] * 3, "what was in flight stays unanswered"
    assert [p.state for p in kept.phases] == ["running", "error"]
    assert kept.phases[-1].reason == "interrupted before all requests were answered"
    assert server.closed == server.clients
    assert server.in_flight == 0


def test_a_full_disk_ends_the_phase_with_its_own_error() -> None:
    def full(answer: Answer) -> None:
        if answer.prompt == "c/3":
            raise StorageError("the disk is full")

    server, kept = engine(), Journal(on_answer=full)
    with pytest.raises(StorageError, match="the disk is full"):
        run(spec(9, 3, "load"), server, kept)
    assert len(kept.answers) == 3
    assert kept.phases[-1].reason == "cut short: the disk is full."
    assert server.closed == server.clients
