"""What a fake server tells about itself: /metrics and /server_info."""

from __future__ import annotations

import os
from typing import Any

from tests.fakes.fake_work import State


def metrics_text(s: State) -> str:
    mode = s.f.get("metrics", "normal")
    if mode == "bad":
        return "}{ this is not\nPrometheus text\n"
    lines: list[str] = []

    def family(name: str, kind: str, value: float, labels: str = "", base: str | None = None) -> None:
        base = base or (name.removesuffix("_total") if kind == "counter" else name)
        header = f"# TYPE {base} {kind}"
        if header not in lines:
            lines.append(header)
        engines = [("0", value)]
        if mode == "engines":
            engines = [("0", value // 2), ("1", value - value // 2)]
        for engine, part in engines:
            lines.append(f'{name}{{engine="{engine}",model_name="{s.name}"{labels}}} {float(part)}')
            if mode == "created" and kind == "counter":
                created = name.removesuffix("_total") + "_created"
                lines.append(f'{created}{{engine="{engine}",model_name="{s.name}"{labels}}} 1.7e+09')

    with s.lock:
        family("vllm:num_requests_running", "gauge", s.running)
        family("vllm:num_requests_waiting", "gauge", s.waiting)
        family("vllm:num_preemptions_total", "counter", s.preemptions)
        family("vllm:prompt_tokens_total", "counter", s.prompt_tokens)
        family("vllm:generation_tokens_total", "counter", s.generation_tokens)
        family("vllm:prefix_cache_hits_total", "counter", 0)
        if s.speculative is not None and mode != "none":
            end = "" if mode == "old" else "_total"
            kind = "gauge" if mode == "old" else "counter"
            family(f"vllm:spec_decode_num_drafts{end}", kind, s.drafts)
            family(f"vllm:spec_decode_num_draft_tokens{end}", kind, s.draft_tokens)
            family(f"vllm:spec_decode_num_accepted_tokens{end}", kind, s.accepted)
            for position, value in enumerate(s.per_position):
                label = f',position="{position}"'
                family(f"vllm:spec_decode_num_accepted_tokens_per_pos{end}", kind, value, label)
            if mode == "old":
                gauge = s.accepted / s.draft_tokens if s.draft_tokens else 0.0
                family("vllm:spec_decode_draft_acceptance_rate", "gauge", gauge)
    info = {"block_size": "16", "cache_dtype": "auto", "enable_prefix_caching": str(prefix_caching(s)),
            "num_gpu_blocks": str(s.f.get("num_gpu_blocks", 1024))}  # fmt: skip
    labels = ",".join(f'{k}="{v}"' for k, v in info.items())
    lines += ["# TYPE vllm:cache_config_info gauge", f'vllm:cache_config_info{{{labels},engine="0"}} 1.0']
    return "\n".join(lines) + "\n"


def prefix_caching(s: State) -> bool:
    return not s.args.no_enable_prefix_caching


def server_info(s: State) -> dict[str, Any]:
    args = s.args
    method = (s.speculative or {}).get("method")
    asynchronous = s.f.get("async_scheduling")
    if asynchronous is None:
        by_method = method in (None, "eagle", "eagle3", "mtp", "dflash", "draft_model")
        asynchronous = False if args.no_async_scheduling else args.async_scheduling or by_method
    config: dict[str, Any] = {
        "model_config": {"model": args.model, "dtype": args.dtype or "torch.bfloat16",
                         "max_model_len": args.max_model_len or 4096, "seed": args.seed or 0,
                         "enforce_eager": args.enforce_eager},
        "cache_config": {"block_size": 16, "enable_prefix_caching": prefix_caching(s),
                         "num_gpu_blocks": s.f.get("num_gpu_blocks", 1024)},
        "scheduler_config": {"max_num_seqs": args.max_num_seqs or 128, "async_scheduling": asynchronous,
                             "max_num_batched_tokens": args.max_num_batched_tokens or 2048},
        "parallel_config": {"tensor_parallel_size": args.tensor_parallel_size or 1},
        "attention_config": {"backend": args.attention_backend},
        "speculative_config": s.speculative,
    }  # fmt: skip
    for name, value in s.f.get("server_info", {}).items():
        *path, last = name.split(".")
        node = config
        for part in path:
            node = node.setdefault(part, {})
        node[last] = value
    env = {k: v for k, v in os.environ.items() if k.startswith("VLLM_") and "KEY" not in k}
    return {"vllm_config": config, "vllm_env": env | s.f.get("env_override", {}), "system_env": {}}
