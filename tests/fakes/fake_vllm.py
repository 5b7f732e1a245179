"""A scripted stand-in for vLLM's OpenAI-compatible server: stdlib only, run as a real child process.

`install(folder, script)` writes an executable `python` that answers what the auditor asks of an engine's
interpreter (`-m vllm.entrypoints.openai.api_server …`, `--help=all`, the `-c` probe); give its path as
`plan.engine.python` and keep `kind = "vllm"`. `write_target(folder)` writes a target folder whose byte
tokenizer (id = byte, 256 = EOS, vocabulary 320) is the fake's own.
`serve(folder, faults)` in `tests/fakes/stub.py` starts one server without the auditor's launcher, for attach
mode and client tests.

The "model" is a pure function of the context ids (a hash), so that rescoring a prefix reproduces decoding.
At every context it has a first and a second choice; states and faults swap them.

Script: a JSON object, given by file name in FAKE_VLLM_SCRIPT (or as the JSON text itself)
  {"all": {faults}, "arms": {"control": {faults} | [{1st launch}, {2nd}, …last repeats]}}
The arm is the served name without its nonce. Launches are counted in the folder `<script file>.count/`.
Faults (defaults in brackets):
 start-up
  boot_s [0]               seconds until the port is bound
  boot_lines [0]           log lines written, evenly spread over boot_s
  never_ready [null]       "silent": no port, no log line; "advancing": no port, a log line every 50 ms
  exit_at_boot [null]      {"code": 1, "message": "…"}: message to stderr, then exit
  exit_once [null]         as exit_at_boot, but only at the first launch of this arm (state kept in .count/)
  eaddrinuse_once [false]  first launch: EADDRINUSE inside the engine's own initialisation, then exit 1
  no_kv_memory_once [false] first launch: "No available memory for the cache blocks", then exit 1
  healthy_then_dies [false] /health is fine, the first completion kills the process
  engine_dead [false]      /health 200, completions 500 EngineDeadError
  served_name [null]       reports and replies with this model name instead of its own
  stderr_flood [0]         bytes written to stderr at boot
  engine_child [true]      a child process titled VLLM::EngineCor, which ends when the server is told to end
  child_left [false]       that child ignores TERM and outlives the server
  child_own_session [false] that child leaves the process group (setsid)
  ignore_term [false]      the server ignores SIGTERM
  log_lines [[]]           further lines for the start-up log
  env_override [{}]        VAR: value that /server_info shows instead: a switch that never arrived
  env_dropped [[]]         variables that a wrapper takes away before the server starts
  autotune [{}]            {"kernel": [["BLOCK_SIZE_H: 2, …", µs], …]}: printed and cached as Triton would
 resolved configuration
  num_gpu_blocks [1024]    KV blocks
  async_scheduling [null]  null: by the flag, else on for eagle/mtp/dflash and without speculation
  server_info [{}]         further or overriding vllm_config fields, flattened names
  server_info_off [false]  404 on /server_info
  version ["0.32.0"]
  cpu [true]               whether the interpreter says that it has a CPU build (from "all" only)
 the model
  state ["A"]              launch state: another state swaps choices at `flip_rate` of the contexts
                           "random": A or B at random; a list: one per launch of this arm
  flip_rate [0.1]
  fingerprint [null]       state that the logprob bits show; null: that of `state`
  mean_length [24]         mean tokens until EOS; 0: never
  margin [0.25]            nats between first and second choice
  answers [{}]             {"text in the prompt": "completion text"}: said after the prompt's last "Answer:"
  solve [null]             0..1: share of `a + b` (or -, *) questions answered right with `#### N`
  solve_seed [""]          which ones are wrong
 faults in completions (those with `share` hit that share of the prompts, chosen by hash)
  diverge [null]           {"at": k, "share": 1.0, "mode": …, "margin": null, "reproduces": true}
                           at is 1-based. Modes: other (second choice), short (ends before k), long (goes on
                           after EOS was due), leak (3 tokens after EOS), overrun (5 beyond max_tokens),
                           degenerate (repeats one token up to max_tokens), oov (an id out of the
                           vocabulary), finish (another finish reason).
  batch_flip [null]        {"share": 0.5}: prompts differ (at token 2) while more than one request is running
  poison [null]            {"share": 0.5}: as batch_flip, and goes on alone after the first concurrent load
  unrepeatable [null]      {"share": 1.0}: each request draws its own state
  usage_off_by [0]         added to usage.completion_tokens
  usage_absent [false]
  prompt_ids_wrong [false] returned prompt_token_ids are not those sent
  token_ids_absent [false] no token_ids in the reply
  nan_logprobs [false]     bare NaN in the JSON
  inf_logprobs [false]     -Infinity in the JSON
  constant_logprobs [null] this number instead of every logprob
  logprobs_absent [false]
  big_reply [0]            bytes of padding in the text
  cached_tokens [null]     usage.prompt_tokens_details.cached_tokens
 cold [null]              {"cached": 32}: a prompt's first request is answered otherwise (at token 2), with 0
                           cached tokens; later ones with that many
 cascade [false]          requests differ while others run, unless --disable-cascade-attn is given
 rescore_off_from [null]  contexts of so many tokens and more are rescored to a third token
 rescore_second_at [null] contexts of just so many tokens are rescored to the second choice
 logprobs_500 [false]     rescoring requests are answered with 500
 echo_prompt [false]      the text repeats the prompt and ends it in a replacement character
 text_suffix [""]         added to the text, not to the ids
 transport
  latency_ms [0]           per request; per_token_ms [0]: per generated token; jitter_ms [0]: up to so much
  status [null]            {"code": 500, "after": n, "count": m, "share": 1.0}: error answers
  stall [null]             {"after": n, "count": m, "mode": "headers"|"body"}: no byte; half a body
  die_after [null]         exits after n completions; die_at_prompt [null]: at a prompt of more tokens
  reset_after [null]       closes the connection without an answer after n completions
  not_json_after [null]    answers rubbish after n completions
  max_running [256]        requests above this wait
 metrics
  metrics ["normal"]       "absent": 404; "none": no speculative family; "zero": families stay 0;
                           "old": names without _total and an acceptance gauge; "created": adds _created;
                           "engines": two engines to be summed; "bad": not Prometheus text
  counters_fall_after [null] counters restart from zero after n completions
  acceptance [0.6]         chance that each further draft token is accepted; list: one per 10 requests;
                           object: by requests in flight, the largest key that is reached
 request_log [null]       file that gets a line of JSON a completion request
  preemptions [0]          added per completion

Endpoints: /health /version /v1/models /v1/completions /metrics /tokenize /detokenize /server_info
/reset_prefix_cache
"""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

