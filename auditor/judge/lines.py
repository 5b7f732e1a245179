"""Completions and answers as lines of a file: their schema, decoded with as little work as each pair needs.

Token ids stay raw bytes until two lines differ: equal bytes are equal ids, whatever they decode to.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from auditor.judge.output import Output
from auditor.model.completion import TokenLogprob

_NOTHING = msgspec.Raw(b"")
_FIRST_ID = re.compile(rb'\{\s*"id"\s*:\s*"([\x20\x21\x23-\x5b\x5d-\x7e]*)"\s*,')
_SPACE_AND_DIGITS = b"0123456789 ,\t"
_LARGEST = 1.7e308
"""Beyond it an integer is no float; NaN and the infinities compare as beyond it, too."""
_LONGEST_ID = 20
"""Characters of the longest 64-bit integer."""


class Details(msgspec.Struct):
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """The server's own counts, as the API names them."""

    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    completion_tokens_details: Details | None = None
    prompt_tokens_details: Details | None = None


class Request(msgspec.Struct):
    """What was asked for, where the file says it; each field as in the API."""

    max_tokens: int | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


class Named(msgspec.Struct):
    """Only what is needed to find a line again."""

    id: str | int


class Line(msgspec.Struct):
    """One completion. Unknown fields are ignored: files come from many tools."""

    id: str | int
    token_ids: msgspec.Raw = _NOTHING
    prompt_ids: msgspec.Raw = _NOTHING
    text: msgspec.Raw = _NOTHING
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    usage: Usage | None = None
    top_logprobs: msgspec.Raw = _NOTHING
    logprobs: msgspec.Raw = _NOTHING
    request: Request | None = None
    error: str | None = None


class AnswerLine(msgspec.Struct):
    """One graded answer of a file."""

    id: str | int
    gold: str | int | float
    completion: str | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    error: str | None = None


_named = msgspec.json.Decoder(Named)
_line = msgspec.json.Decoder(Line)
_answer = msgspec.json.Decoder(AnswerLine)
_ids = msgspec.json.Decoder(list[int])


def decode_id(raw: bytes) -> str:
    """The id of a line. ValueError says what is wrong with it.

    Where the line starts with its id, the rest is left to `decode_line`: parsing twice takes twice as long.
    """
    first = _FIRST_ID.match(raw)
    if first is not None:
        return first.group(1).decode()
    return str(_decode(_named, raw).id)


def decode_line(raw: bytes, twin: Line | None = None) -> Line:
    """A line whose ids are known to be a list of integers, still undecoded. ValueError otherwise.

    `twin`: a decoded line that probably holds the same ids, which are then not checked again.
    """
    line: Line = _decode(_line, raw)
    checked = twin is not None and twin.error is None and bytes(line.token_ids) == bytes(twin.token_ids)
    if line.error is None and not checked:
        _check_ids("token_ids", line.token_ids, required=True)
    _check_ids("prompt_ids", line.prompt_ids, required=False)
    return line


def decode_answer(raw: bytes) -> AnswerLine:
    """A line of answers. ValueError says what is wrong with it."""
    answer: AnswerLine = _decode(_answer, raw)
    return answer


def same_at_a_glance(one: Line, two: Line) -> int | None:
    """How many ids each has, when the two agree beyond doubt, without decoding an id. None says nothing."""
    if one is not two and (
        bytes(one.token_ids) != bytes(two.token_ids)
        or one.finish_reason != two.finish_reason
        or bytes(one.text) != bytes(two.text)
        or bytes(one.prompt_ids) != bytes(two.prompt_ids)
    ):
        return None
    if one.error is not None or two.error is not None:
        return None
    size = length(one)
    return size if _counts_fit(one, size) and (one is two or _counts_fit(two, size)) else None


def length(line: Line) -> int:
    """How many ids the line has, from the commas between them."""
    raw = bytes(line.token_ids)
    commas = raw.count(b",")
    return commas + 1 if commas or raw.strip(b"[ \t]") else 0


def output(line: Line) -> Output:
    """The decoded side of a pair."""
    usage = line.usage or Usage()
    details = usage.completion_tokens_details
    request = line.request or Request()
    return Output(
        token_ids=ids(line.token_ids),
        text=text(line),
        finish_reason=line.finish_reason,
        stop_reason=line.stop_reason,
        usage_completion=usage.completion_tokens,
        usage_reasoning=usage.reasoning_tokens or (details.reasoning_tokens if details else None),
        max_tokens=request.max_tokens,
        min_tokens=request.min_tokens,
    )


