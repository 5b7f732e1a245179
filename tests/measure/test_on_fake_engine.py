"""Client and phases against real child processes that act as vLLM, with scripted faults."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from auditor.clock import RealClock
from auditor.errors import PortShared
from auditor.measure.client import Client
from auditor.measure.phases import PhaseSpec, run_phase
from auditor.model.completion import Completion, Prompt
from auditor.model.counters import CounterDelta, acceptance_length, delta
from auditor.model.launch import Fingerprint
from auditor.model.phase import Phase, Stage
from tests.fakes.stub import Stub, serve
from tests.measure.support import Journal

SPECULATIVE = ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}')


def prompts(n: int) -> tuple[Prompt, ...]:
    return tuple(
        Prompt(id=f"c/{i}", corpus="c", token_ids=tuple(f"{i:03d} ab".encode()), text="", max_tokens=24)
        for i in range(n)
    )


def measure(
    stub: Stub,
    n: int,
    concurrency: int = 1,
    *,
    timeout_s: float = 60.0,
    model: str | None = None,
    **options: Any,
) -> tuple[Phase, Journal]:
    stage: Stage = "batch1" if concurrency == 1 else "load"
    what = PhaseSpec(
        id=f"{stage}/a-1/c", stage=stage, launch="a-1", arm="a", concurrency=concurrency, prompts=prompts(n)
    )
    clock, kept = RealClock(), Journal()

    def client() -> Client:
        return Client(stub.base_url, model or stub.model, clock, timeout_s=timeout_s)

    return asyncio.run(run_phase(what, client, kept, clock, **options)), kept


def death_of(stub: Stub) -> Callable[[], str | None]:
    def alive() -> str | None:
        code = stub.process.poll()
        return None if code is None else f"exit status {code}"

    return alive


def test_counters_agree_with_the_ids_that_came_back(tmp_path: Path) -> None:
    with serve(tmp_path, {}, args=SPECULATIVE) as stub:
        phase, kept = measure(stub, 12)
    change = delta(phase.before, phase.after)
    assert kept.reasons() == ["ok"] * 12
    assert isinstance(change, CounterDelta)
    assert change.generation_tokens == sum(
        len(a.token_ids) for a in kept.answers if isinstance(a, Completion)
    )
    length = acceptance_length(change)
    assert length is not None
    assert 1.0 < length < 4.0


def test_a_plain_server_has_no_drafts_which_is_not_zero(tmp_path: Path) -> None:
    with serve(tmp_path) as stub:
        phase, _ = measure(stub, 2)
    change = delta(phase.before, phase.after)
    assert isinstance(change, CounterDelta)
    assert change.drafts is None
    assert change.generation_tokens


@pytest.mark.parametrize("mode", ["old", "created", "engines"])
def test_renamed_stamped_and_split_families_are_read(tmp_path: Path, mode: str) -> None:
    with serve(tmp_path, {"metrics": mode}, args=SPECULATIVE) as stub:
        phase, kept = measure(stub, 6)
    change = delta(phase.before, phase.after)
    assert isinstance(change, CounterDelta)
    assert change.accepted_tokens
    assert change.draft_tokens
    assert len(kept.answers) == 6


@pytest.mark.parametrize("mode", ["absent", "bad"])
def test_without_metrics_the_answers_still_count(tmp_path: Path, mode: str) -> None:
    with serve(tmp_path, {"metrics": mode}) as stub:
        phase, kept = measure(stub, 4, 2)
    assert kept.reasons() == ["ok"] * 4
    assert phase.state == "done"
    assert delta(phase.before, phase.after) is None
    assert phase.concurrency_summary is not None
    assert phase.concurrency_summary.held_fraction is None


def test_a_restart_within_a_phase_is_seen(tmp_path: Path) -> None:
    with serve(tmp_path, {"counters_fall_after": 9}) as stub:
        first, _ = measure(stub, 6)
        second, _ = measure(stub, 4)
    assert first.state == "done"
    assert second.state == "void"
    assert second.reason is not None
    assert "restarted" in second.reason


@pytest.mark.parametrize(("slots", "held"), [(256, True), (2, False)])
def test_the_level_is_what_the_server_ran(tmp_path: Path, slots: int, held: bool) -> None:
    with serve(tmp_path, {"max_running": slots, "latency_ms": 400}) as stub:
        phase, kept = measure(stub, 24, 4)
    found = phase.concurrency_summary
    assert kept.reasons() == ["ok"] * 24
    assert found is not None
    assert found.peak_running == (4 if held else 2)
    assert found.achieved == (4 if held else 2)
    assert found.held_fraction is not None
    # on a busy machine the share itself is a matter of scheduling; which side of half it is on is not
    assert (found.held_fraction > 0.5) is held


def test_errors_of_single_requests_stay_single(tmp_path: Path) -> None:
    with serve(tmp_path, {"status": {"code": 503, "after": 2, "count": 3}}) as stub:
        phase, kept = measure(stub, 8)
    assert kept.reasons() == ["ok"] * 2 + ["http-503"] * 3 + ["ok"] * 3
    assert phase.state == "done"


@pytest.mark.parametrize("mode", ["headers", "body"])
def test_a_silent_engine_ends_the_phase(tmp_path: Path, mode: str) -> None:
    with serve(tmp_path, {"stall": {"after": 2, "mode": mode}}) as stub:
        phase, kept = measure(stub, 6, timeout_s=1.0)
    assert kept.reasons() == ["ok"] * 2 + ["stalled"] * 4
    assert phase.state == "error"


def test_a_killed_engine_ends_the_phase(tmp_path: Path) -> None:
    with serve(tmp_path, {"latency_ms": 50}) as stub:

        def kill(answered: int, *_: int) -> None:
            if answered == 3:
                stub.process.kill()

        phase, kept = measure(stub, 8, progress=kill, alive=death_of(stub))
    assert kept.reasons() == ["ok"] * 3 + ["engine-died"] * 5
    assert (phase.state, phase.reason) == ("error", "the engine died: exit status -9")


def test_a_stopped_engine_ends_the_phase(tmp_path: Path) -> None:
    with serve(tmp_path, {"latency_ms": 50}) as stub:

        def stop(answered: int, *_: int) -> None:
            if answered == 4:
                os.kill(stub.pid, signal.SIGSTOP)

        phase, kept = measure(stub, 9, 2, timeout_s=1.0, progress=stop, alive=death_of(stub))
    assert kept.reasons().count("ok") in (4, 5)
    # the one that was asked before the last answer came may have run into its own deadline first
    assert kept.reasons().count("timeout") <= 1
    assert kept.reasons()[-3:] == ["stalled"] * 3
    assert len(kept.answers) == 9
    assert phase.state == "error"


def test_another_server_on_the_port_aborts(tmp_path: Path) -> None:
    with serve(tmp_path) as stub, pytest.raises(PortShared, match="two servers answer on this port"):
        measure(stub, 3, model="a-1-0f3c")


@pytest.mark.parametrize(
    ("faults", "reasons"),
    [
        ({"token_ids_absent": True}, ["bad-reply"]),
        ({"prompt_ids_wrong": True}, ["prompt-mismatch"]),
        ({"not_json_after": 0}, ["bad-reply"]),
        ({"reset_after": 0}, ["connection"]),
        ({"big_reply": 10_000_000}, ["ok"]),
        ({"nan_logprobs": True}, ["ok"]),
    ],
)
def test_one_answer_of_each_kind(tmp_path: Path, faults: dict[str, Any], reasons: list[str]) -> None:
    with serve(tmp_path, faults) as stub:
        _, kept = measure(stub, 1)
    assert kept.reasons() == reasons


async def _bits(stub: Stub) -> Any:
    async with Client(stub.base_url, stub.model, RealClock()) as client:
        return await client.fingerprint(prompts(3), "a-1")


def test_fingerprints_tell_launch_states_apart(tmp_path: Path) -> None:
    found = []
    for name, state in (("a", "A"), ("b", "A"), ("c", "B")):
        with serve(tmp_path, {"state": state}, name=name) as stub:
            found.append(asyncio.run(_bits(stub)))
    assert all(isinstance(f, Fingerprint) for f in found)
    assert found[0].digest == found[1].digest
    assert found[0].digest != found[2].digest


@pytest.mark.parametrize(
    ("faults", "usable"),
    [({}, 20), ({"nan_logprobs": True}, 0), ({"inf_logprobs": True}, 0), ({"logprobs_absent": True}, 0)],
)
def test_scores_reproduce_decoding_or_say_that_they_are_unusable(
    tmp_path: Path, faults: dict[str, Any], usable: int
) -> None:
    async def main(stub: Stub) -> None:
        (prompt,) = prompts(1)
        async with Client(stub.base_url, stub.model, RealClock()) as client:
            answer = await client.complete(prompt, phase="p")
            assert isinstance(answer, Completion)
            at = len(answer.token_ids) // 2
            score = await client.score(prompt, answer.token_ids[:at], launch="a-1", pair_arm="k")
        assert score.error is None
        assert (score.chosen, score.position) == (answer.token_ids[at], at + 1)
        assert sum(t.logprob is not None for t in score.top) == usable

    with serve(tmp_path, faults) as stub:
        asyncio.run(main(stub))
