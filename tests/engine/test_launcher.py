"""Launches of a scripted engine as real child processes: what is recorded, and what every failure says."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from auditor.engine import launcher, ports
from auditor.engine.launcher import start
from auditor.errors import EngineError, PortShared
from auditor.model.base import EnvVar
from auditor.model.launch import Launch
from tests.engine.conftest import CONTROL, NGRAM, REFERENCE, Bench, FastClock, family

MakeBench = Callable[..., Bench]


def test_a_launch_is_recorded_from_start_to_stop(bench: MakeBench) -> None:
    b = bench(autotune={"_chunk_cumsum_fwd_kernel": [["BLOCK_SIZE_H: 2", 5.7], ["BLOCK_SIZE_H: 4", 5.5]]})
    ready = b.launched(NGRAM)
    assert [s.state for s in b.states] == ["starting", "starting", "ready", "stopped"]
    assert ready.nonce
    assert ready.served_name == f"ngram-{ready.nonce}"
    assert ready.base_url == f"http://127.0.0.1:{ready.port}"
    assert ready.log == "launches/ngram-1/engine.log"
    assert ready.engine_version == "0.32.0"
    assert ready.unverified == ()
    assert ready.diary.kv_blocks == 1024
    [choice] = ready.diary.choices
    assert (choice.kernel, choice.source) == ("_chunk_cumsum_fwd_kernel", "triton-cache")
    assert [t.microseconds for t in choice.timings] == [5.5, 5.7]
    resolved = {s.name: s.value for s in ready.resolved}
    assert resolved["scheduler_config.async_scheduling"] == "false"
    assert resolved["cache_config.enable_prefix_caching"] == "false"
    assert '"method": "ngram"' in resolved["speculative_config"]
    assert b.states[-1].ended_s is not None
    command = (b.run_dir / "launches/ngram-1/command.json").read_text()
    assert "--speculative-config" in command
    assert "async scheduling off on every arm" in command


def test_every_launch_has_its_own_nonce_caches_and_port(bench: MakeBench) -> None:
    b = bench()
    one, two = b.launched(REFERENCE), b.launched(CONTROL)
    assert one.nonce != two.nonce
    roots = [{v.name: v.value for v in x.env}["VLLM_CACHE_ROOT"] for x in (one, two)]
    assert roots == ["<run>/launches/reference-1/vllm-cache", "<run>/launches/control-1/vllm-cache"]


def test_the_environment_is_read_back_and_secrets_stay_out(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secretsecretsecret")
    b = bench(log_lines=["token is hf_secretsecretsecret"])
    b.engine(env=(EnvVar(name="VLLM_SOMETHING", value="7"),))
    ready = b.launched()
    read_back = {v.name: v.value for v in ready.environ_checked}
    assert read_back["VLLM_SOMETHING"] == "7"
    assert read_back["HF_TOKEN"] == "<redacted>"
    assert {v.name: v.value for v in ready.env} == read_back
    assert "hf_secret" not in repr(ready)
    for name in ("command.json", "engine.log"):
        text = (b.run_dir / "launches/reference-1" / name).read_text()
        assert "<redacted>" in text
        assert "hf_secret" not in text


def test_a_switch_that_the_server_does_not_read_is_named(bench: MakeBench) -> None:
    b = bench(env_override={"VLLM_BATCH_INVARIANT": False})
    b.engine(env=(EnvVar(name="VLLM_BATCH_INVARIANT", value="1"),))
    ready = b.launched()
    assert "VLLM_BATCH_INVARIANT was set to 1, but the server reads False" in ready.unverified


def test_a_switch_that_a_wrapper_took_away_is_missing_in_what_is_read_back(bench: MakeBench) -> None:
    b = bench(env_dropped=["VLLM_BATCH_INVARIANT"])
    b.engine(env=(EnvVar(name="VLLM_BATCH_INVARIANT", value="1"),))
    ready = b.launched()
    assert "VLLM_BATCH_INVARIANT" in {v.name for v in ready.env}
    assert "VLLM_BATCH_INVARIANT" not in {v.name for v in ready.environ_checked}


FAILURES: list[tuple[str, dict[str, Any], type[EngineError], tuple[str, ...]]] = [
    ("exits", {"exit_at_boot": {"code": 3, "message": "ValueError: no such head"}}, EngineError,
     ("status 3", "ValueError: no such head", "launches/reference-1/engine.log")),
    ("dies-at-first-token", {"healthy_then_dies": True}, EngineError,
     ("after /health was fine", "mat1 and mat2 shapes cannot be multiplied")),
    ("engine-dead", {"engine_dead": True}, EngineError, ("EngineCore encountered an issue", "500")),
    ("foreign-name", {"served_name": "other-123456"}, PortShared, ("other-123456", "nonce")),
    ("no-completion", {"not_json_after": 0}, EngineError, ("no completion",)),
    ("broken-off", {"reset_after": 0}, EngineError, ("broke off its first completion",)),
]  # fmt: skip


@pytest.mark.parametrize(("faults", "kind", "words"), [f[1:] for f in FAILURES], ids=[f[0] for f in FAILURES])
def test_a_failed_start_says_why_and_leaves_nothing(
    bench: MakeBench, faults: dict[str, Any], kind: type[EngineError], words: tuple[str, ...]
) -> None:
    b = bench(**faults)
    with pytest.raises(kind) as caught:
        b.launched()
    for word in words:
        assert word in str(caught.value)
    last = b.states[-1]
    assert last.state == "failed"
    assert last.error == str(caught.value)
    assert last.log_tail
    assert family() == []


def test_a_stalled_canary_is_an_error_not_a_hang(bench: MakeBench) -> None:
    b = bench(stall={"mode": "headers"})
    b.engine(request_timeout_s=0.5)
    with pytest.raises(EngineError, match="first completion took more than"):
        b.launched()


def test_a_start_that_goes_on_is_waited_for(bench: MakeBench) -> None:
    """Refused for 700 s with an advancing log, then ready (the limits are 1800 s and 600 s)."""
    b = bench(boot_s=2.0, boot_lines=20)
    b.clock = FastClock(350)
    assert b.launched().state == "ready"
    assert any("still starting" in note for note in b.notes)


@pytest.mark.parametrize(
    ("mode", "words"),
    [("silent", "wrote nothing to its log"), ("advancing", "though its log still advances")],
)
def test_a_start_that_does_not_go_on_is_ended(bench: MakeBench, mode: str, words: str) -> None:
    b = bench(never_ready=mode)
    b.clock = FastClock(400)  # silence of 600 s is 1.5 s here: longer than a busy machine starves the child
    with pytest.raises(EngineError, match=words) as caught:
        b.launched()
    assert "-timeout" in str(caught.value)
    assert family() == []


@pytest.mark.parametrize(
    ("fault", "words"), [("eaddrinuse_once", "port race"), ("no_kv_memory_once", "no memory left")]
)
def test_a_passing_failure_is_tried_once_more_and_recorded(bench: MakeBench, fault: str, words: str) -> None:
    b = bench(**{fault: True})
    ready = b.launched()
    failed = [s for s in b.states if s.state == "failed"]
    assert {s.id for s in failed} == {"reference-1", "reference-1-failed"}
    assert (b.run_dir / str(failed[-1].log)).read_text().strip()
    assert ready.id == "reference-1"
    assert any(words in w for w in ready.diary.warnings)
    assert any(words in n for n in b.notes)


def test_a_port_race_that_comes_twice_does_not_blame_the_api_port(bench: MakeBench) -> None:
    message = (
        "torch.distributed.DistNetworkError: code: -98, name: EADDRINUSE, message: address already in use"
    )
    b = bench(exit_at_boot={"code": 1, "message": message})
    with pytest.raises(EngineError, match=r"its API port \d+ was free"):
        b.launched()
    assert len({s.port for s in b.states}) == 2


def test_a_port_on_which_somebody_answers_is_refused(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        monkeypatch.setattr(launcher, "free_port", lambda: other.getsockname()[1])
        b = bench()
        with pytest.raises(PortShared, match="another process answers on port"):
            b.launched()
    assert b.states[-1].state == "failed"


def test_a_flood_on_stderr_blocks_nothing(bench: MakeBench) -> None:
    b = bench(stderr_flood=200_000)
    assert b.launched().state == "ready"
    assert (b.run_dir / "launches/reference-1/engine.log").stat().st_size > 200_000


def is_core_of(process: psutil.Process, folder: str) -> bool:
    """Whether it is an engine core whose API server runs in `folder`; other tests' processes come and go."""
    try:
        parent = process.parent() if process.name().startswith("VLLM::") else None
        return parent is not None and folder in " ".join(parent.cmdline())
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    "faults",
    [{"ignore_term": True}, {"child_left": True}, {"child_left": True, "child_own_session": True}],
    ids=["ignores-term", "child-ignores-term", "child-in-a-session-of-its-own"],
)
def test_stop_ends_everything(
    bench: MakeBench, faults: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "_STOP_GRACE_S", 0.3)
    b = bench(**faults)

    async def once() -> list[str]:
        server = await start(b.request())
        ours = [c for c in psutil.process_iter() if is_core_of(c, str(b.folder))]
        await server.stop()
        await server.stop()
        return [str(c) for c in ours if c.is_running() and c.status() != psutil.STATUS_ZOMBIE]

    assert asyncio.run(once()) == []
    assert b.states[-1].state == "stopped"
    assert not ports.answers(b.states[-1].port or 0)


