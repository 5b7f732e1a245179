"""What a server's logprobs at one position say about two tokens, and whether they can be believed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from auditor.model.completion import TokenLogprob
from auditor.model.judgement import DivergenceClass, TokenMargin

CLAMP = -9999.0
"""Engines write this for −inf: no measurement."""
FLOAT32_ROUNDING = 1e-5
"""Nats. Logprobs are float32 of magnitude up to 64, so the difference of two is off by up to two of their
last places (2^-18 each): one bfloat16 step of 0.25 arrives as 0.25000006."""
TOTAL_SLACK = 1e-3
"""Rounding allowed before listed probabilities that sum to more than 1 are no distribution."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """Two tokens on one server."""

    margin: TokenMargin
    chosen: int | None = None
    """The server's best token."""
    behind: float | None = None
    """How far the reference's token is behind the best one, nats; None when unusable."""
    at_least: float | None = None
    """Lower bound on |margin|, nats, where one of the two is not among the listed tokens."""
    problem: str | None = None
    """Why the logprobs are no evidence; None when they are."""


def read_margin(
    *,
    launch: str,
    top: Sequence[TokenLogprob],
    reference_token: int,
    other_token: int,
    chosen: int | None,
    own_token: int,
) -> Reading:
    """`top`: best first, as listed by the server; `own_token`: what this server itself had decoded here."""
    listed = {entry.token: entry.logprob for entry in top}
    ranks = {entry.token: rank for rank, entry in enumerate(top, 1)}
    one, two = listed.get(reference_token), listed.get(other_token)
    problem = _problem(top, (reference_token, other_token))
    missing = [t for t in (reference_token, other_token) if t not in listed]
    margin = one - two if one is not None and two is not None and problem is None else None
    at_least = None
    if problem is None and len(missing) == 1:
        present = one if one is not None else two
        lowest = min(entry.logprob for entry in top if entry.logprob is not None)
        at_least = None if present is None else present - lowest
    elif problem is None and missing:
        problem = "neither token is among the logprobs listed"
    best = top[0].logprob if top else None
    return Reading(
        margin=TokenMargin(
            launch=launch,
            reference_logprob=one,
            other_logprob=two,
            margin=margin,
            reference_rank=ranks.get(reference_token),
            other_rank=ranks.get(other_token),
            reproduces=None if chosen is None else chosen == own_token,
        ),
        chosen=chosen,
        behind=None if problem or best is None or one is None else best - one,
        at_least=at_least,
        problem=problem,
    )


def _problem(top: Sequence[TokenLogprob], tokens: tuple[int, int]) -> str | None:
    if not top:
        return "the server listed no logprobs"
    values = [entry.logprob for entry in top if entry.token in tokens]
    if any(v is None or not math.isfinite(v) for v in values):
        return "a logprob is NaN or infinite"
    if any(v is not None and v <= CLAMP for v in values):
        return f"a logprob is clamped at {CLAMP:g}"
    finite = [entry.logprob for entry in top if entry.logprob is not None]
    if any(v > TOTAL_SLACK for v in finite) or sum(map(math.exp, finite)) > 1.0 + TOTAL_SLACK:
        return "the logprobs are no distribution (constant values whose probabilities sum to more than 1)"
    # A uniform list also arises when logits are all alike; either way nothing separates the tokens.
    if len(finite) > 2 and len(set(finite)) == 1:
        return "all logprobs listed are the same value"
    return None


class Floor(msgspec.Struct, frozen=True, kw_only=True):
    """How large a margin the engine's own numerics can turn over."""

    nats: float | None
    """None: margins are no evidence, for the reason in `problem`."""
    unknown_step: float = 0.0
    """Where the served dtype is unknown: so far above the floor a margin may still be one step of it."""
    problem: str = ""


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    cls: DivergenceClass
    why: str
    flip: bool | None = None
    """See Divergence.drafter_free_flip."""


