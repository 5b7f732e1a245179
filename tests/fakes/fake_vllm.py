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
  vocab [320]
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
 transport
  latency_ms [0]           per request; per_token_ms [0]: per generated token
  status [null]            {"code": 500, "after": n, "count": m, "share": 1.0}: error answers
  stall [null]             {"after": n, "count": m, "mode": "headers"|"body"}: no byte; half a body
  die_after [null]         exits after n completions
  reset_after [null]       closes the connection without an answer after n completions
  not_json_after [null]    answers rubbish after n completions
  max_running [256]        requests above this wait
 metrics
  metrics ["normal"]       "absent": 404; "none": no speculative family; "zero": families stay 0;
                           "old": names without _total and an acceptance gauge; "created": adds _created;
                           "engines": two engines to be summed; "bad": not Prometheus text
  counters_fall_after [null] counters restart from zero after n completions
  acceptance [0.6]         chance that each further draft token is accepted; list: one per 10 requests
  preemptions [0]          added per completion

Endpoints: /health /version /v1/models /v1/completions /metrics /tokenize /detokenize /server_info
/reset_prefix_cache
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import math
import os
import random
import re
import signal
import stat
import struct
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

EOS = 256
ALPHABET = b"abcdefghijklmnopqrstuvwxyz    0123456789.,\n"
VALUE_FLAGS = """
--model --served-model-name --host --port --speculative-config --max-model-len --max-num-seqs
--max-num-batched-tokens --dtype --seed --tensor-parallel-size --data-parallel-size
--gpu-memory-utilization --kv-cache-memory-bytes --block-size --generation-config --max-logprobs
--attention-backend --moe-backend --mamba-backend --compilation-config --tokenizer --api-key
--load-format --quantization --kv-cache-dtype --override-generation-config --hf-overrides
"""
SWITCHES = """
--enforce-eager --trust-remote-code --enable-prefix-caching --no-enable-prefix-caching
--async-scheduling --no-async-scheduling --enable-chunked-prefill --no-enable-chunked-prefill
--disable-cascade-attn --enable-flashinfer-autotune --no-enable-flashinfer-autotune
--disable-log-stats --no-enable-log-requests --skip-tokenizer-init
"""


# ------------------------------------------------------------------ helpers for tests


