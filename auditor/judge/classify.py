"""One engine that says what kind a divergence is, used by `judge` and by `audit compare` alike.

Order, first match wins: accounting and stopping faults (they hold whatever the logits say), then ties by the
reference's own margins, then degenerate output, then what the margins say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from auditor.judge.margin import Ruling
from auditor.judge.output import Output, loop_length
from auditor.model.judgement import EXPLAINED, DivergenceClass


class Classified(msgspec.Struct, frozen=True, kw_only=True):
    """A divergence with its kind. `position` is 1-based, the end counting as a token."""

    position: int
    cls: DivergenceClass
    why: str
    notes: tuple[str, ...] = ()
    flip: bool | None = None


def first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    """1-based index of the first differing token; a strict prefix differs at its length + 1; None when equal.

    Bisects over slices, so that the comparing is done by the list type itself.
    """
    one, two = list(a), list(b)
    if one == two:
        return None
    low, high = 0, min(len(one), len(two))
    if one[:high] == two[:high]:
        return high + 1
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == two[low:middle]:
            low = middle
        else:
            high = middle
    return low + 1


def classify(
    reference: Output, other: Output, margins: Callable[[int], Ruling | None] = lambda position: None
) -> Classified | None:
    """None when the two agree: same ids, same finish reason, and everything delivered that was counted.

    `margins(position)` rules on a token divergence from logprobs; None where there are none.
    """
    position = first_difference(reference.token_ids, other.token_ids)
    notes = _notes(reference, other, position)
    structural = _accounting(reference, other) or _stopping(reference, other, position)
    if structural is not None:
        cls, why = structural
        if position is not None and position <= min(len(reference.token_ids), len(other.token_ids)):
            notes = (f"the ids already differ from token {position}", *notes)
        at = position or min(len(reference.token_ids), len(other.token_ids)) + 1
        return Classified(position=at, cls=cls, why=why, notes=notes)
    if position is None:
        return None
    ruling = margins(position)
    if ruling is not None and ruling.cls in EXPLAINED:
        return Classified(position=position, cls=ruling.cls, why=ruling.why, notes=notes, flip=ruling.flip)
    looped = _degenerate(reference, other, position)
    if looped is not None:
        return Classified(position=position, cls="degenerate", why=looped, notes=notes)
    if ruling is None:
        ruling = Ruling(
            cls="unknown",
            why="There are no logprobs at this position, so a tie cannot be told from a fault; "
            "score the common prefix on the reference.",
        )
    return Classified(position=position, cls=ruling.cls, why=ruling.why, notes=notes, flip=ruling.flip)


_Fault = tuple[DivergenceClass, str] | None


def _accounting(reference: Output, other: Output) -> _Fault:
    gap, reference_gap = other.usage_gap, reference.usage_gap
    for name, side, own, opposite in (
        ("candidate", other, gap, reference_gap),
        ("reference", reference, reference_gap, gap),
    ):
        # The same gap on both sides is the engine's way of counting, not a fault of one arm.
        if own and own != opposite:
            return "short delivery", (
                f"The {name} counts {side.usage_completion} tokens in its usage and delivered "
                f"{len(side.token_ids)} ids."
            )
    return None


def _stopping(reference: Output, other: Output, position: int | None) -> _Fault:
    sizes = len(reference.token_ids), len(other.token_ids)
    for name, side in (("candidate", other), ("reference", reference)):
        if side.max_tokens is not None and len(side.token_ids) > side.max_tokens:
            return "length overrun", (
                f"The {name} returned {len(side.token_ids)} tokens, more than the cap of {side.max_tokens}."
            )
    if other.min_tokens and sizes[1] < other.min_tokens <= sizes[0]:
        return "stop policy", (
            f"min_tokens {other.min_tokens} was asked for and the candidate stopped after {sizes[1]}: "
            f"known cause, "
            "min_tokens is not enforced under speculation; leave it out."
        )
    if position is None:
        return _finish(reference, other)
    if position > sizes[0]:
        return _longer(reference, other)
    if position > sizes[1]:
        return _shorter(reference, other)
    return _stop_inside(reference, other)


def _finish(reference: Output, other: Output) -> _Fault:
    if reference.finish_reason == other.finish_reason:
        return None
    return "stop policy", (
        f"The same {len(other.token_ids)} ids, but the reference finished by {reference.finish_reason!r} "
        f"and the "
        f"candidate by {other.finish_reason!r}."
    )


def _longer(reference: Output, other: Output) -> _Fault:
    extra = len(other.token_ids) - len(reference.token_ids)
    if reference.finish_reason == "length":
        return "length overrun", (
            f"The reference ended at its cap of {len(reference.token_ids)} tokens; the candidate repeats "
            f"them and "
            f"goes on for {extra} more."
        )
    return "post-stop leak", (
        f"The reference stopped after {len(reference.token_ids)} tokens; the candidate has the same ids and "
        f"{extra} more after the stop."
    )


def _shorter(reference: Output, other: Output) -> _Fault:
    sizes = f"after {len(other.token_ids)} of the reference's {len(reference.token_ids)} tokens"
    if other.finish_reason == "stop":
        return "stop policy", (
            f"The candidate stopped {sizes}, where the reference went on with the same ids; "
            "if min_tokens was asked for, leave it out: it is not enforced under speculation."
        )
    if other.finish_reason == "length":
        return "short delivery", f"The candidate ended by 'length' {sizes}: fewer than the cap allowed."
    return "short delivery", f"The candidate broke off {sizes}, finish reason {other.finish_reason!r}."


def _stop_inside(reference: Output, other: Output) -> _Fault:
    inside = other.token_ids[:-1]
    for stop in (reference.stop_id, other.stop_id):
        if stop is not None and stop in inside and stop not in reference.token_ids[:-1]:
            return "post-stop leak", (
                f"The stop id {stop} is token {list(inside).index(stop) + 1} of the candidate, which goes "
                f"on after it."
            )
    return None


def _degenerate(reference: Output, other: Output, position: int) -> str | None:
    ids = other.token_ids
    end = len(ids) - 1 if other.stop_id is not None else len(ids)
    length, period = loop_length(ids[:end], position - 1)
    rest = end - (position - 1)
    if not length or not (length >= rest or (period == 1 and length >= 16 and 2 * length >= rest)):
        return None
    if loop_length(reference.token_ids, position - 1)[0]:
        return None
    what = f"token {ids[end - 1]}" if period == 1 else f"a cycle of {period} tokens"
    hint = "; NaN logits look like this" if period == 1 else ""
    return (
        f"From token {position} on, {length} of {rest} tokens of the candidate are {what} repeated, which "
        f"the "
        f"reference does not do{hint}."
    )


def _notes(reference: Output, other: Output, position: int | None) -> tuple[str, ...]:
    notes = []
    same_text = reference.text == other.text and bool(reference.text)
    if position is not None and same_text:
        notes.append("the texts are equal, the ids are not: compare ids")
    if position is None and reference.text != other.text and reference.text and other.text:
        notes.append("the ids are equal, the texts are not: the text is void, the ids are valid")
    if position is not None and "\ufffd" in reference.text + other.text:
        notes.append("replacement characters in the text hide which bytes differ")
    for name, side in (("reference", reference), ("candidate", other)):
        if side.usage_reasoning is not None and (side.usage_completion or 0) < side.usage_reasoning:
            notes.append(
                f"warning: the {name}'s usage counts {side.usage_reasoning} reasoning tokens of "
                f"{side.usage_completion} completion tokens"
            )
    if reference.usage_gap and reference.usage_gap == other.usage_gap:
        notes.append(f"both servers count {reference.usage_gap:+d} tokens against the ids they delivered")
    if other.text.lstrip().startswith("```") and reference.text.lstrip()[:1] in ("{", "["):
        notes.append("the candidate opens with a markdown fence where the reference has JSON: grammar escape")
    if other.token_ids and loop_length(other.token_ids)[0] and position is not None:
        notes.append("the candidate's continuation ends in a loop")
    return tuple(notes)


def agreeing_notes(reference: Output, other: Output) -> tuple[str, ...]:
    """Notes on a pair that agrees: texts that differ, usage warnings."""
    return _notes(reference, other, None)
