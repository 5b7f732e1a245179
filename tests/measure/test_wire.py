"""Requests as sent, replies as read: lenient about form, strict about ids."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.measure.wire import Fault, Reply, parse_reply, request_body
from tests.measure.support import reply

SENT = (5, 6, 7)


def parse(body: bytes | dict[str, Any], status: int = 200) -> Reply | Fault:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return parse_reply(status, raw, model="m-1", prompt_ids=SENT)


def without(key: str, **choice: Any) -> dict[str, Any]:
    document = reply([1], **choice)
    del document["choices"][0][key]
    return document


def test_a_verdict_request_states_every_sampling_field_and_no_logprobs() -> None:
    assert json.loads(request_body("m-1", SENT, 64, 7)) == {
        "model": "m-1",
        "prompt": [5, 6, 7],
        "max_tokens": 64,
        "temperature": 0,
        "top_p": 1,
        "top_k": -1,
        "repetition_penalty": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "seed": 7,
        "stream": False,
        "return_token_ids": True,
    }


def test_logprobs_come_with_ids_for_keys() -> None:
    body = json.loads(request_body("m-1", SENT, 1, 0, logprobs=20, prompt_logprobs=5))
    assert (body["logprobs"], body["prompt_logprobs"]) == (20, 5)
    assert body["return_tokens_as_token_ids"] is True


def test_a_reply_is_read() -> None:
    found = parse(reply([1, 2], stop_reason=2))
    assert isinstance(found, Reply)
    assert found.choices[0].token_ids == [1, 2]
    assert found.choices[0].stop_reason == 2
    assert found.usage is not None
    assert found.usage.completion_tokens == 2


@pytest.mark.parametrize("value", [b"NaN", b"-Infinity", b"Infinity"])
def test_bare_non_numbers_are_read(value: bytes) -> None:
    body = json.dumps(reply([1], logprobs={"token_logprobs": ["X"]})).encode().replace(b'"X"', value)
    found = parse(body)
    assert isinstance(found, Reply)
    assert found.choices[0].token_ids == [1]


@pytest.mark.parametrize("raw", [b"a\xffb", b"\\udc80", b"\\ud83d"])
def test_i7_text_that_is_no_utf8_is_escaped_and_ids_stay(raw: bytes) -> None:
    found = parse(json.dumps(reply([1, 2], text="TEXT")).encode().replace(b"TEXT", raw))
    assert isinstance(found, Reply)
    assert found.choices[0].token_ids == [1, 2]
    text = found.choices[0].text
    assert text is not None
    assert "\\ud" in text
    msgspec.json.encode(text)  # can be written to the record


def test_g7_null_text_is_no_fault() -> None:
    found = parse(reply([1], text=None, finish_reason="length"))
    assert isinstance(found, Reply)


@pytest.mark.parametrize(
    ("body", "status", "reason", "words"),
    [
        (b'{"error": "overloaded"}', 503, "http-503", "overloaded"),
        (b"", 500, "http-500", "(empty body)"),
        (b"\xff\xfe", 500, "http-500", "\\xff"),
        (b"The model `m-1` does not exist.", 404, "foreign-nonce", "two servers answer on this port"),
        (b"no such page", 404, "http-404", "no such page"),
        (b"", 302, "http-302", "(empty body)"),
        (b"<html>", 200, "bad-reply", "not JSON: <html>"),
        (b"", 200, "bad-reply", "not JSON"),
        (b'{"choices": [', 200, "bad-reply", "not JSON"),
        (b"[" * 100_000, 200, "bad-reply", "not JSON"),
        (b"[]", 200, "bad-reply", "not a completion"),
        ({"error": {"message": "no such model"}}, 200, "bad-reply", "no such model"),
        (without("token_ids"), 200, "bad-reply", "return_token_ids"),
        (reply([1, -1]), 200, "bad-reply", "token_ids[1]"),
        (reply([2**31]), 200, "bad-reply", "token_ids[0]"),
        (reply([True]), 200, "bad-reply", "token_ids[0]"),
        (reply([1]) | {"choices": []}, 200, "bad-reply", "0 choices"),
        (reply([1]) | {"model": None}, 200, "bad-reply", "names no model"),
        (reply([1], model="m-2"), 200, "foreign-nonce", "'m-2'"),
        (reply([1], sent=[5, 6, 8]), 200, "prompt-mismatch", "id 3 was sent as 7"),
        (reply([1], sent=[5, 6]), 200, "prompt-mismatch", "3 prompt ids were sent"),
    ],
)
def test_faults_say_what_was_seen(body: bytes | dict[str, Any], status: int, reason: str, words: str) -> None:
    found = parse(body, status)
    assert isinstance(found, Fault)
    assert found.reason == reason
    assert words in found.detail


def test_prompt_ids_may_be_absent() -> None:
    assert isinstance(parse(without("prompt_token_ids")), Reply)


@given(st.binary() | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["choices", "model", "token_ids", "text", "usage", "logprobs", "x"]), inner, max_size=4),
    max_leaves=12,
).map(lambda document: json.dumps(document).encode()))  # fmt: skip
def test_no_body_breaks_the_reader(body: bytes) -> None:
    found = parse(body)
    assert isinstance(found, Fault | Reply)
    if isinstance(found, Fault):
        found.detail.encode()
