"""Serve the demo's models with vLLM for CPU and count: accuracy, acceptance, equality.

Run it with the engine environment's Python, on a checkout whose artefacts are in place. One server at a
time; every test problem at 32 concurrent, token-id prompts, temperature 0. Writes evaluation.json and one
`.jsonl` of completions an arm under `.cache/demo_model/`.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from target import strict_answer
from tokens import load_tokenizer, prompt
from train import CORPUS, DEMO, WORK

CONCURRENCY = 32
MAX_TOKENS = 160
DRAFTS = 3
HEAD = {"method": "eagle3", "model": str(DEMO / "head"), "num_speculative_tokens": DRAFTS}
MTP = {"method": "mtp", "num_speculative_tokens": DRAFTS}
ARMS: dict[str, tuple[Path, dict[str, Any] | None]] = {
    "plain": (DEMO / "target", None),
    "eagle3": (DEMO / "target", HEAD),
    "mtp-plain": (DEMO / "mtp", None),
    "mtp": (DEMO / "mtp", MTP),
}
PAIRS = (("plain", "eagle3"), ("mtp-plain", "mtp"), ("plain", "mtp-plain"))


def engine_environment(name: str) -> dict[str, str]:
    """vLLM for CPU on one thread, offline, with a cache of its own."""
    return {
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CACHE_ROOT": str(WORK / f"vllm-{name}"),
    }


@contextlib.contextmanager
def serve(arm: str, start_limit_s: float = 300) -> Iterator[str]:
    """The base URL of a server for the arm; its process group is stopped on the way out."""
    folder, speculation = ARMS[arm]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--served-model-name", arm, "--host", "127.0.0.1", "--port", str(port), "--enforce-eager"]
    command += ["--max-num-seqs", str(CONCURRENCY), "--max-model-len", "1024", "--no-async-scheduling"]
    if speculation is not None:
        command += ["--speculative-config", json.dumps(speculation)]
    log = WORK / f"{arm}.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            command,
            env=os.environ | engine_environment(arm),
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + start_limit_s
        while not _listening(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{arm}: no server; the end of {log} says why")
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def counters(session: aiohttp.ClientSession) -> dict[str, float]:
    """Speculation counters summed over engines; empty where the server has none."""
    async with session.get("/metrics") as response:
        text = await response.text()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("vllm:spec_decode_") and sample.name.endswith("_total"):
                position = sample.labels.get("position", "")
                name = sample.name.removeprefix("vllm:spec_decode_") + (f"[{position}]" if position else "")
                found[name] = found.get(name, 0) + sample.value
    return found


async def ask_all(
    url: str, arm: str, prompts: list[list[int]]
) -> tuple[list[list[int]], dict[str, float], float]:
    """(token ids of each completion, counter differences, seconds)."""
    gate = asyncio.Semaphore(CONCURRENCY)
    timeout = aiohttp.ClientTimeout(total=600)
    # The server may close a kept-alive connection at the moment of its reuse: a new one for each request.
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(url, timeout=timeout, connector=connector) as session:

        async def ask(ids: list[int]) -> list[int]:
            body = {"model": arm, "prompt": ids, "max_tokens": MAX_TOKENS, "temperature": 0}
            async with (
                gate,
                session.post("/v1/completions", json=body | {"return_token_ids": True}) as response,
            ):
                response.raise_for_status()
                answer = await response.json()
            tokens: list[int] = answer["choices"][0]["token_ids"]
            return tokens

        await ask(prompts[0])
        before = await counters(session)
        started = time.monotonic()
        outputs = await asyncio.gather(*(ask(ids) for ids in prompts))
        spent = time.monotonic() - started
        after = await counters(session)
    return list(outputs), {name: value - before.get(name, 0) for name, value in after.items()}, spent


def main() -> None:
    """Measure the arms asked for and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in (CORPUS / "test.jsonl").read_text().splitlines()]
    tokenizer = load_tokenizer(DEMO / "target")
    prompts = [encoding.ids for encoding in tokenizer.encode_batch([prompt(row["question"]) for row in rows])]
    results: dict[str, Any] = {}
    outputs: dict[str, list[list[int]]] = {}
    for arm in options.arms:
        launched = time.monotonic()
        with serve(arm) as url:
            ready = time.monotonic() - launched
            outputs[arm], counted, spent = asyncio.run(ask_all(url, arm, prompts))
        texts = [tokenizer.decode(ids) for ids in outputs[arm]]
        right = sum(
            strict_answer(text) == strict_answer(row["answer"]) for text, row in zip(texts, rows, strict=True)
        )
        results[arm] = {"right": right, "problems": len(rows), "tokens": sum(map(len, outputs[arm]))}
        results[arm] |= {"ready_s": round(ready, 1), "wall_s": round(spent, 1), "counters": counted}
        if counted:
            accepted, drafts = counted["num_accepted_tokens_total"], counted["num_drafts_total"]
            results[arm]["acceptance_length"] = 1 + accepted / drafts
        completions = (
            json.dumps({"id": row["id"], "ids": ids, "text": text})
            for row, ids, text in zip(rows, outputs[arm], texts, strict=True)
        )
        (WORK / f"{arm}.jsonl").write_text("\n".join(completions) + "\n")
        print(arm, json.dumps(results[arm]), flush=True)
    for left, right_arm in PAIRS:
        if left in outputs and right_arm in outputs:
            equal = sum(a == b for a, b in zip(outputs[left], outputs[right_arm], strict=True))
            results[f"{left} = {right_arm}"] = f"{equal} of {len(rows)}"
            print(f"{left} = {right_arm}: {equal} of {len(rows)}", flush=True)
    (WORK / "evaluation.json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
