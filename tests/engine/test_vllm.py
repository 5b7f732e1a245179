"""The vLLM adapter: command lines, refusals, and reading its log. No process is started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from auditor.clock import RealClock
from auditor.engine import flags, pins
from auditor.engine.base import Command, EngineInfo, LaunchRequest
from auditor.engine.vllm import CPU_ENV, Vllm, check_speculation
from auditor.errors import InvalidPlan
from auditor.model.base import EnvVar
from auditor.model.plan import Arm, AuditPlan, Draft, EnginePlan

_FLAGS = """
--model --served-model-name --host --port --speculative-config --async-scheduling --no-async-scheduling
--enable-prefix-caching --no-enable-prefix-caching --generation-config --enforce-eager --dtype
--max-model-len --trust-remote-code --gpu-memory-utilization --tensor-parallel-size --api-key
--compilation-config --kv-cache-memory-bytes --no-enable-flashinfer-autotune
"""
KNOWN = frozenset(_FLAGS.split())
CPU = EngineInfo(python="py", version="0.32.0", cpu=True, flags=KNOWN)
GPU = EngineInfo(python="py", version="0.25.1", cpu=False, flags=KNOWN)
REFERENCE = Arm(name="reference", role="reference")


def head(config: dict[str, Any], **fields: Any) -> Arm:
    draft = Draft(
        name="head",
        method=fields.pop("method", "eagle3"),
        path=fields.pop("path", None),
        speculative_config=json.dumps(config),
    )
    return Arm(name="head", role="candidate", draft=draft, **fields)


def command(
    arm: Arm = REFERENCE, info: EngineInfo = CPU, *, pin: str = "none", engine: EnginePlan | None = None,
    **request: Any,
) -> Command:  # fmt: skip
    plan = AuditPlan(name="t", target="m", arms=(arm,), engine=engine or EnginePlan(), pin=pin)  # type: ignore[arg-type]
    wanted = LaunchRequest(
        plan=plan, arm=arm, attempt=1, launch_id=f"{arm.name}-1", run_dir=Path("run"), clock=RealClock(),
        on_change=lambda _: None, progress=lambda _: None, **request,
    )  # fmt: skip
    return Vllm().command(wanted, info, 1234, "name-nonce")


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*CPU_ENV, "CUDA_VISIBLE_DEVICES", "TORCH_LOGS", "TRITON_PRINT_AUTOTUNING"):
        monkeypatch.delenv(name, raising=False)


def test_every_arm_gets_what_has_to_be_equal() -> None:
    made = command()
    assert made.argv[:3] == ("py", "-m", "vllm.entrypoints.openai.api_server")
    assert flags.value_of(made.argv, "--host") == "127.0.0.1"
    assert flags.value_of(made.argv, "--served-model-name") == "name-nonce"
    assert flags.value_of(made.argv, "--generation-config") == "vllm"
    assert flags.has_flag(made.argv, "--no-async-scheduling")
    assert flags.has_flag(made.argv, "--no-enable-prefix-caching")
    assert not flags.has_flag(made.argv, "--speculative-config", "--trust-remote-code")
    both = command(head({"num_speculative_tokens": 3}, path="head/"))
    assert set(both.argv) - set(made.argv) == {"--speculative-config", both.argv[-1]}
    assert json.loads(both.argv[-1]) == {"method": "eagle3", "model": "head/", "num_speculative_tokens": 3}


@pytest.mark.parametrize(
    ("given", "left_out"),
    [
        ("--async-scheduling", "--no-async-scheduling"),
        ("--enable_prefix_caching", "--no-enable-prefix-caching"),
        ("--generation-config=auto", "--generation-config"),
    ],
)
def test_the_users_flag_wins(given: str, left_out: str) -> None:
    made = command(engine=EnginePlan(args=(given,)))
    assert given in made.argv
    assert made.argv.count(left_out) == 0


def test_a_flag_that_the_engine_does_not_know_is_not_added() -> None:
    old = EngineInfo(python="py", version="0.9", flags=KNOWN - {"--no-async-scheduling"})
    assert not flags.has_flag(command(info=old).argv, "--no-async-scheduling")


def test_a_cpu_build_gets_cpu_defaults_that_the_plan_can_override() -> None:
    made = command(engine=EnginePlan(env=(EnvVar(name="OMP_NUM_THREADS", value="4"),)))
    assert made.env["OMP_NUM_THREADS"] == "4"
    assert made.env["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert "--enforce-eager" in made.argv
    assert "CPU build: VLLM_CPU_OMP_THREADS_BIND=nobind" in made.notes
    assert "TORCH_LOGS" not in made.env
    gpu = command(info=GPU)
    assert "VLLM_TARGET_DEVICE" not in gpu.env
    assert "--enforce-eager" not in gpu.argv


def test_devices_groups_and_memory_on_a_gpu() -> None:
    made = command(info=GPU, device="0+1", memory_fraction=0.45)
    assert made.env["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert flags.value_of(made.argv, "--tensor-parallel-size") == "2"
    assert flags.value_of(made.argv, "--gpu-memory-utilization") == "0.45"
    # vLLM wants that share to be free at a start, also where the size of the cache is given
    sized = command(info=GPU, memory_fraction=0.45, engine=EnginePlan(args=("--kv-cache-memory-bytes", "1")))
    assert flags.value_of(sized.argv, "--gpu-memory-utilization") == "0.45"
    given = command(
        info=GPU, memory_fraction=0.45, engine=EnginePlan(args=("--gpu-memory-utilization", "0.3"))
    )
    assert [word for word in given.argv if "utilization" in word] == ["--gpu-memory-utilization"]


def test_caches_are_private_and_absolute() -> None:
    env = command().env
    assert env["VLLM_CACHE_ROOT"] == str(Path("run/launches/reference-1/vllm-cache").resolve())
    assert env["TRITON_CACHE_DIR"] == str(Path("run/launches/reference-1/triton-cache").resolve())


def test_the_force_pin() -> None:
    user = EnginePlan(args=("--compilation-config", '{"mode": 3, "inductor_compile_config": {"x": 1}}'))
    made = command(info=GPU, pin="force", engine=user)
    assert made.env["VLLM_TRITON_FORCE_FIRST_CONFIG"] == "1"
    assert made.argv.count("--compilation-config") == 1
    assert json.loads(flags.value_of(made.argv, "--compilation-config") or "") == {
        "mode": 3,
        "inductor_compile_config": {
            "x": 1,
            "deterministic": True,
            "combo_kernels": False,
            "benchmark_combo_kernel": False,
        },
    }
    assert "--no-enable-flashinfer-autotune" in made.argv
    with pytest.raises(InvalidPlan, match="cannot be joined with --pin force"):
        pins.force_args("force", ("--compilation-config", "3"), KNOWN, eager=False)


REFUSED: list[tuple[EnginePlan, Arm, str]] = [
    (EnginePlan(args=("--port", "1")), REFERENCE, "--port"),
    (EnginePlan(args=("--host=0.0.0.0",)), REFERENCE, "loopback"),
    (EnginePlan(args=("--speculative_config", "{}")), REFERENCE, "--draft"),
    (EnginePlan(args=("--speculative-config.method=x",)), REFERENCE, "--draft"),
    (EnginePlan(args=("--dtyp", "half")), REFERENCE, "--dtype?"),
    (EnginePlan(args=("--trust-remote-code",)), REFERENCE, "allowed in the plan"),
    (EnginePlan(), Arm(name="x", role="control", extra_args=("--nope",)), "does not know the flag --nope"),
    (EnginePlan(), head({"rejection_sample_method": "synthetic"}), "rejection_sample_method is synthetic"),
    (EnginePlan(), head({"rejection_sample_method": "block"}), "rejection_sample_method is block"),
    (EnginePlan(), head({"synthetic_acceptance_length": 2.5}), "synthetic_acceptance_length"),
    (EnginePlan(), head({"synthetic_acceptance_rates": [0.5]}), "synthetic_acceptance_rates"),
    (EnginePlan(), head({"acceptance_method": "typical_acceptance_sampler"}), "acceptance_method"),
    (EnginePlan(), head({"posterior_threshold": 0.09}), "posterior_threshold"),
    (EnginePlan(), head({"typical_acceptance_sampler_posterior_alpha": 0.3}), "posterior_alpha"),
]


@pytest.mark.parametrize(("engine", "arm", "words"), REFUSED, ids=[r[2][:30] for r in REFUSED])
def test_refusals_name_the_setting_and_the_way_out(engine: EnginePlan, arm: Arm, words: str) -> None:
    with pytest.raises(InvalidPlan) as caught:
        command(arm, engine=engine)
    assert words in str(caught.value)
    assert caught.value.todo


@pytest.mark.parametrize(
    "config",
    [
        {"method": "eagle3", "rejection_sample_method": "standard", "num_speculative_tokens": 3},
        {"rejection_sample_method": "strict"},
        {"synthetic_acceptance_length": None},
        {"method": "draft_model", "model": "acme/typical-model"},
        {"draft_sample_method": "greedy", "disable_padded_drafter_batch": True},
        {"method": "suffix", "suffix_decoding_min_token_prob": 0.1},
    ],
)
def test_exact_speculation_is_allowed(config: dict[str, Any]) -> None:
    check_speculation(config)


@pytest.mark.parametrize("k", [1, 3, 9, 10, 11])
def test_the_canary_is_never_one_or_k_plus_one_tokens_long(k: int) -> None:
    length = len(Vllm().canary(head({"num_speculative_tokens": k})))
    assert length not in (1, k + 1)


def test_trust_remote_code_only_when_asked_for() -> None:
    assert "--trust-remote-code" in command(engine=EnginePlan(trust_remote_code=True)).argv


LOGS: list[tuple[str, list[str], str | None]] = [
    ("root cause before the generic end",
     ["(EngineCore pid=1) ERROR 11-30 12:00:00 [core.py:1] Traceback (most recent call last):",
      "(EngineCore pid=1) ERROR 11-30 12:00:00 [core.py:1] ValueError: bad head",
      "(APIServer pid=2) RuntimeError: Engine core initialization failed. See root cause above."],
     "ValueError: bad head"),
    ("only the generic one", ["RuntimeError: Engine core initialization failed. See root cause above."],
     "RuntimeError: Engine core initialization failed. See root cause above."),
    ("dotted class", ["torch.OutOfMemoryError: CUDA memory"], "torch.OutOfMemoryError: CUDA memory"),
    ("none", ["INFO all is well", ""], None),
]  # fmt: skip


@pytest.mark.parametrize(("log", "expected"), [case[1:] for case in LOGS], ids=[case[0] for case in LOGS])
def test_last_error(log: list[str], expected: str | None) -> None:
    assert Vllm().last_error(log) == expected


@pytest.mark.parametrize(
    ("name", "argv", "yes"),
    [
        ("VLLM::EngineCor", ["VLLM::EngineCore"], True),
        ("VLLM::Worker_TP", ["VLLM::Worker_TP0"], True),
        ("python3", ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "x"], True),
        ("vllm", ["/usr/bin/python3", "/usr/local/bin/vllm", "serve", "x"], True),
        ("python3", ["python3", "supervisor.py", "log", "vllm.entrypoints"], False),
        ("vim", ["vim", "vllm.entrypoints.py"], False),
        ("", [], False),
    ],
)
def test_engine_processes_are_recognised(name: str, argv: list[str], yes: bool) -> None:
    assert Vllm().is_engine_process(name, argv) is yes


@pytest.mark.parametrize(
    ("args", "name", "expected"),
    [
        (("--a-b", "1"), "--a-b", "1"),
        (("--a_b=1", "--a-b", "2"), "--a-b", "2"),
        (("--a.b", "1"), "--a", None),
        (("--flag", "--other"), "--flag", None),
        ((), "--x", None),
    ],
)
def test_value_of(args: tuple[str, ...], name: str, expected: str | None) -> None:
    assert flags.value_of(args, name) == expected


def test_without_takes_the_value_along() -> None:
    args = ("--x", "1", "--y", "--x=2", "--x.k", "v", "z")
    assert flags.without(args, "--x") == ("--y", "--x.k", "v", "z")