def text(line: Line) -> str:
    """The text, empty where there is none; bytes that are not UTF-8 are replaced, because ids decide."""
    raw = bytes(line.text)
    if raw[:1] != b'"':
        return ""
    return msgspec.json.decode(raw.decode(errors="replace"), type=str)


def ids(raw: msgspec.Raw) -> list[int]:
    """Token ids; empty where the field is absent."""
    return [] if bytes(raw) in (b"", b"null") else _ids.decode(raw)


def cached(line: Line) -> int | None:
    """Prompt tokens that came from the prefix cache; None when the line does not say."""
    details = line.usage.prompt_tokens_details if line.usage else None
    return details.cached_tokens if details else None


def top_at(line: Line, position: int) -> tuple[TokenLogprob, ...]:
    """Logprobs listed at a 1-based position, best first; empty where there are none.

    `top_logprobs` is an object from position to one entry, or a list with one entry a token; an entry is
    {token id: logprob}, or a list of {"token_id": …, "logprob": …} or of [token id, logprob].
    """
    raw = bytes(line.top_logprobs)
    if raw in (b"", b"null"):
        return ()
    listed: Any = msgspec.json.decode(raw)
    entry: Any = None
    if isinstance(listed, list):
        entry = listed[position - 1] if position <= len(listed) else None
    elif isinstance(listed, dict):
        entry = listed.get(str(position))
    found = [
        TokenLogprob(token=token, logprob=_finite(value))
        for key, value in _entries(entry)
        for token in (_token(key),)
        if token is not None
    ]
    return tuple(sorted(found, key=lambda e: -math.inf if e.logprob is None else e.logprob, reverse=True))


def _entries(entry: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(entry, dict):
        yield from entry.items()
    elif isinstance(entry, list):
        for item in entry:
            if isinstance(item, dict):
                yield item.get("token_id", item.get("token")), item.get("logprob")
            elif isinstance(item, list) and len(item) >= 2:
                yield item[0], item[1]


def _token(key: object) -> int | None:
    text = str(key).removeprefix("token_id:")
    return int(text) if text.removeprefix("-").isdecimal() and len(text) <= _LONGEST_ID else None


def constant_logprob(line: Line) -> float | None:
    """The value, where at least eight logprobs are listed and all are the same; None otherwise."""
    raw = bytes(line.logprobs)
    if raw in (b"", b"null"):
        return None
    listed: Any = msgspec.json.decode(raw)
    if isinstance(listed, list) and len(listed) >= 8 and all(v == listed[0] for v in listed):
        return _finite(listed[0])
    return None


def _finite(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and abs(value) <= _LARGEST else None


def _counts_fit(line: Line, size: int) -> bool:
    usage, request = line.usage, line.request
    if request is not None and (request.max_tokens is not None or request.min_tokens is not None):
        return False
    if usage is None or usage.completion_tokens is None:
        return True
    details = usage.completion_tokens_details
    reasoning = usage.reasoning_tokens or (details.reasoning_tokens if details else None)
    return usage.completion_tokens == size and (reasoning or 0) <= usage.completion_tokens


def _check_ids(name: str, raw: msgspec.Raw, *, required: bool) -> None:
    data = bytes(raw)
    if data in (b"", b"null"):
        if required:
            raise ValueError(f"field `{name}` is missing")
        return
    if data[:1] == b"[" and data[-1:] == b"]" and not data[1:-1].translate(None, _SPACE_AND_DIGITS):
        return
    try:
        _ids.decode(data)
    except msgspec.MsgspecError as error:
        raise ValueError(f"field `{name}` is no list of integers ({error})") from None


def _decode(decoder: msgspec.json.Decoder[Any], raw: bytes) -> Any:
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    except msgspec.DecodeError as error:
        lenient = _without_nan(raw)
        if lenient is None:
            raise ValueError(f"it is no JSON object ({error})") from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    try:
        return decoder.decode(lenient)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None


def _without_nan(raw: bytes) -> bytes | None:
    """The line with NaN and ±Infinity, which some tools write, as null, and with halves of characters, where
    a text was cut between ids, as `?`. None where that does not mend it."""
    try:
        lenient = json.dumps(json.loads(raw, parse_constant=lambda name: None), ensure_ascii=False)
        return lenient.encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return None
