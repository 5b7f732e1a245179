"""One side of a pair, whatever it came from: a recorded completion or a line of a file."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from auditor.model.completion import Completion

LOOP_PERIODS = (1, 2, 3, 4)
"""Periods, in tokens, at which a repeated cycle counts as a loop."""
LEAST_LOOP = 8
"""Fewest tokens of a loop; a cycle must also come round three times."""


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What one server returned for one prompt. None: not known, which is never read as zero."""

    token_ids: Sequence[int]
    text: str = ""
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    usage_completion: int | None = None
    usage_reasoning: int | None = None
    max_tokens: int | None = None
    """The cap that was asked for."""
    min_tokens: int | None = None

    @property
    def usage_gap(self) -> int | None:
        """Tokens that the server counted beyond those it delivered; None without usage."""
        return None if self.usage_completion is None else self.usage_completion - len(self.token_ids)

    @property
    def stop_id(self) -> int | None:
        """The id that ended it. None where it did not stop, or stopped at a string."""
        stopped = self.finish_reason == "stop" and not isinstance(self.stop_reason, str)
        return self.token_ids[-1] if stopped and self.token_ids else None


def from_completion(completion: Completion, max_tokens: int | None = None) -> Output:
    """`max_tokens` is the cap of its prompt."""
    return Output(
        token_ids=completion.token_ids,
        text=completion.text,
        finish_reason=completion.finish_reason,
        stop_reason=completion.stop_reason,
        usage_completion=completion.usage_completion,
        max_tokens=max_tokens,
    )


def loop_length(token_ids: Sequence[int], start: int = 0) -> tuple[int, int]:
    """(tokens, period) of the longest loop that ends `token_ids`, looking no further back than index `start`.

    (0, 0) when the end is no loop of at least LEAST_LOOP tokens and three rounds.
    """
    best = (0, 0)
    for period in LOOP_PERIODS:
        i = len(token_ids) - 1 - period
        while i >= start and token_ids[i] == token_ids[i + period]:
            i -= 1
        length = len(token_ids) - 1 - i
        if length >= max(LEAST_LOOP, 3 * period) and length > best[0]:
            best = (length, period)
    return best


def is_one_token(token_ids: Sequence[int], least: int = 16) -> bool:
    """True for at least `least` tokens that are all the same: what NaN logits make greedy decoding say."""
    return len(token_ids) >= least and all(t == token_ids[0] for t in token_ids)