EOS = 256
PROGRAM = str(Path(__file__).resolve().parent)


def install(folder: Path, script: dict[str, Any] | None = None) -> Path:
    """Writes `folder/python` and `folder/script.json`; returns the path for `plan.engine.python`."""
    folder.mkdir(parents=True, exist_ok=True)
    script_file = folder / "script.json"
    script_file.write_text(json.dumps(script or {}))
    wrapper = folder / "python"
    wrapper.write_text(
        f'#!/bin/sh\nFAKE_VLLM_SCRIPT="{script_file}"\nexport FAKE_VLLM_SCRIPT\n'
        f'exec "{sys.executable}" -S -E "{PROGRAM}" "$@"\n'
    )
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return wrapper


def write_target(folder: Path, **config: Any) -> Path:
    """Writes a target folder (config.json, tokenizer.json, tokenizer_config.json, a few bytes of weights)."""
    folder.mkdir(parents=True, exist_ok=True)
    base = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "vocab_size": 320,
        "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128, "eos_token_id": EOS,
        "max_position_embeddings": 4096, "torch_dtype": "bfloat16",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(base | config, indent=1))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": EOS}))
    vocab = {symbol: byte for byte, symbol in enumerate(_byte_symbols())} | {"<eos>": EOS}
    eos = {"id": EOS, "content": "<eos>", "single_word": False, "lstrip": False, "rstrip": False,
           "normalized": False, "special": True}  # fmt: skip
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [eos], "normalizer": None,
        "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab,
                  "merges": []},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>"})
    )
    (folder / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    return folder


def _byte_symbols() -> list[str]:
    """GPT-2's printable symbol for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    symbols = {b: chr(b) for b in plain}
    for extra, byte in enumerate(b for b in range(256) if b not in symbols):
        symbols[byte] = chr(256 + extra)
    return [symbols[b] for b in range(256)]
