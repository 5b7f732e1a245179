"""Files of completions and answers, mutated and noise: graded and compared, or refused in one sentence."""

from __future__ import annotations

import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from auditor.cli.compare import _compare_files
from auditor.cli.grade import _grade_file, _row, _totals
from auditor.errors import InvalidPlan
from auditor.judge.grading import Grade, grade, number
from auditor.judge.pairs import Comparison
from tests.fuzz.mutation import SEEDS, TOKENS, Mutator, fuzz, outcome

LINES: list[dict[str, Any]] = [
    {"id": "p", "token_ids": [1, 2, 3, 4], "prompt_ids": [9, 8], "text": "one é", "finish_reason": "stop",
     "stop_reason": 4, "usage": {"completion_tokens": 4, "completion_tokens_details": {"reasoning_tokens": 0},
                                 "prompt_tokens_details": {"cached_tokens": 0}},
     "request": {"max_tokens": 16, "min_tokens": 0, "temperature": 0, "seed": 1, "repetition_penalty": 1.0}},
    {"id": "q", "token_ids": [7] * 20, "text": "", "finish_reason": "length", "logprobs": [0.0] * 20,
     "top_logprobs": {"2": {"7": -0.1, "8": -0.2}, "3": [[7, -0.1], [8, -0.3]],
                      "4": [{"token_id": 7, "logprob": -1}]}},
    {"id": 3, "token_ids": [1, 2], "top_logprobs": [None, {"2": -0.5, "token_id:5": -0.51}],
     "logprobs": [-0.1, -0.5]},
    {"id": "r", "error": "http-500"},
]  # fmt: skip
ANSWERS: list[dict[str, Any]] = [
    {"id": 1, "gold": "so\n#### 1,234", "completion": "12 + 3\n#### $1,234.00.", "finish_reason": "stop"},
    {
        "id": "b",
        "gold": 18,
        "completion": "It is -18.\n\nQuestion: How many?\n#### 7",
        "finish_reason": "length",
    },
    {"id": "c", "gold": "-3.5", "completion": None, "finish_reason": "error", "error": None},
]
GOLDS = ("18", "1e999999999", "-0", "#### 7", "9" * 5000, "٣", ".5", "NaN5")
TEXT = "Question: x\nA: 1,2 + −3 = ($4.50)\n#### **\\$−1,234.50**.\n\nQ: next\n#### 9"


def mutated(mutator: Mutator, rows: list[dict[str, Any]]) -> bytes:
    lines = [mutator.json(r) if mutator.random.random() < 0.4 else json.dumps(r).encode() for r in rows]
    if mutator.random.random() < 0.3:
        lines[0] = mutator.random.choice(lines)
    data = b"\n".join(lines) + b"\n"
    return mutator.raw(data) if mutator.random.random() < 0.2 else data


@fuzz(4000, seed=SEEDS, packed=st.booleans())
def test_mutated_files_are_compared_or_refused(seed: int, packed: bool) -> None:
    mutator = Mutator(seed)
    reference = LINES if mutator.random.random() < 0.5 else [{**r, "token_ids": [1, 2, 9]} for r in LINES]
    compare(mutated(mutator, reference), mutated(mutator, LINES), packed)


@fuzz(1000, one=st.binary(max_size=100), two=st.binary(max_size=100), packed=st.booleans())
def test_noise_is_compared_or_refused(one: bytes, two: bytes, packed: bool) -> None:
    compare(one, two, packed)


def compare(reference: bytes, candidate: bytes, packed: bool) -> None:
    """`packed`: the candidate calls itself gzip, which it is not."""
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder) / "a.jsonl", Path(folder) / ("b.jsonl.gz" if packed else "b.jsonl")
        ours.write_bytes(reference)
        theirs.write_bytes(damaged_gzip(candidate) if packed else candidate)
        done = Comparison()
        if outcome(lambda: _compared(ours, theirs, done), InvalidPlan) is None:
            return
        totals = done.totals()
    assert done.exit_code() in (0, 1, 4)
    assert totals.prompts + totals.errors == len(done.pairs)
    json.loads(msgspec.json.encode({"pairs": done.pairs, "totals": totals}))


def _compared(ours: Path, theirs: Path, done: Comparison) -> Comparison:
    _compare_files(ours, theirs, done)
    return done


def damaged_gzip(data: bytes) -> bytes:
    import gzip

    return Mutator(len(data)).raw(gzip.compress(data, mtime=0))


def test_equal_files_agree_whatever_is_mutated() -> None:
    """Ids that are read are compared: one that is changed never agrees."""
    for at in range(4):
        changed = [dict(LINES[0]), *LINES[1:]]
        changed[0]["token_ids"] = [n + (i == at) for i, n in enumerate(LINES[0]["token_ids"])]
        with tempfile.TemporaryDirectory() as folder:
            for name, rows in (("a", LINES), ("b", changed)):
                (Path(folder) / name).write_text("".join(json.dumps(r) + "\n" for r in rows))
            done = Comparison()
            _compare_files(Path(folder) / "a", Path(folder) / "b", done)
        assert not done.pairs[0].agree


@fuzz(3000, seed=SEEDS)
def test_mutated_answers_are_graded_or_refused(seed: int) -> None:
    mutator = Mutator(seed)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / ("a.jsonl.gz" if mutator.random.random() < 0.1 else "a.jsonl")
        data = mutated(mutator, ANSWERS)
        file.write_bytes(damaged_gzip(data) if file.suffix == ".gz" else data)
        graded = outcome(lambda: _grade_file(file), InvalidPlan)
    if graded is None:
        return
    json.loads(msgspec.json.encode([_row(name, found) for name, found in graded]))
    json.loads(msgspec.json.encode(_totals([found for _, found in graded])))


@fuzz(5000, seed=SEEDS, gold=st.sampled_from(GOLDS),
      noise=st.text(max_size=40), finish=st.sampled_from([None, "stop", "length", "abort"]))  # fmt: skip
def test_any_text_is_graded(seed: int, gold: str, noise: str, finish: str | None) -> None:
    mutator = Mutator(seed)
    text = mutator.text(TEXT + noise + mutator.random.choice(TOKENS), 5)
    for want in (gold, noise, text):
        found = outcome(partial(grade, text, want, finish_reason=finish), ValueError)
        if found is None:
            continue
        assert isinstance(found, Grade)
        assert found.answer is None or number(found.answer) is not None
        assert found.status != "correct" or found.answer is not None
        assert grade(text, want, finish_reason=finish, error="http-500").status == "error"
