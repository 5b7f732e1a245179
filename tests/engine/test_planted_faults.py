"""Faults planted into real vLLM servers: in heads, in served weights, in what surrounds the weights.

The candidates of one audit share its reference. Reference and control are one server here, which certifies
nothing about launches (test_end_to_end.py does) and leaves the faults as the only difference.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from auditor.demo.models import HEAD, TARGET, smollm2
from auditor.model.judgement import EXPLAINED
from tests.cases.audits import Ran, says
from tests.engine.real import (
    EAGLE3,
    NGRAM,
    PYTHON,
    SPECULATE,
    audited,
    copied,
    launched,
    needs_engine,
    noisy,
    ready,
    reweighted,
    serving,
    status,
)

pytestmark = needs_engine


def stranger(folder: Path) -> str:
    """Speculative configuration with a head of the right shape that never saw this target: drawn anew."""
    rng = np.random.default_rng(7)

    def drawn(name: str, values: np.ndarray) -> np.ndarray:
        return values if values.ndim < 2 else values.std() * rng.standard_normal(values.shape, np.float32)

    head = reweighted(copied(HEAD, folder / "stranger"), drawn)
    return json.dumps({"method": "eagle3", "model": str(head), "num_speculative_tokens": 3})


def activity(ran: Ran, arm: str, stage: str = "") -> list[float]:
    """Acceptance length of each phase of `arm` that drafted, of one stage or of all."""
    return [
        a.acceptance_length
        for a in ran.record.judgement.activity
        if a.arm == arm and a.acceptance_length is not None and a.phase.startswith(stage)
    ]


# ------------------------------------------------------------------ refused before any server


@pytest.mark.parametrize(
    "faked",
    [
        {"rejection_sample_method": "synthetic", "synthetic_acceptance_rate": 0.9},
        {"rejection_sample_method": "typical", "posterior_threshold": 0.1},
    ],
)
def test_faked_acceptance_is_refused_before_any_server(tmp_path: Path, faked: dict[str, Any]) -> None:
    draft = json.dumps({**json.loads(EAGLE3), **faked})
    ran = launched(tmp_path, draft=draft)
    assert ran.code == 2
    says(ran.err, next(iter(faked.values())), "rejection_sample_method")
    assert not (ran.run_dir / "launches").exists()


# ------------------------------------------------------------------ the quick part


def test_a_stranger_s_head_and_other_weights_are_told_apart(tmp_path: Path) -> None:
    """A head of another target changes nothing but speed; another target's weights change what is said."""
    weights = reweighted(copied(TARGET, tmp_path / "weights"), noisy(3e-2))
    with ExitStack() as stack:
        plain, head, other = (
            stack.enter_context(serving(tmp_path / name, target, *args))
            for name, target, args in (
                ("plain", TARGET, ()),
                ("head", TARGET, (SPECULATE, stranger(tmp_path))),
                ("other", weights, (SPECULATE, EAGLE3)),
            )
        )
        ready(plain, head, other)
        gates = "--gates=certification,head-ran,agreement"
        ran = audited(tmp_path, plain, {"stranger": head, "weights": other}, gates)
    assert status(ran, "stranger")["agreement"] == "PASS", ran.out
    assert max(activity(ran, "stranger")) < 1.2
    assert status(ran, "weights")["certification"] != "PASS"
    assert status(ran, "weights")["agreement"] != "PASS"
    assert ran.code in (1, 3), ran.out


