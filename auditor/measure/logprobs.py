"""Logprobs as evidence: forced positions (Score) and the bits of a launch state (Fingerprint)."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Mapping, Sequence

from auditor.measure.wire import Reply
from auditor.model.completion import Prompt, Replaced, TokenLogprob
from auditor.model.launch import Fingerprint, FingerprintPrompt

CLAMP = -9999.0
"""vLLM writes this instead of -inf, because JSON has no infinity: no logprob, only its absence."""
MAX_TOP = 20
MAX_TOKEN_ID = 2**31 - 1


def usable(logprob: float | None) -> float | None:
    """The logprob, or None for NaN, ±inf and the engine's stand-in for them."""
    if logprob is None or not math.isfinite(logprob) or logprob <= CLAMP:
        return None
    return logprob


def chosen_logprobs(reply: Reply) -> tuple[float | None, ...] | None:
    """Logprob of each generated token; None when the server sent none."""
    found = reply.choices[0].logprobs
    if found is None or found.token_logprobs is None:
        return None
    return tuple(usable(value) for value in found.token_logprobs)


def top_logprobs(reply: Reply) -> tuple[TokenLogprob, ...]:
    """Alternatives at the first generated position, best first, at most 20; empty when there are none.
    Equal logprobs are ordered by id, unusable ones come last.
    """
    pairs = [(token, usable(value)) for token, value in _first_top(reply).items()]
    pairs.sort(key=lambda pair: _best_first(pair[1], pair[0]))
    return tuple(TokenLogprob(token=token, logprob=value) for token, value in pairs[:MAX_TOP])


def fingerprint_prompt(prompt: Prompt, reply: Reply) -> FingerprintPrompt | str:
    """Ids and float32 bits of one reply in canonical order: prompt positions, then the generated token;
    within a position best first, equal values by id. The order of keys in the JSON does not matter.
    A string says why the reply has no fingerprint.
    """
    positions = reply.choices[0].prompt_logprobs
    if positions is None:
        return "the reply has no prompt_logprobs"
    if len(positions) != len(prompt.token_ids):
        return f"{len(positions)} prompt positions came back; expected {len(prompt.token_ids)}"
    values: list[tuple[int, float | None]] = []
    for position in positions:
        if position is not None:  # the first token has no logprob: nothing comes before it
            values += _canonical(_by_id({key: entry.logprob for key, entry in position.items()}))
    if not values:
        return "the reply's prompt_logprobs are empty"
    generated = _first_top(reply)
    if not generated:
        return "the reply has no logprobs of the generated token"
    values += _canonical(generated)
    return FingerprintPrompt(
        prompt=prompt.id,
        token_ids=tuple(token for token, _ in values),
        bits="".join(_bits(value) for _, value in values),
    )


def replaced_tokens(reply: Reply, start: int, path: Sequence[int]) -> tuple[Replaced, ...] | str:
    """The tokens of `path` that greedy decoding would not have said, from the reply to a prompt of `start`
    ids followed by all of `path` but its last, which was generated.

    Greedy decoding says the best id, and the lowest of equal ones (torch.argmax). A string says why the
    reply does not tell.
    """
    positions = reply.choices[0].prompt_logprobs
    if positions is None or len(positions) != start + len(path) - 1:
        came = "no" if positions is None else str(len(positions))
        return f"{came} prompt positions came back; expected {start + len(path) - 1}"
    listed = [
        _by_id({key: entry.logprob for key, entry in (position or {}).items()})
        for position in positions[start:]
    ]
    found = []
    for at, (token, values) in enumerate(zip(path, [*listed, _first_top(reply)], strict=True), 1):
        known = {key: value for key, value in values.items() if usable(value) is not None}
        if not known:
            return f"no logprobs came back for token {at} of the path"
        best = min(known, key=lambda key: _best_first(known[key], key))
        if best != token:
            ahead, own = known[best], known.get(token)
            margin = None if ahead is None or own is None else ahead - own
            found.append(Replaced(position=at, token=best, margin=margin))
    return tuple(found)


def fingerprint_of(launch: str, prompts: Sequence[FingerprintPrompt]) -> Fingerprint:
    """Digest: sha256 over one line a prompt, `id ids bits`, ids joined by commas."""
    digest = hashlib.sha256()
    for prompt in prompts:
        ids = ",".join(map(str, prompt.token_ids))
        digest.update(f"{prompt.prompt} {ids} {prompt.bits}\n".encode())
    return Fingerprint(launch=launch, digest=digest.hexdigest(), prompts=tuple(prompts))


def _canonical(position: Mapping[int, float | None]) -> list[tuple[int, float | None]]:
    return sorted(position.items(), key=lambda item: _best_first(item[1], item[0]))


def _best_first(logprob: float | None, token: int) -> tuple[bool, float, int]:
    if logprob is None or math.isnan(logprob):
        return (True, 0.0, token)
    return (False, -logprob, token)


def _bits(value: float | None) -> str:
    """Eight hex digits. The engine writes the shortest decimal of its float32, so packing returns the
    exact bits; NaN has one pattern, whatever its payload was.
    """
    if value is None or math.isnan(value):
        return "7fc00000"
    try:
        return struct.pack(">f", value).hex()
    except OverflowError:  # a double beyond float32: no engine computes it, but a reply may hold it
        return "7f800000" if value > 0 else "ff800000"


def _first_top(reply: Reply) -> dict[int, float | None]:
    found = reply.choices[0].logprobs
    if found is None or not found.top_logprobs or found.top_logprobs[0] is None:
        return {}
    return _by_id(found.top_logprobs[0])


def _by_id(entries: Mapping[str, float | None]) -> dict[int, float | None]:
    """Keys are ids as text, with or without `token_id:`; a key that is a token's text has no id."""
    tokens: dict[int, float | None] = {}
    for key, value in entries.items():
        token = key.removeprefix("token_id:")
        if token.isdecimal() and len(token) <= 10 and int(token) <= MAX_TOKEN_ID:
            tokens[int(token)] = value
    return tokens
