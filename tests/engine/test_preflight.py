"""Before any server: what stops a plan, and what is only remarked."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from auditor.engine import host, preflight
from auditor.engine.host import EngineProcessSeen, Gpu
from auditor.engine.vllm import Vllm
from auditor.errors import InvalidPlan
from auditor.model.base import EnvVar
from auditor.model.plan import Arm
from tests.engine.conftest import Bench
from tests.fakes import fake_vllm

MakeBench = Callable[..., Bench]


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without other engines, whatever runs on this one."""
    monkeypatch.setattr(host, "other_engines", lambda engine: ())


@pytest.mark.usefixtures("quiet")
def test_a_plan_that_can_start_has_no_errors(bench: MakeBench) -> None:
    b = bench()
    assert [f for f in preflight.check_host(b.plan, b.run_dir) if f.severity == "error"] == []
    info = preflight.inspect(b.plan)
    assert info.version == "0.32.0+cpu"
    assert info.cpu
    assert info.flags is not None
    assert "--speculative-config" in info.flags


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ({"python": "/nowhere/python"}, "could not be run"),
        ({"python": sys.executable}, "has no vllm"),
        ({"args": ("--dtyp", "half")}, "does not know the flag --dtyp; expected --dtype?"),
        ({"kind": "sglang"}, "expected one of vllm"),
        ({"env": (EnvVar(name="VLLM_CPU_KVCACHE_SPACE", value="1000000"),)}, "GiB of memory are available"),
        ({"env": (EnvVar(name="VLLM_CPU_KVCACHE_SPACE", value="much"),)}, "expected a number of GiB"),
    ],
)
def test_a_plan_that_cannot_start_is_refused(bench: MakeBench, engine: dict[str, object], words: str) -> None:
    b = bench()
    b.engine(**engine)
    with pytest.raises(InvalidPlan) as caught:
        preflight.check_host(b.plan, b.run_dir)
    assert words in str(caught.value)
    assert caught.value.todo


@pytest.fixture
def orphan() -> Iterator[int]:
    """The engine process of a server that was killed: it lives on under its title."""
    code = (
        "import subprocess, sys, os; p = subprocess.Popen([sys.executable, '-S', '-E', sys.argv[1], "
        "'--engine-core-stays', '0'], start_new_session=True, stdout=subprocess.DEVNULL); "
        "print(p.pid, flush=True); os._exit(0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, fake_vllm.PROGRAM], stdout=subprocess.PIPE, text=True, check=True
    )
    pid = int(done.stdout)
    while psutil.Process(pid).name() != "VLLM::EngineCor":
        time.sleep(0.02)
    yield pid
    psutil.Process(pid).kill()


def test_an_orphan_is_named_by_pid_refused_and_not_signalled(bench: MakeBench, orphan: int) -> None:
    b = bench()
    with pytest.raises(InvalidPlan, match=rf"pid {orphan} \(VLLM::EngineCor") as caught:
        preflight.check_host(b.plan, b.run_dir)
    assert f"kill {orphan}" in str(caught.value) or f" {orphan}" in caught.value.todo
    assert psutil.pid_exists(orphan)
    assert caught.value.exit_code == 2


def test_our_own_engines_are_no_orphans(bench: MakeBench) -> None:
    import asyncio

    from auditor.engine.launcher import start

    b = bench()

    async def seen() -> set[int]:
        server = await start(b.request())
        ours = {server.launch.pid or 0} | {
            c.pid for c in psutil.Process(server.launch.pid).children(recursive=True)
        }
        others = {p.pid for p in host.other_engines(Vllm())}
        await server.stop()
        return ours & others

    assert asyncio.run(seen()) == set()


def test_another_engine_that_has_its_server_is_only_remarked(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = EngineProcessSeen(
        pid=4711, title="python -m vllm.entrypoints", age_s=5, memory_gib=1, orphan=False
    )
    monkeypatch.setattr(host, "other_engines", lambda engine: (other,))
    b = bench()
    found = preflight.check_host(b.plan, b.run_dir)
    assert [f.code for f in found if "4711" in f.seen] == ["HOST-OTHER-ENGINE"]


def test_little_disk(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    b = bench()
    monkeypatch.setattr(host, "free_disk_gib", lambda folder: 0.1)
    with pytest.raises(InvalidPlan, match=r"0\.10 GiB are free"):
        preflight.check_host(b.plan, b.run_dir)


GPUS = (
    Gpu(index="0", name="H200", total_gib=140.0, free_gib=139.0),
    Gpu(index="1", name="H200", total_gib=140.0, free_gib=99.0, pids=(77, 78)),
)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("gpus", "engine", "words"),
    [
        (GPUS, {"devices": ("0",)}, None),
        (GPUS, {"devices": ("2",)}, "there is no device 2"),
        (GPUS, {"devices": ("0+1",)}, "held by pid 77, 78"),
        (GPUS, {"devices": ("1",), "args": ("--gpu-memory-utilization", "0.6")}, None),
        ((), {}, "no GPU was found"),
        (None, {}, None),
    ],
)
def test_gpus(
    bench: MakeBench,
    monkeypatch: pytest.MonkeyPatch,
    gpus: tuple[Gpu, ...] | None,
    engine: dict[str, object],
    words: str | None,
) -> None:
    b = bench(cpu=False)
    b.engine(**engine)
    monkeypatch.setattr(host, "gpus", lambda: gpus)
    if words is None:
        codes = [f.code for f in preflight.check_host(b.plan, b.run_dir)]
        assert ("HOST-GPU-UNKNOWN" in codes) is (gpus is None)
    else:
        with pytest.raises(InvalidPlan, match=words):
            preflight.check_host(b.plan, b.run_dir)


def test_nvidia_smi_rows() -> None:
    [gpu] = host.parse_smi("0, NVIDIA H200, 143771, 143000, 580.82\n\n")
    assert (gpu.index, gpu.driver, round(gpu.total_gib)) == ("0", "580.82", 140)
    with pytest.raises(ValueError, match="unpack"):
        list(host.parse_smi("NVIDIA-SMI has failed"))


def test_attached_arms_that_are_one_server(bench: MakeBench) -> None:
    b = bench()
    arms = tuple(
        Arm(name=n, role=r, url="http://127.0.0.1:9/v1" if n != "c" else "http://127.0.0.1:8")
        for n, r in (("reference", "reference"), ("control", "control"), ("c", "candidate"))
    )  # fmt: skip
    plan = msgspec.structs.replace(b.plan, arms=arms)
    [finding] = preflight.check_host(plan, b.run_dir)
    assert finding.code == "ATTACH-SAME-SERVER"
    assert "reference and control" in finding.seen
    mixed = msgspec.structs.replace(b.plan, arms=(arms[0], Arm(name="control", role="control")))
    with pytest.raises(InvalidPlan, match="control would be launched while other arms are attached"):
        preflight.check_host(mixed, b.run_dir)


def test_flags_are_kept_only_when_asking_was_slow(
    bench: MakeBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from auditor.engine import inspect

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    b = bench()
    preflight.inspect(b.plan)
    assert not (tmp_path / "cache").exists()
    monkeypatch.setattr(inspect, "_WORTH_KEEPING_S", 0.0)
    inspect._inspect.cache_clear()
    asked = preflight.inspect(b.plan).flags
    [kept] = (tmp_path / "cache").rglob("flags-*.json")
    assert frozenset(json.loads(kept.read_text())) == asked