# ------------------------------------------------------------------ one long audit, a candidate a fault


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    folder = tmp_path_factory.mktemp("planted")
    sampling = copied(TARGET, folder / "sampling")
    (sampling / "generation_config.json").write_text(
        json.dumps({"eos_token_id": 2, "repetition_penalty": 1.3, "temperature": 0.7, "top_p": 0.8})
    )
    template = copied(TARGET, folder / "template")
    tokenizer = json.loads((template / "tokenizer_config.json").read_text("utf-8"))
    tokenizer["chat_template"] = "{% for m in messages %}Hello {{ m['content'] }}{% endfor %}"
    (template / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    words = json.loads((template / "tokenizer.json").read_text("utf-8"))
    words["post_processor"] = None
    (template / "tokenizer.json").write_text(json.dumps(words))
    short = copied(HEAD, folder / "positions", max_position_embeddings=128)
    heads = {
        "stranger": (TARGET, stranger(folder), ()),
        "sampling": (sampling, EAGLE3, ()),
        "template": (template, EAGLE3, ()),
        "few-seqs": (TARGET, EAGLE3, ("--max-num-seqs", "8")),
        "positions": (TARGET, EAGLE3.replace(str(HEAD), str(short)), ()),
    }
    with ExitStack() as stack:
        plain = stack.enter_context(serving(folder / "plain", TARGET))
        candidates = {
            name: stack.enter_context(serving(folder / f"server-{name}", target, SPECULATE, spec, *args))
            for name, (target, spec, args) in heads.items()
        }
        ready(plain, *candidates.values())
        yield audited(folder, plain, candidates, "--levels=32", "--attempts=1")


@pytest.mark.slow
def test_a_head_for_another_target_keeps_the_answers_and_loses_its_acceptance(long: Ran) -> None:
    found = status(long, "stranger")
    assert found["agreement"] == "PASS"
    assert found["accuracy"] == "PASS"
    assert max(activity(long, "stranger")) < 1.2
    assert found["head-ran"] == "INCONCLUSIVE", "acceptance length is below the bound"
    # on problems like those it was trained for; on certification prompts it is 1.93
    assert min(activity(long, "template", "accuracy")) > 2.0, "while the trained head's is not"


@pytest.mark.slow
@pytest.mark.parametrize("arm", ["sampling", "template"])
def test_defaults_of_one_arm_do_not_reach_requests_that_state_everything(long: Ran, arm: str) -> None:
    """Sampling fields are sent with every request, prompts are token ids: neither a repetition penalty nor
    another template or BOS of one server can enter."""
    found = status(long, arm)
    assert {found[g] for g in ("certification", "agreement", "accuracy", "head-ran")} == {"PASS"}, found
    pairs = [a.agreement for a in long.record.judgement.agreement if a.arm == arm]
    assert all(p.k == p.n > 0 for p in pairs)


@pytest.mark.slow
def test_a_server_of_eight_is_labelled_eight_where_32_were_asked(long: Ran) -> None:
    level = next(x for x in long.record.judgement.invariance if x.arm == "few-seqs")
    assert (level.level, level.achieved, level.held) == (32, 8, False)
    assert status(long, "few-seqs")["invariance"] == "INCONCLUSIVE"
    found = next(f for f in long.findings if f.code == "CONCURRENCY-NOT-REACHED" and "few-seqs" in f.subject)
    says(found.seen, "8 requests running at once", "32 were asked")


# ------------------------------------------------------------------ another dtype of the same weights


@pytest.mark.slow
def test_float32_against_bfloat16_of_the_same_weights_is_near_ties_not_a_bug(tmp_path: Path) -> None:
    """SmolLM2, because its bfloat16 logits have real ties; the demo's target is too small for them."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "equivalence-auditor"
    weights = smollm2(str(PYTHON), cache)
    with ExitStack() as stack:
        # where the served dtype is not told, a margin of one step of it stays unknown
        plain = stack.enter_context(serving(tmp_path / "plain", weights, telling=True))
        wide = stack.enter_context(
            serving(tmp_path / "wide", weights, "--dtype", "float32", SPECULATE, NGRAM, telling=True)
        )
        ready(plain, wide)
        # not certified: launches of two dtypes may well count as two states, which ends the comparison
        args = "--gates=agreement", "--agreement-corpora=sums", "--max-tokens=48"
        ran = audited(tmp_path, plain, {"float32": wide}, *args)
    found = [d.cls for d in ran.record.judgement.divergences if d.arm == "float32"]
    assert found, "the two dtypes do differ"
    assert sum(cls in EXPLAINED for cls in found) >= 0.8 * len(found), found
    assert not {"degenerate", "post-stop leak", "length overrun", "short delivery"} & set(found)
