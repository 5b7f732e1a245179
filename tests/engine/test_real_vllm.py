"""Two launches of real vLLM on the CPU (minutes): random weights, made here with the engine's own library."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import psutil
import pytest

from auditor.clock import RealClock
from auditor.engine.base import LaunchRequest
from auditor.engine.launcher import start
from auditor.engine.preflight import inspect
from auditor.model.base import EnvVar
from auditor.model.launch import Launch
from auditor.model.plan import AuditPlan, EnginePlan
from tests.engine.conftest import NGRAM, REFERENCE
from tests.fakes.fake_vllm import write_target

PYTHON = Path(
    os.environ.get("AUDIT_ENGINE_PYTHON", Path(__file__).parents[2] / ".venvs/cpu-engine/bin/python")
)
WEIGHTS = """
import sys, torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=2, head_dim=32, vocab_size=320, max_position_embeddings=2048, eos_token_id=256,
    bos_token_id=None)
LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(sys.argv[1])
"""

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PYTHON.exists(), reason="no CPU engine is installed (make setup-engine)"),
]


def test_two_launches_are_read_and_stopped(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target")
    subprocess.run([PYTHON, "-c", WEIGHTS, str(target)], check=True, capture_output=True, timeout=300)
    offline = (EnvVar(name="HF_HUB_OFFLINE", value="1"),)
    engine = EnginePlan(python=str(PYTHON), env=offline)
    plan = AuditPlan(name="t", target=str(target), arms=(REFERENCE, NGRAM), engine=engine)
    assert inspect(plan).cpu

    async def both() -> tuple[list[Launch], list[psutil.Process], list[str | None]]:
        servers, family = [], []
        try:
            for arm in plan.arms:
                request = LaunchRequest(
                    plan=plan,
                    arm=arm,
                    attempt=1,
                    launch_id=f"{arm.name}-1",
                    run_dir=tmp_path,
                    clock=RealClock(),
                    on_change=lambda launch: None,
                    progress=lambda text: None,
                )
                server = await start(request)
                servers.append(server)
                family += psutil.Process(server.launch.pid).children(recursive=True)
            ready = [server.launch for server in servers]
            deaths = [server.death() for server in servers]
        finally:
            for server in servers:
                await server.stop()
        return ready, family, deaths

    (reference, ngram), family, deaths = asyncio.run(both())
    assert deaths == [None, None]
    assert any("VLLM::Eng" in str(p) for p in family) or len(family) >= 4
    assert not [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    one, two = ({s.name: s.value for s in x.resolved} for x in (reference, ngram))
    assert one["scheduler_config.async_scheduling"] == "false"
    assert one["cache_config.enable_prefix_caching"] == "false"
    assert one["model_config.dtype"] == "torch.bfloat16"
    assert reference.diary.kv_blocks == ngram.diary.kv_blocks
    assert reference.diary.kv_blocks
    differing = {k for k in one.keys() | two.keys() if one.get(k) != two.get(k)}
    # the cache roots are private; vLLM sets the scheduled tokens apart from the batched ones with a drafter
    assert differing == {
        "env.VLLM_CACHE_ROOT",
        "scheduler_config.max_num_scheduled_tokens",
        "speculative_config",
    }
    assert {v.name: v.value for v in reference.environ_checked}["OMP_NUM_THREADS"]
