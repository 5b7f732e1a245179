"""What a server made of its flags, from its own answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from auditor.engine import resolved
from tests.fakes.stub import serve

CONFIG = {
    "model_config": {"model": "m", "dtype": "torch.bfloat16", "served_model_name": "a-1", "hf_token": None,
                     "hf_config": {"x": 1}},
    "attention_config": {"backend": None},
    "structured_outputs_config": {"backend": "auto"},
    "parallel_config": {"tensor_parallel_size": 1, "data_parallel_rpc_port": 29550, "eplb_config": {"a": 1}},
    "speculative_config": {"model": "head", "method": "eagle3", "quantization": None,
                           "draft_model_config": {"dtype": "torch.float32"}},
    "compilation_config": {"mode": 0, "backend": "inductor", "cache_dir": "/x"},
    "instance_id": "17",
    "optimization_level": 2,
}  # fmt: skip


def test_flatten_keeps_the_drafts_fields_apart_from_the_targets() -> None:
    assert resolved.flatten(CONFIG) == {
        "model_config.model": "m",
        "model_config.dtype": "torch.bfloat16",
        "model_config.hf_token": "null",
        "attention_config.attention_backend": "null",
        "structured_outputs_config.structured_outputs_backend": "auto",
        "parallel_config.tensor_parallel_size": "1",
        "parallel_config.eplb_config": '{"a": 1}',
        "speculative_config": '{"method": "eagle3", "model": "head"}',
        "compilation_config": '{"backend": "inductor", "mode": 0}',
        "optimization_level": "2",
    }


def test_fields_of_one_name_get_their_sections_name() -> None:
    flat = resolved.flatten({"a_config": {"size": 1}, "b_config": {"size": 2}})
    assert flat == {"a_config.a_size": "1", "b_config.b_size": "2"}


def test_no_plain_server_names_a_speculative_configuration() -> None:
    assert resolved.flatten({"speculative_config": None}) == {}


def test_cache_config_labels() -> None:
    metrics = (
        "# TYPE vllm:cache_config_info gauge\n"
        'vllm:cache_config_info{block_size="16",enable_prefix_caching="False",engine="1"} 1.0\n'
        'vllm:cache_config_info{enable_prefix_caching="False",engine="0",num_gpu_blocks="7"} 1.0\n'
        "other 1\n"
    )
    assert resolved.cache_config_labels(metrics) == {
        "enable_prefix_caching": "false",
        "num_gpu_blocks": "7",
    }
    assert resolved.cache_config_labels("vllm:cache_config_info{broken") == {}


def test_start_up_lines_stand_in_for_a_closed_server_info() -> None:
    log = [
        "(EngineCore pid=1) INFO 11-30 21:47:45 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with "
        "config: model='/m', speculative_config=SpeculativeConfig(method='ngram', model=None), "
        "dtype=torch.bfloat16, "
        "max_seq_len=2048, served_model_name=a-1, enable_prefix_caching=False, "
        "other=A(x=[1, 2], y={'k': 'v, w'})",
        "(APIServer pid=2) INFO 11-30 21:47:45 [vllm.py:1] Asynchronous scheduling is enabled.",
    ]
    assert resolved.from_log(log) == {
        "log.model": "/m",
        "log.dtype": "torch.bfloat16",
        "log.max_seq_len": "2048",
        "log.enable_prefix_caching": "false",
        "log.other": "A(x=[1, 2], y={'k': 'v, w'})",
        "scheduler_config.async_scheduling": "true",
    }


@pytest.mark.parametrize(
    ("asked", "seen", "told"),
    [
        ("1", True, False),
        ("0", False, False),
        ("1", False, True),
        ("nobind", "nobind", False),
        ("4", 4.0, False),
        ("x", 4, True),
        ("a,b", ["a", "b"], False),
    ],
)
def test_a_variable_that_did_not_arrive(asked: str, seen: object, told: bool) -> None:
    assert bool(list(resolved.unreached({"VLLM_X": asked}, {"VLLM_X": seen}))) is told


def test_a_server_that_tells_nothing_is_listed_as_unverified(tmp_path: Path) -> None:
    with serve(tmp_path, {"server_info_off": True, "metrics": "absent"}) as stub:
        settings, unverified, version = asyncio.run(resolved.read(stub.base_url, None, (), {}))
    assert settings == ()
    assert version == "0.32.0"
    assert [u.split(" (")[0] for u in unverified] == ["resolved configuration", "KV cache configuration"]


def test_the_resolved_setting_is_what_the_server_says_not_what_was_asked(tmp_path: Path) -> None:
    with serve(tmp_path, {"async_scheduling": True}, args=("--no-async-scheduling",)) as stub:
        settings, _, _ = asyncio.run(resolved.read(stub.base_url, None, (), {}))
    assert {s.name: s.value for s in settings}["scheduler_config.async_scheduling"] == "true"
