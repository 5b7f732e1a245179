"""Scores and fingerprints: bits, order, clamps."""

from __future__ import annotations

import hashlib
import json
import random
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.measure.logprobs import (
    chosen_logprobs,
    fingerprint_of,
    fingerprint_prompt,
    replaced_tokens,
    top_logprobs,
    usable,
)
from auditor.measure.wire import Reply, parse_reply
from auditor.model.completion import Replaced, TokenLogprob
from auditor.model.launch import FingerprintPrompt
from tests.measure.support import prompt, reply

PROMPT = prompt("fingerprint/0")


def read(**choice: Any) -> Reply:
    found = parse_reply(
        200, json.dumps(reply([9], **choice)).encode(), model="m-1", prompt_ids=PROMPT.token_ids
    )
    assert isinstance(found, Reply)
    return found


def top(entries: dict[str, float | None]) -> dict[str, Any]:
    return {"token_logprobs": [-0.5], "top_logprobs": [entries]}


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), float("-inf"), -9999.0, -1e5])
def test_clamps_and_non_numbers_are_no_logprobs(value: float | None) -> None:
    assert usable(value) is None


def test_top_is_best_first_equal_values_by_id_unusable_last() -> None:
    found = top_logprobs(
        read(logprobs=top({"token_id:8": -0.5, "token_id:30": float("nan"), "token_id:7": -0.5, "9": -0.25}))
    )
    assert found == (
        TokenLogprob(token=9, logprob=-0.25),
        TokenLogprob(token=7, logprob=-0.5),
        TokenLogprob(token=8, logprob=-0.5),
        TokenLogprob(token=30, logprob=None),
    )


def test_top_holds_at_most_20_and_only_ids() -> None:
    entries: dict[str, float | None] = {f"token_id:{i}": -float(i) for i in range(25)}
    found = top_logprobs(read(logprobs=top(entries | {" the": 0.0})))
    assert [t.token for t in found] == list(range(20))


@pytest.mark.parametrize("logprobs", [None, {}, {"top_logprobs": []}, {"top_logprobs": [None]}])
def test_d8_absent_alternatives_are_an_empty_tuple(logprobs: dict[str, Any] | None) -> None:
    assert top_logprobs(read(logprobs=logprobs)) == ()


def test_chosen_logprobs_mark_what_is_none() -> None:
    found = read(logprobs={"token_logprobs": [-0.5, None, float("-inf"), -9999.0]})
    assert chosen_logprobs(found) == (-0.5, None, None, None)
    assert chosen_logprobs(read()) is None


@given(st.floats(width=32, allow_nan=False, allow_infinity=False, max_value=0.0))
def test_float32_bits_survive_the_json(value: float) -> None:
    found = fingerprint_prompt(
        PROMPT,
        read(prompt_logprobs=[None, {"6": {"logprob": value}}, None], logprobs=top({"token_id:9": value})),
    )
    assert isinstance(found, FingerprintPrompt)
    assert found.bits == struct.pack(">f", value).hex() * 2


def positions(seed: int) -> list[Any]:
    """The same values with their keys in another order."""
    values = {"6": (-1.5, 2), "11": (-0.25, 1), "12": (-1.5, 3), "13": (-2.0, 4)}
    keys = list(values)
    random.Random(seed).shuffle(keys)
    entry = {k: {"logprob": values[k][0], "rank": values[k][1], "decoded_token": "x"} for k in keys}
    return [None, entry, entry]


@pytest.mark.parametrize("seed", range(6))
def test_order_of_json_keys_does_not_matter(seed: int) -> None:
    found = fingerprint_prompt(
        PROMPT, read(prompt_logprobs=positions(seed), logprobs=top({"token_id:4": -3.0, "token_id:9": -0.5}))
    )
    assert isinstance(found, FingerprintPrompt)
    assert found.token_ids == (11, 6, 12, 13, 11, 6, 12, 13, 9, 4)
    assert found.bits[:16] == struct.pack(">ff", -0.25, -1.5).hex()