def test_a_server_that_dies_is_recorded_with_its_own_words(bench: MakeBench) -> None:
    b = bench(die_after=1)

    async def once() -> tuple[bool, str | None, Launch]:
        import httpx

        server = await start(b.request())
        before = server.alive()
        body = {"model": server.model, "prompt": [40, 41], "max_tokens": 4}
        async with httpx.AsyncClient(trust_env=False) as http:
            with pytest.raises(httpx.HTTPError):
                await http.post(f"{server.base_url}/v1/completions", json=body)
        while server.alive():
            await asyncio.sleep(0.02)
        return before, server.death(), await server.stop()

    before, death, last = asyncio.run(once())
    assert before
    assert death
    assert "illegal memory access" in death
    assert last.state == "died"
    assert last.log_tail


def test_a_lost_engine_process_is_a_death_although_the_api_answers(bench: MakeBench) -> None:
    b = bench()

    async def once() -> str | None:
        server = await start(b.request())
        [core] = [
            c
            for c in psutil.Process(server.launch.pid or 0).children(recursive=True)
            if c.name() == "VLLM::EngineCor"
        ]
        core.kill()
        while server.alive():
            await asyncio.sleep(0.02)
        await server.stop()
        return server.death()

    assert "lost its engine process" in (asyncio.run(once()) or "")
    assert b.states[-1].state == "died"


