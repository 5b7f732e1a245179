"""Plans from files, variables and flags, mutated and noise: a plan that can be recorded, or InvalidPlan."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from auditor.errors import InvalidPlan
from auditor.model.plan import AuditPlan, Draft
from auditor.plan.config import resolve
from auditor.plan.drafts import parse_draft
from auditor.plan.options import BY_ENV, OPTIONS
from tests.fuzz.mutation import SEEDS, TOKENS, Mutator, fuzz, outcome

TOML = """\
target = "OWNER/NAME"
draft = ["ngram", '{"method": "eagle3", "model": "/nowhere"}']
num_speculative_tokens = 4
pin = "snapshot"
gates = ["certification", "agreement", "accuracy"]
corpora = { mine = "mine.jsonl" }
[engine]
args = "--max-model-len 2048 --enforce-eager"
env = { OMP_NUM_THREADS = "1" }
devices = ["0", "1"]
start_timeout_s = 900.0
[agreement]
corpora = ["humaneval", "mine"]
limits = { humaneval = 12 }
max_tokens = 256
[certification]
p0 = 0.5
p1 = 0.95
[invariance]
levels = [2, 8]
[accuracy]
margin = "5%"
shots = 8
"""
GIVEN: dict[str, Any] = {"target": "OWNER/NAME", "draft": ("ngram",)}
SPECS = (
    "ngram", "mtp", "name=suffix", "method=ngram,prompt_lookup_max=4", "draft_model:/nowhere", "/nowhere",
    '{"method": "eagle3", "model": "/nowhere", "num_speculative_tokens": 5}', "~nobody/head",
    "a=" + "x" * 300,
    '{"method": "suffix", "rejection_sample_method": "block", "x": {"y": [1, null]}}', "x" * 5000, "method=",
)  # fmt: skip
KEYS = ("preset", "x", *(o.name for o in OPTIONS))
VALUES = (
    "1", "-1", "nan", "inf", "[]", "{}", "''", '"~nobody"', "1979-05-27", "[[1]]", "true", "0x" + "f" * 5000,
    "9" * 5000, "[" * 3000, '"\\u0000"', "{a=1}", "[{}]", "1e999",
)  # fmt: skip
HEAD: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "dflash_config": {},
    "speculators_config": {"algorithm": "eagle3", "proposal_methods": [{"speculative_tokens": 5}]},
}  # fmt: skip


def check_plan(
    flags: dict[str, Any], env: dict[str, str], toml: bytes | None, preset: str | None = None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "audit.toml"
        if toml is not None:
            file.write_bytes(toml)
        path = file if toml is not None else None
        found = outcome(lambda: resolve(flags, env, path, preset), InvalidPlan)
    if found is None:
        return
    assert msgspec.json.decode(msgspec.json.encode(found.plan), type=AuditPlan) == found.plan
    assert found.plan.gates
    assert all(isinstance(origin.value, str) for origin in found.origins)
    for arm in found.plan.arms:
        assert "/" not in arm.name
        assert ".." not in arm.name


@fuzz(5000, seed=SEEDS)
def test_mutated_files(seed: int) -> None:
    mutator = Mutator(seed)
    if mutator.random.random() < 0.8:
        toml = mutator.text(TOML, 3).encode("utf-8", "replace")
    else:
        toml = mutator.raw(TOML.encode())
    check_plan(GIVEN if mutator.random.random() < 0.3 else {}, {}, toml)


@fuzz(1500, noise=st.binary(max_size=200), key=st.sampled_from(KEYS), value=st.sampled_from(VALUES))
def test_any_value_of_any_key(noise: bytes, key: str, value: str) -> None:
    check_plan(GIVEN, {}, f"{key} = {value}\n".encode())
    check_plan(GIVEN, {}, f"{key} = {value}\n".encode() + noise)
    check_plan(GIVEN, {}, noise)


@fuzz(
    5000,
    seed=SEEDS,
    text=st.text(max_size=20),
    preset=st.sampled_from([None, None, "demo", "section5", "no"]),
)
def test_flags_and_variables(seed: int, text: str, preset: str | None) -> None:
    mutator = Mutator(seed)
    flags, env = dict(GIVEN), dict[str, str]()
    for _ in range(mutator.random.randint(1, 3)):
        option = mutator.random.choice(OPTIONS)
        value = mutator.random.choice(
            (text, mutator.random.choice(TOKENS), mutator.text(option.shown_default, 2))
        )
        if mutator.random.random() < 0.5:
            env[
                mutator.random.choice(sorted(BY_ENV)) if mutator.random.random() < 0.9 else f"AUDITOR_{text}"
            ] = value
        elif option.repeated:
            flags[option.name] = (value, text)
        else:
            flags[option.name] = value if mutator.random.random() < 0.7 else mutator.poison()
    check_plan(flags, env, None, preset)


def check_draft(spec: str) -> None:
    found = outcome(lambda: parse_draft(spec, 3), InvalidPlan)
    if found is None:
        return
    assert isinstance(found, Draft)
    assert found.method
    assert msgspec.json.decode(msgspec.json.encode(found), type=Draft) == found
    assert isinstance(json.loads(found.speculative_config), dict)


@fuzz(5000, seed=SEEDS, spec=st.sampled_from(SPECS))
def test_mutated_drafts(seed: int, spec: str) -> None:
    mutator = Mutator(seed)
    check_draft(spec)
    if spec.startswith("{") and mutator.random.random() < 0.6:
        check_draft(mutator.json(json.loads(spec)).decode("utf-8", "surrogateescape"))
    else:
        check_draft(mutator.text(spec, 3))


@fuzz(
    1500,
    spec=st.text(st.characters(codec=None)),
    tokens=st.sampled_from(["", "method=", "{", "draft_model:", "a="]),
)
def test_noise_as_a_draft(spec: str, tokens: str) -> None:
    check_draft(tokens + spec)


@fuzz(2500, seed=SEEDS)
def test_mutated_heads(seed: int) -> None:
    mutator = Mutator(seed)
    data = mutator.json(HEAD, 4) if mutator.random.random() < 0.8 else mutator.raw(json.dumps(HEAD).encode())
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_bytes(data)
        check_draft(folder)
        check_draft(f"draft_model:{folder}")
        check_draft(json.dumps({"model": folder}))