def install(folder: Path, script: dict[str, Any] | None = None) -> Path:
    """Writes `folder/python` and `folder/script.json`; returns the path for `plan.engine.python`."""
    folder.mkdir(parents=True, exist_ok=True)
    script_file = folder / "script.json"
    script_file.write_text(json.dumps(script or {}))
    wrapper = folder / "python"
    wrapper.write_text(
        f'#!/bin/sh\nFAKE_VLLM_SCRIPT="{script_file}"\nexport FAKE_VLLM_SCRIPT\n'
        f'exec "{sys.executable}" -S -E "{Path(__file__).resolve()}" "$@"\n'
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


# ------------------------------------------------------------------ the model


def _hash(*parts: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big")


def _unit(*parts: object) -> float:
    return _hash(*parts) / 2**64


def text_of(ids: list[int]) -> str:
    return bytes(i for i in ids if 0 <= i < 256).decode("utf-8", errors="replace")


def float32(x: float) -> float:
    return struct.unpack(">f", struct.pack(">f", x))[0]  # type: ignore[no-any-return]


class Model:
    """Next-token choices as a function of the context ids."""

    def __init__(self, faults: dict[str, Any], launch_no: int) -> None:
        self.f = faults
        state = faults.get("state", "A")
        if isinstance(state, list):
            state = state[min(launch_no, len(state)) - 1]
        if state == "random":
            state = random.choice("AB")
        self.state = str(state)
        self.bits = str(faults.get("fingerprint") or self.state)
        self.overrides: dict[int, int] = {}
        self.margins: dict[int, float] = {}

    def scripted_text(self, ids: list[int]) -> tuple[str, str] | None:
        """(what should be said, what has been said so far) where the script knows the answer."""
        answers, solve = self.f.get("answers", {}), self.f.get("solve")
        if not answers and solve is None:
            return None
        text = text_of(ids)
        question, mark, said = text.rpartition("Answer:")
        if not mark:
            question, said = text, ""
        tail = question.rpartition("Question:")[2]
        for key, answer in answers.items():
            if key in tail:
                return str(answer), said
        if solve is None:
            return None
        found = re.findall(r"(\d+)\s*([-+*])\s*(\d+)", tail)
        if not found:
            return None
        a, op, b = found[-1]
        value = {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[op]
        if _unit("solve", self.f.get("solve_seed", ""), tail) >= float(solve):
            value += 1
        return f" {a} {op} {b} = {value}\n#### {value}", said

    def choices(self, ids: list[int]) -> tuple[int, int]:
        """First and second choice at a context, before states and faults."""
        scripted = self.scripted_text(ids)
        h = _hash("next", tuple(ids))
        noise = [ALPHABET[h % len(ALPHABET)], ALPHABET[(h >> 16) % len(ALPHABET)]]
        if noise[0] == noise[1]:
            noise[1] = ALPHABET[((h >> 16) + 1) % len(ALPHABET)]
        if noise[0] == noise[1]:
            noise[1] = ord("!")
        first = noise[0]
        if scripted is not None and scripted[0].startswith(scripted[1]):
            rest = scripted[0][len(scripted[1]) :].encode()
            first = rest[0] if rest else EOS
        else:
            mean = float(self.f.get("mean_length", 24))
            if mean > 0 and _unit("eos", tuple(ids)) < 1 / mean:
                first = EOS
        second = noise[1] if noise[1] != first else noise[0]
        return first, second

    def next(self, ids: list[int], state: str) -> int:
        """The token that this server says."""
        key = _hash("ctx", tuple(ids))
        if key in self.overrides:
            return self.overrides[key]
        first, second = self.choices(ids)
        flip = state != "A" and _unit("flip", state, tuple(ids)) < float(self.f.get("flip_rate", 0.1))
        return second if flip else first

    def margin(self, ids: list[int]) -> float:
        return self.margins.get(_hash("ctx", tuple(ids)), float(self.f.get("margin", 0.25)))

    def top(self, ids: list[int], count: int, state: str) -> list[tuple[int, float]]:
        """(id, logprob) best first; the server's own choice leads."""
        said = self.next(ids, state)
        first, second = self.choices(ids)
        other = second if said == first else first
        jitter = float32(-0.5 - 0.5 * _unit("bits", self.bits, tuple(ids)))
        margin = self.margin(ids)
        pairs = [(said, jitter), (other, float32(jitter - margin))]
        fill = [t for t in (*ALPHABET, EOS) if t not in (said, other)]
        pairs += [(t, float32(jitter - margin - 1.0 - 0.5 * i)) for i, t in enumerate(dict.fromkeys(fill))]
        return pairs[: max(count, 1)]

    def prompt_logprob(self, ids: list[int], position: int) -> float:
        return float32(-8.0 * _unit("prompt", self.bits, tuple(ids[: position + 1])))


# ------------------------------------------------------------------ the server


class State:
    """What all request threads share."""

    def __init__(self, args: argparse.Namespace, faults: dict[str, Any], launch_no: int) -> None:
        self.args, self.f, self.launch_no = args, faults, launch_no
        self.model = Model(faults, launch_no)
        self.name: str = faults.get("served_name") or args.served_model_name or args.model
        self.lock = threading.Lock()
        self.slots = threading.Semaphore(int(faults.get("max_running", 256)))
        self.running = self.waiting = self.completions = self.requests = 0
        self.loaded = False
        self.speculative = json.loads(args.speculative_config) if args.speculative_config else None
        self.k = int((self.speculative or {}).get("num_speculative_tokens", 3))
        self.reset_counters()

    def reset_counters(self) -> None:
        self.drafts = self.draft_tokens = self.accepted = 0
        self.per_position = [0] * self.k
        self.prompt_tokens = self.generation_tokens = self.preemptions = 0

    def count(self, generated: list[int], prompt_tokens: int, number: int) -> None:
        """Speculation counters of one completion, as an n-gram-like drafter would leave them."""
        with self.lock:
            self.completions += 1
            falls = self.f.get("counters_fall_after")
            if falls is not None and self.completions == int(falls):
                self.reset_counters()
            self.prompt_tokens += prompt_tokens
            self.generation_tokens += len(generated)
            self.preemptions += int(self.f.get("preemptions", 0))
            if self.speculative is None or self.f.get("metrics") == "zero":
                return
            rate = self.f.get("acceptance", 0.6)
            if isinstance(rate, list):
                rate = rate[min((number - 1) // 10, len(rate) - 1)]
            done = 1
            while done < len(generated):
                self.drafts += 1
                self.draft_tokens += self.k
                done += 1
                for position in range(self.k):
                    if done >= len(generated) or _unit("accept", number, done, position) >= float(rate):
                        break
                    self.accepted += 1
                    self.per_position[position] += 1
                    done += 1

    def hits(self, fault: dict[str, Any], ids: list[int]) -> bool:
        return _unit("share", tuple(ids)) < float(fault.get("share", 1.0))


def state_for(s: State, prompt: list[int], crowd: int) -> str:
    """The state in which this request is answered: the launch's own, or one that a fault gives it."""
    f = s.f
    if f.get("unrepeatable") is not None and s.hits(f["unrepeatable"], prompt):
        return f"unrepeatable-{random.random()}"
    for fault in ("batch_flip", "poison"):
        crowded = crowd > 1 or (fault == "poison" and s.loaded)
        if f.get(fault) is not None and crowded and s.hits(f[fault], prompt):
            return f"{fault}-{crowd}"
    return s.model.state


def swap(model: Model, context: list[int], diverge: dict[str, Any] | None) -> int:
    """The choice that the model would not have made; a scripted divergence is remembered for rescoring."""
    key = _hash("ctx", tuple(context))
    if key in model.overrides:
        return model.overrides[key]
    first, second = model.choices(context)
    token = second if model.next(context, model.state) == first else first
    if diverge and diverge.get("reproduces", True):
        model.overrides[key] = token
    if diverge and diverge.get("margin") is not None:
        model.margins[key] = float(diverge["margin"])
    return token


def generate(s: State, prompt: list[int], body: dict[str, Any], crowd: int, number: int) -> dict[str, Any]:
    """Ids, finish reason and logprobs of one completion."""
    model, max_tokens = s.model, int(body.get("max_tokens") or 16)
    state = state_for(s, prompt, crowd)
    # rescoring and fingerprints (one token) see the model as it is
    scripted = s.f.get("diverge") if max_tokens > 1 else None
    diverge = scripted if scripted and s.hits(scripted, prompt) else None
    other_at = int(diverge.get("at", 1)) if diverge and diverge.get("mode", "other") == "other" else None
    ids: list[int] = []
    tops: list[list[tuple[int, float]]] = []
    finish = "length"
    while len(ids) < max_tokens:
        context = prompt + ids
        token = model.next(context, state)
        if other_at == len(ids) + 1:
            token = swap(model, context, diverge)
        elif state != model.state and len(ids) == 1:
            token = swap(model, context, None)
        if token == EOS and body.get("ignore_eos"):
            token = model.choices(context)[1]
        if body.get("logprobs") is not None:
            tops.append(model.top(context, max(int(body["logprobs"]), 1), state))
        ids.append(token)
        if token == EOS:
            finish = "stop"
            break
    if diverge:
        ids, finish = _structural(diverge, ids, finish, max_tokens)
    return {"ids": ids, "finish": finish, "tops": tops}


def _structural(diverge: dict[str, Any], ids: list[int], finish: str, cap: int) -> tuple[list[int], str]:
    """Faults of length, stop and vocabulary."""
    mode, at = diverge.get("mode", "other"), int(diverge.get("at", 1))
    if mode == "short" and len(ids) >= at:
        return ids[: at - 1], "stop"
    if mode == "long" and finish == "stop":
        return [*ids[:-1], 97, 97, EOS], finish
    if mode == "leak" and finish == "stop":
        return [*ids, 97, 98, 99], finish
    if mode == "overrun" and finish == "length":
        return [*ids, *[97] * 5], finish
    if mode == "degenerate":
        head = ids[: at - 1]
        return head + [33] * (cap - len(head)), "length"
    if mode == "oov" and len(ids) >= at:
        return [*ids[: at - 1], 10**6, *ids[at:]], finish
    if mode == "finish":
        return ids, "length" if finish == "stop" else "stop"
    return ids, finish


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def log_message(self, format: str, *args: Any) -> None:
        pass

    # -------------------------------------------------------------- plumbing

    @property
    def s(self) -> State:
        return self.server.state  # type: ignore[no-any-return]

    def reply(self, payload: Any, code: int = 200, content_type: str = "application/json") -> None:
        data = payload.encode() if isinstance(payload, str) else json.dumps(payload).encode()
        stall = self._stalls()
        if stall == "headers":
            time.sleep(3600)
        self.send_response(code)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if stall == "body":
            self.wfile.write(data[: len(data) // 2])
            self.wfile.flush()
            time.sleep(3600)
        self.wfile.write(data)

    def _stalls(self) -> str | None:
        stall = self.s.f.get("stall")
        if not stall or not self.path.startswith("/v1/completions"):
            return None
        after, count = int(stall.get("after", 0)), int(stall.get("count", 10**9))
        hit = after < self.number <= after + count
        return str(stall.get("mode", "body")) if hit else None

    def error(self, code: int, message: str, kind: str = "BadRequestError") -> None:
        self.reply({"error": {"message": message, "type": kind, "param": None, "code": code}}, code)

    # -------------------------------------------------------------- routes

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        f = self.s.f
        if path == "/health":
            self.reply("", 200)
        elif path == "/version":
            self.reply({"version": f.get("version", "0.32.0")})
        elif path == "/v1/models":
            card = {"id": self.s.name, "object": "model", "owned_by": "vllm", "root": self.s.args.model,
                    "max_model_len": self.s.args.max_model_len or 4096}  # fmt: skip
            self.reply({"object": "list", "data": [card]})
        elif path == "/metrics" and f.get("metrics") != "absent":
            self.reply(metrics_text(self.s), content_type="text/plain; version=0.0.4; charset=utf-8")
        elif (
            path == "/server_info" and not f.get("server_info_off") and os.environ.get("VLLM_SERVER_DEV_MODE")
        ):
            self.reply(server_info(self.s))
        else:
            self.error(404, "Not Found", "NotFoundError")

    def do_POST(self) -> None:
        path = self.path.split("?")[0]
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        key = self.s.args.api_key
        if key and self.headers.get("authorization") != f"Bearer {key}":
            self.error(401, "Unauthorized", "AuthenticationError")
            return
        try:
            body = json.loads(raw or b"{}")
        except ValueError:
            self.error(400, "the body is no JSON")
            return
        if path == "/v1/completions":
            self.completions(body)
        elif path == "/tokenize":
            ids = list(str(body.get("prompt", "")).encode())
            self.reply({"count": len(ids), "max_model_len": 4096, "tokens": ids, "token_strs": None})
        elif path == "/detokenize":
            self.reply({"prompt": text_of(body.get("tokens", []))})
        elif path == "/reset_prefix_cache":
            self.reply("", 200)
        else:
            self.error(404, "Not Found", "NotFoundError")

    def completions(self, body: dict[str, Any]) -> None:
        s, f = self.s, self.s.f
        with s.lock:
            s.requests += 1
            self.number = s.requests
        if f.get("healthy_then_dies"):
            sys.stderr.write("RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x192 and 576x192)\n")
            sys.stderr.flush()
            os._exit(1)
        if f.get("engine_dead"):
            self.error(500, "EngineCore encountered an issue. See stack trace (above).", "EngineDeadError")
            return
        prompt = body.get("prompt")
        ids = list(prompt.encode()) if isinstance(prompt, str) else list(prompt or [])
        if not ids or not all(isinstance(i, int) for i in ids):
            self.error(400, "prompt must be a string or a list of token ids")
            return
        if body.get("model") != s.name:
            self.error(404, f"The model `{body.get('model')}` does not exist.", "NotFoundError")
            return
        if self._faulty_transport(ids):
            return
        with s.lock:
            s.waiting += 1
        with s.slots:
            with s.lock:
                s.waiting -= 1
                s.running += 1
                crowd = s.running
                s.loaded = s.loaded or crowd > 1
            try:
                self._latency(0.0 if "latency_ms" not in f else float(f["latency_ms"]))
                crowd = max(crowd, s.running)
                made = generate(s, ids, body, crowd, self.number)
                self._latency(float(f.get("per_token_ms", 0)) * len(made["ids"]))
            finally:
                with s.lock:
                    s.running -= 1
        s.count(made["ids"], len(ids), self.number)
        self.reply(completion_reply(s, body, ids, made, self.number))

    @staticmethod
    def _latency(milliseconds: float) -> None:
        if milliseconds > 0:
            time.sleep(milliseconds / 1000)

    def _faulty_transport(self, ids: list[int]) -> bool:
        """True when a scripted fault has answered (or dropped) this request."""
        f = self.s.f
        if f.get("die_after") is not None and self.number > int(f["die_after"]):
            sys.stderr.write("RuntimeError: CUDA error: an illegal memory access was encountered\n")
            sys.stderr.flush()
            os._exit(1)
        if f.get("reset_after") is not None and self.number > int(f["reset_after"]):
            self.close_connection = True
            self.connection.close()
            return True
        if f.get("not_json_after") is not None and self.number > int(f["not_json_after"]):
            self.reply("<html>no JSON here</html>", content_type="text/html")
            return True
        status = f.get("status")
        if status:
            after, count = int(status.get("after", 0)), int(status.get("count", 10**9))
            if after < self.number <= after + count and self.s.hits(status, ids):
                self.error(int(status["code"]), f"scripted {status['code']}", "InternalServerError")
                return True
        return False


def completion_reply(
    s: State, body: dict[str, Any], prompt: list[int], made: dict[str, Any], number: int
) -> dict[str, Any]:
    f, ids = s.f, made["ids"]
    stop = [i for i in ids if i != EOS]
    text = text_of(stop) + "x" * int(f.get("big_reply", 0))
    choice: dict[str, Any] = {
        "index": 0, "text": text, "finish_reason": made["finish"], "stop_reason": None, "logprobs": None,
    }  # fmt: skip
    if body.get("return_token_ids"):
        if not f.get("token_ids_absent"):
            choice["token_ids"] = ids
        choice["prompt_token_ids"] = [*prompt[:-1], 0] if f.get("prompt_ids_wrong") else prompt
    if body.get("logprobs") is not None and not f.get("logprobs_absent"):
        choice["logprobs"] = logprobs_reply(s, body, ids, made["tops"])
    if body.get("prompt_logprobs") is not None:
        choice["prompt_logprobs"] = [None] + [
            {str(prompt[i]): {"logprob": odd(s, s.model.prompt_logprob(prompt, i)), "rank": 1,
                              "decoded_token": text_of([prompt[i]])}}
            for i in range(1, len(prompt))
        ]  # fmt: skip
    reply: dict[str, Any] = {
        "id": f"cmpl-{number}", "object": "text_completion", "created": int(time.time()), "model": s.name,
        "system_fingerprint": "fake", "choices": [choice],
    }  # fmt: skip
    if not f.get("usage_absent"):
        completion_tokens = len(ids) + int(f.get("usage_off_by", 0))
        cached = f.get("cached_tokens")
        reply["usage"] = {
            "prompt_tokens": len(prompt), "completion_tokens": completion_tokens,
            "total_tokens": len(prompt) + completion_tokens,
            "prompt_tokens_details": None if cached is None else {"cached_tokens": cached},
        }  # fmt: skip
    return reply


def odd(s: State, logprob: float) -> float:
    """Scripted logprob faults."""
    if s.f.get("nan_logprobs"):
        return math.nan
    if s.f.get("inf_logprobs"):
        return -math.inf
    if s.f.get("constant_logprobs") is not None:
        return float(s.f["constant_logprobs"])
    return logprob


def logprobs_reply(
    s: State, body: dict[str, Any], ids: list[int], tops: list[list[tuple[int, float]]]
) -> dict[str, Any]:
    def name(token: int) -> str:
        return f"token_id:{token}" if body.get("return_tokens_as_token_ids") else text_of([token])

    token_logprobs, top_logprobs = [], []
    for token, top in zip(ids, tops, strict=False):
        of = dict(top)
        token_logprobs.append(odd(s, of.get(token, -9999.0)))
        top_logprobs.append({name(t): odd(s, lp) for t, lp in top})
    return {"tokens": [name(t) for t in ids], "token_logprobs": token_logprobs, "top_logprobs": top_logprobs,
            "text_offset": list(range(len(ids)))}  # fmt: skip


# ------------------------------------------------------------------ metrics and configuration


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


# ------------------------------------------------------------------ the process


def dropped_for(served_name: str) -> list[str]:
    """Variables that are taken away from this arm. Read before the launch is counted."""
    source = os.environ.get("FAKE_VLLM_SCRIPT", "{}")
    script = json.loads(source if source.lstrip().startswith("{") else Path(source).read_text())
    own = script.get("arms", {}).get(served_name.rpartition("-")[0], {})
    return list((script.get("all", {}) | (own if isinstance(own, dict) else {})).get("env_dropped", []))


def faults_for(served_name: str) -> tuple[dict[str, Any], int]:
    """(faults, 1-based number of this launch of the arm)."""
    source = os.environ.get("FAKE_VLLM_SCRIPT", "{}")
    if source.lstrip().startswith("{"):
        script, counts = json.loads(source), None
    else:
        script, counts = json.loads(Path(source).read_text()), Path(source + ".count")
    arm = served_name.rpartition("-")[0] or served_name
    number = 1
    if counts is not None:
        counts.mkdir(exist_ok=True)
        while True:  # exclusive creation counts launches without a lock
            try:
                (counts / f"{arm}.{number}").touch(exist_ok=False)
                break
            except FileExistsError:
                number += 1
    own = script.get("arms", {}).get(arm, {})
    if isinstance(own, list):
        own = own[min(number, len(own)) - 1] if own else {}
    return script.get("all", {}) | own, number


def title(name: str) -> None:
    ctypes.CDLL(None).prctl(15, name.encode()[:15], 0, 0, 0)


def engine_core(stay: bool, parent: int) -> None:
    """The child that holds the device in a real engine: it ends with its parent unless told to stay."""
    title("VLLM::EngineCore")
    if stay:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while stay or os.getppid() == parent:
        time.sleep(0.05)


def fail_at_boot(f: dict[str, Any], launch_no: int) -> None:
    traceback = "(EngineCore pid=1) Traceback (most recent call last):\n"
    if f.get("eaddrinuse_once") and launch_no == 1:
        sys.stderr.write(
            traceback
            + "(EngineCore pid=1) torch.distributed.DistNetworkError: The server socket has failed to "
            "listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, "
            "message: address already in use\n"
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
        )
        sys.exit(1)
    if f.get("no_kv_memory_once") and launch_no == 1:
        sys.stderr.write(
            traceback
            + "(EngineCore pid=1) ValueError: No available memory for the cache blocks. Try increasing "
            "`gpu_memory_utilization` when initializing the engine.\n"
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
        )
        sys.exit(1)
    for key in ("exit_at_boot", "exit_once"):
        if f.get(key) and (key == "exit_at_boot" or launch_no == 1):
            sys.stderr.write(str(f[key].get("message", "ValueError: scripted exit")) + "\n")
            sys.exit(int(f[key].get("code", 1)))


def boot(f: dict[str, Any]) -> None:
    if f.get("stderr_flood"):
        line = "W" * 99 + "\n"
        sys.stderr.write(line * (int(f["stderr_flood"]) // len(line)))
    if f.get("never_ready") == "silent":
        time.sleep(3600)
    while f.get("never_ready") == "advancing":
        say("INFO warming up")
        time.sleep(0.05)
    lines, seconds = int(f.get("boot_lines", 0)), float(f.get("boot_s", 0))
    for i in range(lines):
        say(f"INFO loading shard {i + 1} of {lines}")
        time.sleep(seconds / lines)
    if not lines and seconds:
        time.sleep(seconds)


def say(line: str) -> None:
    print(line, flush=True)


def tell_about_itself(s: State) -> None:
    """Start-up lines shaped like vLLM's, and what Triton's autotuner leaves behind."""
    blocks = s.f.get("num_gpu_blocks", 1024)
    stamp = "11-30 12:00:00"
    say(f"INFO {stamp} [core.py:100] Initializing a V1 LLM engine (v{s.f.get('version', '0.32.0')})")
    say(f"INFO {stamp} [cuda.py:300] Using FLASH_ATTN attention backend out of potential backends: ['X'].")
    say(f"INFO {stamp} [kv_cache_utils.py:900] GPU KV cache size: {blocks * 16:,} tokens")
    say(f"INFO {stamp} [api_server.py:50] Starting vLLM server on http://{s.args.host}:{s.args.port}")
    for line in s.f.get("log_lines", []):
        say(line)
    cache = os.environ.get("TRITON_CACHE_DIR")
    for kernel, timed in s.f.get("autotune", {}).items():
        best = min(timed, key=lambda pair: pair[1])[0]
        if os.environ.get("TRITON_PRINT_AUTOTUNING") == "1":
            say(f"Triton autotuning for function {kernel},\nwith key as (1, 'torch.bfloat16'),")
            say(f"finished after 0.10s,\nbest config selected: {best};")
        if cache:
            folder = Path(cache) / hashlib.sha256(kernel.encode()).hexdigest()[:16]
            folder.mkdir(parents=True, exist_ok=True)
            pairs = []
            for text, micro in timed:
                fields = dict(part.split(": ", 1) for part in text.split(", "))
                own = {k: int(v) if v.isdigit() else v for k, v in fields.items()}
                fixed = {"num_warps": 4, "num_stages": 2, "num_ctas": 1, "maxnreg": None}
                pairs.append([{"kwargs": own} | fixed,
                              [micro / 1000] * 3])  # fmt: skip
            payload = {"key": [1, "torch.bfloat16"], "configs_timings": pairs}
            (folder / f"{kernel}.autotune.json").write_text(json.dumps(payload))


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser("api_server", add_help=False, allow_abbrev=False)
    ints = {
        "--port",
        "--max-model-len",
        "--max-num-seqs",
        "--max-num-batched-tokens",
        "--tensor-parallel-size",
        "--seed",
    }
    for flag in VALUE_FLAGS.split():
        p.add_argument(flag, type=int if flag in ints else str)
    for switch in SWITCHES.split():
        p.add_argument(switch, action="store_true")
    p.add_argument("--help", nargs="?", const="all")
    return p


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that went away is not worth a traceback in the log


def run_server(argv: list[str]) -> None:
    args = parser().parse_args(argv)
    if args.help:
        say(
            "usage: api_server [options]\n\noptions:\n"
            + "\n".join(f"  {f}" for f in (VALUE_FLAGS + SWITCHES).split())
        )
        return
    dropped = [name for name in dropped_for(args.served_model_name or "") if name in os.environ]
    if dropped:
        kept = {k: v for k, v in os.environ.items() if k not in dropped}
        os.execve(sys.executable, [sys.executable, "-S", "-E", *sys.argv], kept)
    f, launch_no = faults_for(args.served_model_name or "")
    children: list[subprocess.Popen[bytes]] = []

    def end(signum: int, frame: object) -> None:
        for child in children:
            if not f.get("child_left"):
                child.terminate()
        os._exit(0)

    signal.signal(signal.SIGTERM, signal.SIG_IGN if f.get("ignore_term") else end)
    fail_at_boot(f, launch_no)
    if f.get("engine_child", True):
        role = "--engine-core-stays" if f.get("child_left") else "--engine-core"
        children.append(
            subprocess.Popen(
                [sys.executable, "-S", "-E", __file__, role, str(os.getpid())],
                start_new_session=bool(f.get("child_own_session")),
            )
        )
    boot(f)
    server = Server((args.host or "127.0.0.1", args.port or 0), Handler)
    args.port = server.server_address[1]
    server.state = State(args, f, launch_no)  # type: ignore[attr-defined]
    tell_about_itself(server.state)  # type: ignore[attr-defined]
    say(f"INFO:     Application startup complete. port {args.port}")
    server.serve_forever(poll_interval=0.05)


def main(argv: list[str]) -> None:
    if argv[:1] == ["-c"]:
        # the auditor's probe of an engine's interpreter: versions, without importing the engine
        f, _ = json_script()
        version = f.get("version", "0.32.0") + ("+cpu" if f.get("cpu", True) else "")
        say(json.dumps({"vllm": version, "torch": "2.13.0", "triton": "3.9.0", "python": "3.11"}))
    elif argv[:1] == ["--engine-core"]:
        engine_core(False, int(argv[1]))
    elif argv[:1] == ["--engine-core-stays"]:
        engine_core(True, int(argv[1]))
    elif argv[:2] == ["-m", "vllm.entrypoints.openai.api_server"]:
        run_server(argv[2:])
    elif argv[:1] in (["-V"], ["--version"]):
        say("Python 3.11.0")
    else:
        sys.stderr.write(f"fake_vllm: does not know {argv}\n")
        sys.exit(2)


def json_script() -> tuple[dict[str, Any], None]:
    source = os.environ.get("FAKE_VLLM_SCRIPT", "{}")
    text = source if source.lstrip().startswith("{") else Path(source).read_text()
    return json.loads(text).get("all", {}), None


if __name__ == "__main__":
    main(sys.argv[1:])