def test_one_bit_changes_the_digest_and_the_digest_can_be_redone() -> None:
    one = FingerprintPrompt(prompt="fingerprint/0", token_ids=(1, 2), bits="bf000000bf800000")
    other = FingerprintPrompt(prompt="fingerprint/0", token_ids=(1, 2), bits="bf000000bf800001")
    first = fingerprint_of("a-1", [one])
    assert first.digest == hashlib.sha256(b"fingerprint/0 1,2 bf000000bf800000\n").hexdigest()
    assert first.digest == fingerprint_of("b-1", [one]).digest
    assert first.digest != fingerprint_of("a-1", [other]).digest


@pytest.mark.parametrize(
    ("raw", "bits"),
    [("NaN", "7fc00000"), ("null", "7fc00000"), ("-Infinity", "ff800000"), ("-1e300", "ff800000")],
)
def test_values_that_are_no_float32_have_one_pattern(raw: str, bits: str) -> None:
    body = json.dumps(
        reply([9], prompt_logprobs=[None, {"6": {"logprob": "X"}}, None], logprobs=top({"token_id:9": -0.5}))
    ).replace('"X"', raw)
    found = parse_reply(200, body.encode(), model="m-1", prompt_ids=PROMPT.token_ids)
    assert isinstance(found, Reply)
    made = fingerprint_prompt(PROMPT, found)
    assert isinstance(made, FingerprintPrompt)
    assert made.bits == bits + "bf000000"


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({}, "no prompt_logprobs"),
        ({"prompt_logprobs": [None]}, "1 prompt positions"),
        ({"prompt_logprobs": [None, None, None]}, "empty"),
        ({"prompt_logprobs": [None, {"6": {"logprob": -1.0}}, None]}, "generated token"),
    ],
)
def test_a_reply_without_evidence_has_no_fingerprint(choice: dict[str, Any], words: str) -> None:
    found = fingerprint_prompt(PROMPT, read(**choice))
    assert isinstance(found, str)
    assert words in found


def forced(*positions: dict[str, float | None], last: dict[str, float | None]) -> Reply:
    """A reply to PROMPT's ids, the last of which belong to a forced path."""
    start = [None] + [{"5": {"logprob": -1.0}}] * (len(PROMPT.token_ids) - len(positions) - 1)
    entries = [{k: {"logprob": v} for k, v in position.items()} for position in positions]
    return read(prompt_logprobs=[*start, *entries], logprobs=top(last))


def test_replaced_tokens_are_those_that_greedy_decoding_would_not_have_said() -> None:
    start = len(PROMPT.token_ids) - 2
    found = replaced_tokens(
        forced(
            {"7": -0.5, "8": -1.0}, {"7": -0.25, "8": -0.5}, last={"token_id:9": -0.5, "token_id:6": -3.0}
        ),
        start,
        [7, 8, 9],
    )
    assert found == (Replaced(position=2, token=7, margin=0.25),)


@pytest.mark.parametrize(("token", "replaced"), [(7, None), (8, 7)], ids=["lowest id", "higher id"])
def test_of_equal_logprobs_greedy_decoding_says_the_lowest_id(token: int, replaced: int | None) -> None:
    start = len(PROMPT.token_ids) - 1
    found = replaced_tokens(forced({"8": -0.5, "7": -0.5}, last={"9": -0.5}), start, [token, 9])
    assert found == (() if replaced is None else (Replaced(position=1, token=replaced, margin=0.0),))


def test_a_path_s_token_that_is_not_listed_has_no_margin() -> None:
    start = len(PROMPT.token_ids)
    assert replaced_tokens(forced(last={"9": -0.5}), start, [4]) == (
        Replaced(position=1, token=9, margin=None),
    )


def test_a_reply_without_the_positions_tells_nothing() -> None:
    start = len(PROMPT.token_ids)
    assert "expected" in str(replaced_tokens(forced(last={"9": -0.5}), start, [4, 5]))
    assert "no logprobs" in str(replaced_tokens(forced(last={"9": None}), start, [4]))
