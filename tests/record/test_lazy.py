"""Prompts that stay on disk: by corpus, in turn, cut, and damaged in the middle of a phase."""

from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.errors import RecordError
from auditor.measure.phases import PhaseSpec, run_phase
from auditor.model.completion import Prompt
from auditor.record.lazy import FrozenPrompts
from tests.measure.support import Engine, Journal, ManualClock


def prompt(corpus: str, number: int, ids: int = 3) -> Prompt:
    return Prompt(
        id=f"{corpus}/{number}", corpus=corpus, token_ids=tuple(range(1000, 1000 + ids)), text="é\u2028",
        max_tokens=4,
    )  # fmt: skip


def write(path: Path, *prompts: Prompt) -> Path:
    path.write_bytes(b"".join(msgspec.json.encode(p) + b"\n" for p in prompts))
    return path


@given(
    corpora=st.lists(st.sampled_from("abc"), max_size=20), start=st.integers(-3, 12), stop=st.integers(-3, 12)
)
def test_a_slice_of_one_corpus_is_the_slice_of_its_list(
    tmp_path_factory: pytest.TempPathFactory, corpora: list[str], start: int, stop: int
) -> None:
    made = [prompt(corpus, i) for i, corpus in enumerate(corpora)]
    frozen = FrozenPrompts(write(tmp_path_factory.mktemp("frozen") / "prompts.jsonl", *made))
    mine = [p for p in made if p.corpus == "b"]
    assert list(frozen.all()) == made
    assert list(frozen.of("b")) == mine
    assert list(frozen.of("b")[start:stop]) == mine[start:stop]
    assert len(frozen.of("b")[start:stop][1:]) == len(mine[start:stop][1:])


def test_several_corpora_come_in_turn_and_the_longest_last(tmp_path: Path) -> None:
    made = [prompt("a", i) for i in range(4)] + [prompt("b", i) for i in range(2)] + [prompt("c", 0)]
    frozen = FrozenPrompts(write(tmp_path / "prompts.jsonl", *made))
    found = [p.id for p in frozen.of("b", "a", "absent", "c")]
    assert found == ["b/0", "a/0", "c/0", "b/1", "a/1", "a/2", "a/3"]
    assert list(frozen.of()) == list(frozen.of("absent")) == []


@pytest.mark.parametrize("check", [True, False])
def test_only_a_check_finds_damaged_ids_at_once(tmp_path: Path, check: bool) -> None:
    path = write(tmp_path / "prompts.jsonl", prompt("a", 0), prompt("a", 1))
    path.write_bytes(path.read_bytes().replace(b"[1000", b"[null", 1))
    if check:
        with pytest.raises(RecordError, match=r"Line 1 of prompts.jsonl is damaged.*token_ids"):
            FrozenPrompts(path, check=True)
    else:
        lines = FrozenPrompts(path).all()
        assert lines[1].id == "a/1"
        with pytest.raises(RecordError, match=r"The line at byte 0 of prompts.jsonl is damaged.*token_ids"):
            lines[0]


DAMAGED, GONE = "The line at byte", "Cannot read prompts.jsonl: No such file or directory"


@pytest.mark.parametrize(
    ("harm", "done", "dies", "answered", "states", "reason"),
    [
        (DAMAGED, (), False, ["ok", "ok"], ["running", "error"], f"cut short: {DAMAGED}"),
        (GONE, (), False, [], ["running", "error"], f"cut short: {GONE}"),
        (GONE, ("a/0",), False, [], ["error"], f"cut short: {GONE}"),
        (DAMAGED, (), True, ["engine-died"] * 3, ["running", "error"],
         f"the engine died: killed; then cut short: {DAMAGED}"),
    ],
    ids=["damaged", "gone", "gone-at-resume", "damaged-and-the-engine-dies"],
)  # fmt: skip
def test_prompts_lost_while_they_are_sent_end_the_phase_with_what_was_answered(
    tmp_path: Path, harm: str, done: tuple[str, ...], dies: bool, answered: list[str], states: list[str],
    reason: str,
) -> None:  # fmt: skip
    path = write(tmp_path / "prompts.jsonl", *(prompt("a", i, ids=40_000) for i in range(6)))
    frozen = FrozenPrompts(path, check=True)
    if harm == DAMAGED:
        path.write_bytes(path.read_bytes().replace(b'"a/3"', b"wrong"))
    else:
        path.unlink()
    spec = PhaseSpec(
        id="load/a-1", stage="load", launch="a-1", arm="a", concurrency=2, prompts=frozen.of("a")
    )
    server, kept = Engine(ManualClock()), Journal()

    async def main() -> None:
        task = asyncio.ensure_future(
            run_phase(
                spec,
                server.client,
                kept,
                server.clock,
                done=frozenset((p, 0) for p in done),
                alive=lambda: "killed" if dies else None,
            )
        )
        await server.clock.run(task)
        await task

    with pytest.raises(RecordError, match=harm):
        asyncio.run(main())
    assert kept.reasons() == answered
    assert [p.state for p in kept.phases] == states
    assert str(kept.phases[-1].reason).startswith(reason)
    assert server.closed == server.clients


def test_a_phase_holds_no_more_prompts_than_are_in_flight(tmp_path: Path) -> None:
    """400 prompts of 2,000 ids: some 25 MB decoded, of which two at a time are sent."""
    path = write(tmp_path / "prompts.jsonl", *(prompt("a", i, ids=2000) for i in range(400)))
    server = Engine(ManualClock())
    tracemalloc.start()
    try:
        spec = PhaseSpec(
            id="load/a-1", stage="load", launch="a-1", arm="a", concurrency=2,
            prompts=FrozenPrompts(path).of("a"),
        )  # fmt: skip

        async def main() -> None:
            task = asyncio.ensure_future(run_phase(spec, server.client, Journal(), server.clock))
            await server.clock.run(task)
            assert (await task).state == "done"

        asyncio.run(main())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5 * 2**20