def rule(reference: Reading | None, other: Reading | None, floor: Floor, other_token: int) -> Ruling:
    """exact tie, near tie, unexplained or unknown. The reference's own rescoring is the arbiter."""
    if reference is None:
        return Ruling(cls="unknown", why="Nobody scored this position, so the margin is not known.")
    if floor.nats is None:
        return Ruling(cls="unknown", why=f"Margins are not evidence here: {floor.problem}.")
    if reference.problem is not None:
        return Ruling(cls="unknown", why=f"The margin is not known: {reference.problem}.")
    flip = None if reference.chosen is None else reference.chosen == other_token
    margin = reference.margin.margin
    if margin is None:
        return _rule_bound(reference, floor, flip)
    size, within = abs(margin), abs(margin) <= floor.nats + FLOAT32_ROUNDING
    if flip and not within:
        return Ruling(
            cls="unknown",
            flip=True,
            why="Verify-shape numerics, not the head: without any drafter the plain reference, scoring the "
            "same "
            f"prefix as a batch, prefers the candidate's token by {size:.4g} nats itself.",
        )
    if reference.margin.reproduces is False and not flip and (reference.behind or 0.0) > floor.nats:
        return Ruling(
            cls="unknown",
            flip=flip,
            why="The reference, scoring the prefix as a batch, prefers a third token, so its margins are not "
            "evidence here.",
        )
    if within:
        contradiction = _contradiction(other, floor.nats)
        if contradiction:
            return Ruling(cls="unexplained", flip=flip, why=contradiction)
        name: DivergenceClass = "exact tie" if margin == 0.0 else "near tie"
        gap = (
            "equal logprobs"
            if margin == 0.0
            else f"{size:.4g} nats apart, within the noise of {floor.nats:.4g}"
        )
        batch = (
            " Scoring the prefix as a batch, the plain reference picks the candidate's token." if flip else ""
        )
        return Ruling(cls=name, flip=flip, why=f"On the reference the two tokens are {gap}.{batch}")
    if size <= floor.nats + floor.unknown_step + FLOAT32_ROUNDING:
        return Ruling(
            cls="unknown",
            flip=flip,
            why=f"The margin of {size:.4g} nats is above the measured noise of {floor.nats:.4g} but may be "
            f"one step "
            "of the served dtype, which is not known.",
        )
    return Ruling(
        cls="unexplained",
        flip=flip,
        why=f"The reference prefers its own token by {size:.4g} nats, beyond the noise of {floor.nats:.4g}. "
        + _who(other),
    )


def _rule_bound(reference: Reading, floor: Floor, flip: bool | None) -> Ruling:
    bound = reference.at_least
    if flip:
        return Ruling(
            cls="unknown",
            flip=True,
            why="Verify-shape numerics, not the head: scoring the prefix as a batch, the plain reference "
            "picks it too.",
        )
    if bound is not None and floor.nats is not None and bound > floor.nats + floor.unknown_step:
        return Ruling(
            cls="unexplained",
            flip=flip,
            why=f"The candidate's token is not among the reference's listed ones: at least {bound:.4g} "
            f"nats behind, "
            f"beyond the noise of {floor.nats:.4g}.",
        )
    return Ruling(
        cls="unknown",
        flip=flip,
        why="One of the two tokens is not among the logprobs that the reference listed.",
    )


def _contradiction(other: Reading | None, floor: float) -> str | None:
    # Two tokens, each with the noise of the floor on either server: beyond three floors the servers disagree.
    if other is None or other.problem is not None or other.margin.margin is None:
        return None
    if abs(other.margin.margin) <= 3.0 * floor:
        return None
    return (
        "Near a tie on the reference, but the candidate's own scoring puts "
        f"{abs(other.margin.margin):.4g} nats between the tokens: the two servers compute different logits."
    )


def _who(other: Reading | None) -> str:
    if other is None or other.problem is not None or other.margin.margin is None:
        return "The candidate's own scoring of the prefix is not known."
    size = abs(other.margin.margin)
    if other.margin.margin < 0:
        return (
            f"The candidate's target prefers its token by {size:.4g} nats: the targets differ "
            "(weights, dtype, kernels)."
        )
    return (
        f"The candidate's own target prefers the reference's token by {size:.4g} nats as well: what was "
        f"emitted "
        "is not what its target says (verification or cache fault)."
    )
