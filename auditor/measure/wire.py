"""What is sent to /v1/completions and how its answer is read. Pure: bytes in, a reply or a fault out.

A server's answer is evidence, so reading it is lenient about form (bare NaN, bytes that are no UTF-8,
unknown fields) and strict about what a verdict rests on (token ids, the server's name, the prompt).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
EXCERPT = 500
"""Characters of a server's own words that a failure quotes."""


class Fault(NamedTuple):
    """Why there is no reply: `reason` is a RequestFailure.reason."""

    reason: str
    detail: str


class PromptLogprob(msgspec.Struct, frozen=True):
    logprob: float | None = None
    rank: Count | None = None


class Logprobs(msgspec.Struct, frozen=True):
    """Keys of `top_logprobs` are `token_id:N`, because ids were asked for instead of texts."""

    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float | None] | None] | None = None


class Choice(msgspec.Struct, frozen=True):
    text: str | None = None
    finish_reason: str | None = None
    stop_reason: str | Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    token_ids: list[TokenId] | None = None
    prompt_token_ids: list[TokenId] | None = None
    logprobs: Logprobs | None = None
    prompt_logprobs: list[dict[str, PromptLogprob] | None] | None = None


class PromptDetails(msgspec.Struct, frozen=True):
    cached_tokens: Count | None = None


class Usage(msgspec.Struct, frozen=True):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: PromptDetails | None = None


class Reply(msgspec.Struct, frozen=True):
    choices: list[Choice]
    model: str | None = None
    usage: Usage | None = None


_DECODER = msgspec.json.Decoder(Reply)


def request_body(
    model: str,
    prompt_ids: Sequence[int],
    max_tokens: int,
    seed: int,
    *,
    logprobs: int | None = None,
    prompt_logprobs: int | None = None,
) -> bytes:
    """Every sampling field is stated: an omitted one takes the model's generation_config, which may hold
    a repetition penalty even at temperature 0. Logprobs appear only where asked for, because asking can
    change what the engine computes.
    """
    body: dict[str, Any] = {
        "model": model,
        "prompt": list(prompt_ids),
        "max_tokens": max_tokens,
        "temperature": 0,
        "top_p": 1,
        "top_k": -1,
        "repetition_penalty": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "seed": seed,
        "stream": False,
        "return_token_ids": True,
    }
    if logprobs is not None:
        body["logprobs"] = logprobs
        body["return_tokens_as_token_ids"] = True
    if prompt_logprobs is not None:
        body["prompt_logprobs"] = prompt_logprobs
    return msgspec.json.encode(body)


def parse_reply(status: int, body: bytes, *, model: str, prompt_ids: Sequence[int]) -> Reply | Fault:
    """The reply to one request, or why it is none. A reply that passes has exactly one choice, its token
    ids, this server's name, and prompt ids that are absent or equal to those sent.
    """
    if status == 404 and model.encode() in body:
        # an engine that was started under another name refuses before it could sign a reply
        return Fault(
            "foreign-nonce",
            f"the server does not know {model!r}, the name that ours was started with: two servers answer "
            f"on this port ({excerpt(body)})",
        )
    if status != 200:
        return Fault(f"http-{status}", excerpt(body))
    reply = _decode(body)
    if isinstance(reply, Fault):
        return reply
    if reply.model is None:
        return Fault("bad-reply", f"the reply names no model; expected {model!r}")
    if reply.model != model:
        return Fault(
            "foreign-nonce",
            f"the reply is from {reply.model[:80]!r}; expected {model!r}: two servers answer on this port",
        )
    if len(reply.choices) != 1:
        return Fault("bad-reply", f"the reply has {len(reply.choices)} choices; expected 1")
    return _check_ids(reply, prompt_ids)


def excerpt(body: bytes) -> str:
    """The start of a body as text, bytes that are no UTF-8 escaped."""
    text = body[: 4 * EXCERPT].decode("utf-8", "backslashreplace").strip()
    return text[:EXCERPT] or "(empty body)"


def _check_ids(reply: Reply, prompt_ids: Sequence[int]) -> Reply | Fault:
    choice = reply.choices[0]
    if choice.token_ids is None:
        return Fault(
            "bad-reply",
            "the reply has no choices[0].token_ids; the audit compares ids, so the server must honour "
            "`return_token_ids` (vLLM 0.10.2 or newer; a proxy in front may drop the field)",
        )
    returned = choice.prompt_token_ids
    if returned is not None and returned != list(prompt_ids):
        return Fault("prompt-mismatch", _mismatch(prompt_ids, returned))
    return reply


def _mismatch(sent: Sequence[int], returned: Sequence[int]) -> str:
    at = next((i for i, (a, b) in enumerate(zip(sent, returned, strict=False)) if a != b), None)
    if at is None:
        return f"{len(sent)} prompt ids were sent, the server worked on {len(returned)}"
    return f"prompt id {at + 1} was sent as {sent[at]}, the server worked on {returned[at]}"


def _decode(body: bytes) -> Reply | Fault:
    try:
        return _DECODER.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass  # not strict JSON of the expected shape; the lenient path says what is wrong, if anything
    try:
        # surrogateescape keeps the ids of a reply whose text is no UTF-8; json also reads bare NaN.
        document = json.loads(body.decode("utf-8", "surrogateescape"))
        return _readable(msgspec.convert(document, Reply))
    except msgspec.ValidationError as error:
        return Fault("bad-reply", f"the reply is not a completion ({error}): {excerpt(body)}")
    except (ValueError, RecursionError):
        return Fault("bad-reply", f"the reply is not JSON: {excerpt(body)}")


def _readable(reply: Reply) -> Reply:
    """The same reply with lone surrogates escaped, so that every text in it can be written as UTF-8."""
    choices = [
        msgspec.structs.replace(
            choice,
            text=_escaped(choice.text),
            finish_reason=_escaped(choice.finish_reason),
            stop_reason=_escaped(choice.stop_reason)
            if isinstance(choice.stop_reason, str)
            else choice.stop_reason,
        )
        for choice in reply.choices
    ]
    return msgspec.structs.replace(reply, choices=choices, model=_escaped(reply.model))


def _escaped(text: str | None) -> str | None:
    if text is None or text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
