"""Logs, tuning caches and kept flags, mutated and noise: read as far as they go, and always recordable."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import msgspec
from hypothesis import strategies as st

from auditor.engine import diary, inspect, resolved
from auditor.errors import InvalidPlan
from auditor.model.launch import Diary
from auditor.redact import HIDDEN, Places, scrub_text
from tests.engine.test_diary import CACHED, INDUCTOR, PRINTED, STARTUP
from tests.fuzz.mutation import SEEDS, Mutator, dumped, fuzz, outcome

INIT = (
    "(EngineCore pid=1) INFO 11-30 21:47:45 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with "
    "config: model='/m', speculative_config=SpeculativeConfig(method='ngram', model=None), "
    "dtype=torch.bfloat16, max_seq_len=2048, other=A(x=[1, 2], y={'k': 'v, w'})\n"
    "(APIServer pid=2) INFO 11-30 21:47:45 [vllm.py:1] Asynchronous scheduling is enabled.\n"
    "(APIServer pid=2) INFO 11-30 21:47:45 [model.py:1] Using max model len 2048\n"
)
LOG = PRINTED + STARTUP + INDUCTOR + INIT
CACHES = {
    "kernel.autotune.json": CACHED,
    "cabc.best_config": {"XBLOCK": 1, "num_warps": 8, "configs_hash": "ff", "time_taken_ms": 4},
    "autotuner_cache.json": {"_meta": 1, "('moe', 8)": [3, 2]},
}


def check_log(text: str) -> None:
    lines = text.splitlines()
    found = (
        diary.triton_prints(text), tuple(diary.inductor_lines(lines)), diary.backends(lines),
        diary.kv_blocks(lines), diary.compile_hash(lines), [diary.strip_prefix(line) for line in lines],
        resolved.from_log(lines), [list(resolved.top_level_pairs(line)) for line in lines],
    )  # fmt: skip
    msgspec.json.encode(found)


@fuzz(5000, seed=SEEDS)
def test_mutated_logs(seed: int) -> None:
    check_log(Mutator(seed).text(LOG, 10))


@fuzz(1500, text=st.text(max_size=400), start=st.sampled_from(LOG.splitlines()))
def test_noise_as_a_log(text: str, start: str) -> None:
    check_log(
        "".join(c if c.isprintable() or c.isspace() else "\ufffd" for c in f"{text}\n{start[:60]}{text}")
    )


@fuzz(2500, seed=SEEDS, name=st.sampled_from(sorted(CACHES)))
def test_mutated_logs_and_tuning_caches_on_disk(seed: int, name: str) -> None:
    mutator = Mutator(seed)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "engine.log"
        log.write_bytes(mutator.raw(LOG.encode()))
        whole = CACHES[name]
        data = mutator.json(whole, 6) if mutator.random.random() < 0.7 else mutator.raw(dumped(whole))
        (Path(folder) / name).write_bytes(data)
        found = diary.read_diary(log, Path(folder))
    assert msgspec.json.decode(msgspec.json.encode(found), type=Diary) == found


@fuzz(400, seed=SEEDS, noise=st.binary(max_size=60))
def test_what_an_interpreter_prints(seed: int, noise: bytes) -> None:
    """A script stands in for the interpreter: it prints what it is asked to, whatever its arguments are."""
    mutator = Mutator(seed)
    probe = {"python": "3.11.7", "vllm": "0.32.0", "torch": "2.13.0+cpu"}
    said = mutator.random.choice((noise, mutator.json(probe), mutator.raw(json.dumps(probe).encode())))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "said").write_bytes(said)
        script = Path(folder) / "python"
        script.write_text(f"#!/bin/sh\nexec cat {folder}/said\n")
        script.chmod(0o755)
        env = {"PATH": "/usr/bin:/bin"}
        found = outcome(lambda: inspect._versions(str(script), env, ("vllm",)), InvalidPlan)
    if found is not None:
        assert all(isinstance(v, str) for v in found.values())
        msgspec.json.encode(found)


@fuzz(1500, seed=SEEDS, noise=st.binary(max_size=60))
def test_kept_flags_that_are_damaged(seed: int, noise: bytes) -> None:
    mutator, kept = Mutator(seed), ["--model", "--seed", "--no-async-scheduling"]
    data = mutator.random.choice((noise, mutator.json(kept), mutator.raw(json.dumps(kept).encode())))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "flags.json"
        path.write_bytes(data)
        found = inspect.kept_flags(path)
    assert found is None or all(isinstance(flag, str) for flag in found)


@fuzz(4000, seed=SEEDS, secret=st.text(st.characters(codec="utf-8", exclude_characters="<>"), min_size=8))
def test_no_secret_survives_scrubbing(seed: int, secret: str) -> None:
    mutator = Mutator(seed)
    password = "".join(mutator.random.choices("swordfih0123456789@:#?!", k=12))
    user = mutator.random.choice(("me", "", "a.b", "x" * 300))
    line = (
        f"{secret} http://{user}:{password}@host:1/ {secret} Bearer abcdefgh12345678 hf_abcdefghijklmnopqr\n"
    )
    text = mutator.text(LOG, 3) + line
    clean = scrub_text(text, (secret,))
    if secret not in HIDDEN:
        assert secret not in clean.replace(HIDDEN, "")
    assert password not in clean
    assert password.rpartition("@")[2] not in clean or len(password.rpartition("@")[2]) < 4
    assert "abcdefgh12345678" not in clean
    assert "hf_abcdefghijklmnopqr" not in clean
    assert scrub_text(clean, (secret,)) == clean or secret in HIDDEN
    assert isinstance(Places(Path("/somewhere/run")).shorten(clean), str)


@fuzz(1500, text=st.text(), secrets=st.lists(st.text()))
def test_noise_is_scrubbed(text: str, secrets: list[str]) -> None:
    assert isinstance(scrub_text(text, secrets), str)
