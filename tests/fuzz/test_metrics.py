"""What servers answer, mutated and noise: no reader raises, and all that is read can be recorded."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import strategies as st

from auditor.engine.diary import parse_json
from auditor.engine.resolved import cache_config_labels, flatten, unreached
from auditor.measure.logprobs import chosen_logprobs, fingerprint_prompt, top_logprobs
from auditor.measure.metrics import COUNTERS, PER_POSITION, RUNNING, WAITING, parse_counters, parse_load
from auditor.measure.wire import EXCERPT, Fault, Reply, parse_reply
from auditor.model.completion import Prompt
from auditor.model.phase import Counters
from tests.fuzz.mutation import SEEDS, Mutator, fuzz

SENT = (5, 6, 7)
NAMES = sorted({*(n for names in COUNTERS.values() for n in names), *PER_POSITION, *RUNNING, *WAITING})
EXPOSITION = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 31.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 93.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 41.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 25.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 16.0
vllm:spec_decode_draft_acceptance_rate{engine="0",model_name="m"} 0.61
vllm:generation_tokens_total{engine="0",model_name="m"} 1.23456e+06
vllm:prompt_tokens_total{engine="0",model_name="m"} 88.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 0.0
vllm:num_preemptions_total{engine="0",model_name="m"} 0.0
vllm:cache_config_info{block_size="16",enable_prefix_caching="False",engine="0",num_gpu_blocks="7"} 1.0
"""
TOP = {"token_id:11": -0.25, "token_id:12": -1.5, "13": -9999.0}
REPLY: dict[str, Any] = {
    "id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m-1", "system_fingerprint": None,
    "choices": [{
        "index": 0, "text": "ab é", "finish_reason": "stop", "stop_reason": 2, "token_ids": [11, 12, 2],
        "prompt_token_ids": [5, 6, 7],
        "logprobs": {"text_offset": [0, 1, 2], "token_logprobs": [-0.25, -0.5, 0.0], "tokens": ["a", "b", ""],
                     "top_logprobs": [TOP, TOP, None]},
        "prompt_logprobs": [None, {"6": {"logprob": -1.0, "rank": 1, "decoded_token": "x"}},
                            {"7": {"logprob": -2.5}}],
    }],
    "usage": {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6,
              "prompt_tokens_details": {"cached_tokens": 0}},
}  # fmt: skip
CONFIG: dict[str, Any] = {
    "model_config": {"model": "m", "dtype": "torch.bfloat16", "hf_token": "secret", "max_model_len": 2048},
    "scheduler_config": {"async_scheduling": True, "max_num_seqs": 32},
    "speculative_config": {"model": "head", "method": "eagle3", "draft_model_config": {"dtype": "x"}},
    "compilation_config": {"mode": 0, "backend": "inductor", "cache_dir": "/x",
                           "pass_config": {"a": [1, {"b": 2}]}},
    "optimization_level": 2,
}  # fmt: skip


def check_exposition(text: str) -> None:
    found = parse_counters(text)
    if found is not None:
        assert msgspec.json.decode(msgspec.json.encode(found), type=Counters) == found
        for name in (*COUNTERS, "accepted_per_position"):
            value = getattr(found, name)
            assert all(-(2**63) <= n < 2**63 for n in (value if isinstance(value, tuple) else (value or 0,)))
    load = parse_load(text)
    assert load is None or msgspec.json.encode(load)
    assert all(isinstance(v, str) for v in cache_config_labels(text).values())


@fuzz(5000, seed=SEEDS)
def test_mutated_expositions(seed: int) -> None:
    check_exposition(Mutator(seed).text(EXPOSITION, 8))


@fuzz(
    1500, name=st.sampled_from([*NAMES, "vllm:cache_config_info"]), tail=st.text(max_size=40), noise=st.text()
)
def test_noise_as_an_exposition(name: str, tail: str, noise: str) -> None:
    check_exposition(f"{noise}\n{name}{tail}\n{name}{{{tail}}} 1\n")


def check_reply(body: bytes, status: int = 200) -> None:
    found = parse_reply(status, body, model="m-1", prompt_ids=SENT)
    if isinstance(found, Fault):
        found.detail.encode()
        assert len(found.detail) < 4 * EXCERPT
        return
    assert isinstance(found, Reply)
    assert found.model == "m-1"
    (choice,) = found.choices
    assert choice.token_ids is not None
    msgspec.json.encode(
        (choice.text, choice.finish_reason, choice.stop_reason, choice.token_ids, found.usage)
    )
    msgspec.json.encode(chosen_logprobs(found))
    assert len(msgspec.json.encode(top_logprobs(found))) > 1
    prompt = Prompt(id="c/1", corpus="c", token_ids=SENT, text="", max_tokens=8)
    msgspec.json.encode(fingerprint_prompt(prompt, found))


@fuzz(8000, seed=SEEDS, status=st.sampled_from([200] * 6 + [404, 500]))
def test_mutated_replies(seed: int, status: int) -> None:
    mutator = Mutator(seed)
    body = mutator.json(REPLY) if mutator.random.random() < 0.7 else mutator.raw(json.dumps(REPLY).encode())
    check_reply(body, status)


@fuzz(1500, body=st.binary() | st.text().map(lambda text: json.dumps({**REPLY, "model": text}).encode()))
def test_noise_as_a_reply(body: bytes) -> None:
    check_reply(body)


def test_a_long_name_of_another_server_is_cut() -> None:
    check_reply(json.dumps({**REPLY, "model": "x" * 100_000}).encode())


@fuzz(4000, seed=SEEDS)
def test_mutated_server_configurations(seed: int) -> None:
    try:
        document = parse_json(Mutator(seed).json(CONFIG).decode("utf-8", "replace"))
    except ValueError:
        return
    if not isinstance(document, dict):
        return
    found = flatten(document)
    msgspec.json.encode(found)
    assert "secret" not in json.dumps({k: v for k, v in found.items() if k.endswith("hf_token")})
    seen = {f"VLLM_{n}": value for n, value in enumerate(document.values())}
    for asked in ("1", "nan", "1e999", "x", "9" * 5000):
        msgspec.json.encode(list(unreached(dict.fromkeys(seen, asked), seen)))
