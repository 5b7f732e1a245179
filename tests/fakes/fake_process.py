"""The fake as a process: its command line, its scripted ways of starting, its engine child."""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.fakes.fake_http import Handler, Server
from tests.fakes.fake_work import State

PROGRAM = str(Path(__file__).parent)
"""Run with `python -S -E PROGRAM …`: see `__main__.py`."""
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
                [sys.executable, "-S", "-E", PROGRAM, role, str(os.getpid())],
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
