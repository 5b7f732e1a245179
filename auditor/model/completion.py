"""Prompts as they were sent and what came back for them."""

from __future__ import annotations

from auditor.model.base import Model


class Prompt(Model, frozen=True, kw_only=True):
    """One prompt, frozen as token ids before the first request."""

    id: str
    """Unique over the run: `<corpus>/<item>`, for example `gsm8k/17`."""
    corpus: str
    token_ids: tuple[int, ...]
    text: str
    """What the ids were encoded from; for people only."""
    gold: str | None = None
    """Reference answer where the corpus is graded."""
    max_tokens: int


class Completion(Model, frozen=True, kw_only=True, tag="completion", tag_field="kind"):
    """The token ids returned for one prompt. The verdict reads ids; text is for people."""

    phase: str
    """Id of the Phase it belongs to."""
    prompt: str
    """Prompt.id."""
    repeat: int = 0
    """0-based count of the same prompt within the phase."""
    token_ids: tuple[int, ...]
    text: str
    finish_reason: str | None
    stop_reason: str | int | None = None
    usage_prompt: int | None = None
    """usage.prompt_tokens as the server counted; None when the server sent no usage."""
    usage_completion: int | None = None
    usage_cached: int | None = None
    """usage.prompt_tokens_details.cached_tokens; None when absent."""
    prompt_ids_match: bool | None = None
    """Whether the returned prompt ids equal the sent ones; None when the server returned none."""
    logprobs: tuple[float | None, ...] | None = None
    """Logprob of each generated token, only where a pass asked for it (never in verdict passes).
    None inside marks NaN or ±inf."""
    started_s: float
    """Seconds since the audit's clock origin at which the request was sent."""
    ended_s: float


class RequestFailure(Model, frozen=True, kw_only=True, tag="failure", tag_field="kind"):
    """A request that brought no completion. Never counted as a wrong answer."""

    phase: str
    prompt: str
    repeat: int = 0
    reason: str
    """timeout, connection, http-500, http-429, bad-reply, foreign-nonce, prompt-mismatch, stalled, …"""
    detail: str = ""
    started_s: float
    ended_s: float


Answer = Completion | RequestFailure


class TokenLogprob(Model, frozen=True, kw_only=True):
    token: int
    logprob: float | None
    """Natural log; None for NaN or ±inf."""


class Score(Model, frozen=True, kw_only=True):
    """One forced position scored in the second pass: `max_tokens=1` after a common prefix."""

    launch: str
    pair_arm: str
    """Candidate or control arm whose divergence is scored; `calibration` for the calibration pass."""
    prompt: str
    position: int
    """1-based index of the generated token that is scored."""
    chosen: int | None
    """Token id that the server itself produced; None when the request failed."""
    top: tuple[TokenLogprob, ...] = ()
    """Raw logprobs, best first, at most 20; empty when the server returned none."""
    decode_logprob: float | None = None
    """Calibration only: logprob of the same token when it was decoded, not rescored."""
    expected: int | None = None
    """Calibration only: the token that decoding produced at this position."""
    error: str | None = None


class Replaced(Model, frozen=True, kw_only=True):
    """A token of a forced path at which the server itself would have said another."""

    position: int
    """1-based index among the generated tokens."""
    token: int
    """What greedy decoding would have said: the best id, the lowest of equal ones."""
    margin: float | None
    """Nats by which it is ahead of the path's own token; None when unusable."""


class ForcedPath(Model, frozen=True, kw_only=True):
    """The reference's completion, forced on a server without a drafter whose forward passes all take `width`
    tokens: what verification at that width changes by itself, without any head."""

    launch: str
    prompt: str
    width: int
    """Tokens a forward pass, k + 1."""
    sampled: bool
    """Chosen before anything was known of it; the others are forced because an arm diverged there."""
    tokens: int = 0
    """Generated tokens that were forced."""
    replaced: tuple[Replaced, ...] = ()
    error: str | None = None
