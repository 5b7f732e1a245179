"""Launching, certification and configuration: what has to be equal before anything is compared."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.cases.audits import Ran, arguments, attached, audit, cli, says
from tests.fakes.fake_vllm import install
from tests.fakes.stub import serve


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One reference, and candidates that start or resolve their configuration otherwise."""
    arms = {
        "c2": {"cached_tokens": 0},
        "c4": {"async_scheduling": True},
        "e3": {"no_kv_memory_once": True, "num_gpu_blocks": 700},
        "e5slow": {"boot_s": 6, "boot_lines": 60},
        "e5silent": {"never_ready": "silent"},
        "e6": {"eaddrinuse_once": True},
    }
    return audit(
        tmp_path_factory.mktemp("launches"),
        {"all": {"cached_tokens": 4288}, "arms": arms},
        "--gates=certification",
        "--silent-timeout=4",
        "--engine-args=--kv-cache-memory-bytes 1000000",
        drafts=[f"{arm}=ngram" for arm in arms],
    )


def test_C2_speculation_that_loses_the_prefix_cache_is_not_comparable(launches: Ran) -> None:
    gate = launches.gate("certification/c2")
    assert gate.status == "UNCERTIFIED"
    says(gate.figure, "NOT COMPARABLE", "prefix cache hits")
    says(gate.remedy, "alike on every arm")


def test_C4_the_resolved_configuration_counts_not_the_flags(launches: Ran) -> None:
    flags = {x.arm: "--no-async-scheduling" in x.argv for x in launches.record.launches}
    assert flags["c4"]
    assert flags["reference"]
    gate = launches.gate("certification/c4")
    assert gate.status == "UNCERTIFIED"
    says(gate.figure, "NOT COMPARABLE", "async_scheduling")
    says(gate.remedy, "async_scheduling", "alike on every arm")


def test_E3_memory_lost_to_a_co_launch_is_tried_again_and_the_smaller_cache_is_noted(launches: Ran) -> None:
    first = launches.launch("e3-1-failed")
    assert first.state == "failed"
    says(first.error or "", "No available memory for the cache blocks")
    assert launches.launch("e3-1").state == "stopped"
    says(" ".join(launches.launch("e3-1").diary.warnings), "while other servers were starting")
    certificate = next(c for c in launches.record.judgement.certificates if c.other == "e3-1")
    note = next(s for s in certificate.settings if s.name == "kv_blocks")
    assert (note.reference, note.other, note.kind) == ("1024", "700", "listed")
    assert launches.gate("certification/e3").status == "PASS"


def test_E5_a_start_that_goes_on_is_waited_for_and_a_silent_one_ends(launches: Ran) -> None:
    slow = launches.launch("e5slow-1")
    assert slow.ready_s is not None
    assert slow.ready_s > 4, "longer than --silent-timeout"
    silent = launches.launch("e5silent-1")
    assert silent.state == "failed"
    says(silent.error or "", "wrote nothing to its log", "--silent-timeout")
    assert silent.pid is not None
    assert not psutil.pid_exists(silent.pid)
    gate = launches.gate("certification/e5silent")
    assert gate.status == "ERROR"
    says(gate.remedy, "log", "audit resume")
    assert launches.code == 5


def test_E6_a_port_race_inside_the_engine_is_tried_once_more_and_not_blamed_on_the_api_port(
    launches: Ran,
) -> None:
    first = launches.launch("e6-1-failed")
    says(first.error or "", "EADDRINUSE", "a port inside the engine", "was free")
    assert "--port" not in (first.error or "")
    assert launches.launch("e6-1").state == "stopped"
    assert launches.gate("certification/e6").status == "PASS"


def test_B5_a_switch_that_never_reached_the_server_is_found_before_measuring(tmp_path: Path) -> None:
    """The plan sets VLLM_BATCH_INVARIANT; the engine's wrapper drops it on the way."""
    arguments(tmp_path, {})
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nunset VLLM_BATCH_INVARIANT\nexec "{tmp_path}/engine/python" "$@"\n')
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    ran = audit(
        tmp_path,
        {},
        "--gates=certification,agreement",
        "--engine-env=VLLM_BATCH_INVARIANT=1",
        python=wrapper,
    )
    assert ran.code == 3, ran.out
    found = ran.finding("SWITCH-NOT-REACHED")
    says(found.seen, "VLLM_BATCH_INVARIANT", "1 (asked for)")
    says(found.remedy, "where the server is started")
    assert not [p for p in ran.record.phases if p.stage == "batch1"]
    says(ran.out, "UNCERTIFIED", "VLLM_BATCH_INVARIANT")


def test_C1_a_cold_answer_that_differs_from_the_warm_one_is_a_cache_path_not_noise(tmp_path: Path) -> None:
    ran = audit(tmp_path, {"all": {"cold": {"cached": 32}}}, "--gates=certification,agreement")
    assert ran.code == 3, ran.out
    found = ran.finding("CACHE-PATH", "reference")
    says(found.seen, "answered differently once cached")
    says(found.remedy, "not noise from run to run", "--no-enable-prefix-caching", "warm all of them alike")
    says(ran.gate("repeatability/reference").remedy, "only cached prompts differ")
    assert not [p for p in ran.record.phases if p.stage == "batch1"]


def test_C8_arguments_that_drifted_between_the_arms_are_refused(tmp_path: Path) -> None:
    two = ("--no-async-scheduling", "--tensor-parallel-size", "2")
    spec = ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}')
    with (
        serve(tmp_path, name="reference-0", args=two) as one,
        serve(tmp_path, name="control-0", args=two) as other,
        serve(
            tmp_path, name="candidate-0", args=("--no-async-scheduling", "--tensor-parallel-size", "1", *spec)
        ) as candidate,
    ):
        ran = attached(
            tmp_path,
            one.base_url + "/v1",
            other.base_url,
            candidate.base_url,
            "--gates=certification,agreement",
        )
    assert ran.code == 3, ran.out
    gate = ran.gate("certification/candidate")
    says(gate.figure, "NOT COMPARABLE", "tensor_parallel_size is 2 on the reference and 1 here")
    says(gate.remedy, "tensor_parallel_size alike on every arm")
    assert ran.gate("certification/control").status == "PASS"
    assert ran.gate("agreement/candidate").status == "UNCERTIFIED"


def test_E2_orphan_is_named_and_launch_refused(tmp_path: Path) -> None:
    """A launcher was killed; the child that holds the device lives on, its port already free."""
    lost = install(tmp_path / "lost", {"all": {"child_left": True}})
    parent = subprocess.Popen(
        [lost, "-m", "vllm.entrypoints.openai.api_server", "--port", "0", "--served-model-name", "lost-0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    child = _helper_of(parent.pid)
    try:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        assert child.is_running()
        ran = cli(tmp_path / "run", *arguments(tmp_path, {}, "--gates=agreement"))
        assert ran.code == 2, ran.out + ran.err
        says(ran.err, f"pid {child.pid}", "VLLM::EngineCor", f"kill {child.pid}", "only what it started")
        assert not (tmp_path / "run").exists()
        assert child.is_running(), "an audit signals nothing that it did not start"
    finally:
        child.kill()


def _helper_of(pid: int) -> psutil.Process:
    """The process titled VLLM::EngineCor below `pid`, once it is there."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for child in psutil.Process(pid).children(recursive=True):
            if child.name().startswith("VLLM::"):
                return child
        time.sleep(0.02)
    sys.exit("the scripted engine has no helper process")