def test_a_cancelled_stop_goes_to_its_end(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "_STOP_GRACE_S", 0.5)
    b = bench(ignore_term=True)

    async def once() -> None:
        server = await start(b.request())
        task = asyncio.ensure_future(server.stop())
        for _ in range(2):
            await asyncio.sleep(0.05)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert family() == [], "before the loop ends"
        assert (await server.stop()).state == "stopped"

    asyncio.run(once())
    assert [s.state for s in b.states[-2:]] == ["ready", "stopped"]


@pytest.mark.parametrize("signals", [1, 3])
def test_a_cancelled_start_stops_what_it_started(
    bench: MakeBench, signals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "_STOP_GRACE_S", 0.5)
    b = bench(never_ready="advancing", ignore_term=signals > 1)

    async def once() -> None:
        task = asyncio.ensure_future(start(b.request()))
        while not (b.states and "warming up" in (b.run_dir / b.states[0].log).read_text()):
            await asyncio.sleep(0.02)
        for _ in range(signals):
            task.cancel()
            await asyncio.sleep(0.05)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert family() == [], "before the loop ends"

    asyncio.run(once())
    assert b.states[-1].state == "failed"


def test_a_signal_while_a_failed_start_is_stopped_ends_the_launch(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A port race is tried once more, but not after Ctrl-C."""
    b = bench(eaddrinuse_once=True)
    real = launcher.EngineProcess.stop

    async def scene() -> None:
        task = asyncio.ensure_future(start(b.request()))

        async def stop(process: launcher.EngineProcess, grace_s: float) -> int | None:
            task.cancel()
            await asyncio.sleep(0.05)
            return await real(process, grace_s)

        monkeypatch.setattr(launcher.EngineProcess, "stop", stop)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scene())
    assert [s.state for s in b.states] == ["starting", "starting", "failed"]
    assert "EADDRINUSE" in (b.states[-1].error or "") or "ddress already in use" in (b.states[-1].error or "")
    assert family() == []


def test_snapshot_copies_the_caches_privately(bench: MakeBench) -> None:
    b = bench(autotune={"kernel": [["BLOCK: 1", 1.0], ["BLOCK: 2", 2.0]]})
    b.launched(REFERENCE)
    source = b.run_dir / "launches/reference-1"
    ready = b.launched(CONTROL, cache_from=source)
    assert ready.cache_from == "reference-1"
    [theirs] = (b.run_dir / "launches/control-1/triton-cache").rglob("*.autotune.json")
    [ours] = (source / "triton-cache").rglob("*.autotune.json")
    theirs.write_text("{}")
    assert ours.read_text() != "{}"


def test_a_restart_keeps_the_id_of_what_it_continues(bench: MakeBench) -> None:
    b = bench()
    b.launched()
    source = b.run_dir / "launches/reference-1"
    again = b.launched(launch_id="reference-1r1", cache_from=source, restart_of="reference-1")
    assert (again.restart_of, again.cache_from) == ("reference-1", "reference-1")


def test_an_interpreter_that_cannot_be_run_is_named(bench: MakeBench, tmp_path: Path) -> None:
    from auditor.errors import InvalidPlan

    b = bench()
    b.engine(python=str(tmp_path / "nowhere"))
    with pytest.raises(InvalidPlan, match="could not be run"):
        b.launched()
