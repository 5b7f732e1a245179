"""What a server's /metrics says: counters of a phase, and how many requests it runs right now.

Families are looked up by exact sample name, so `_created` timestamps never count, and summed over their
label sets, because data-parallel servers expose one series an engine. A family that is not there gives
None: absent is not zero. Names changed between engine versions; the first that is present counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from auditor.model.phase import Counters

COUNTERS: Mapping[str, tuple[str, ...]] = {
    "drafts": ("vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_drafts"),
    "draft_tokens": ("vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_draft_tokens"),
    "accepted_tokens": (
        "vllm:spec_decode_num_accepted_tokens_total",
        "vllm:spec_decode_num_accepted_tokens",
    ),
    "preemptions": ("vllm:num_preemptions_total", "vllm:num_preemptions"),
    "prompt_tokens": ("vllm:prompt_tokens_total", "vllm:prompt_tokens"),
    "generation_tokens": ("vllm:generation_tokens_total", "vllm:generation_tokens"),
    "prefix_cache_hits": (
        "vllm:prefix_cache_hits_total",
        "vllm:gpu_prefix_cache_hits_total",
        "vllm:gpu_prefix_cache_hits",
    ),
}
"""Field of Counters -> sample names, newest first."""

PER_POSITION = (
    "vllm:spec_decode_num_accepted_tokens_per_pos_total",
    "vllm:spec_decode_num_accepted_tokens_per_pos",
)
ACCEPTANCE_GAUGE = ("vllm:spec_decode_draft_acceptance_rate",)
RUNNING = ("vllm:num_requests_running",)
WAITING = ("vllm:num_requests_waiting",)

_MOST = 2.0**63
_COUNTER_NAMES = frozenset(
    name for names in (*COUNTERS.values(), PER_POSITION, ACCEPTANCE_GAUGE) for name in names
)
_LOAD_NAMES = frozenset((*RUNNING, *WAITING, *COUNTERS["generation_tokens"], *COUNTERS["prompt_tokens"]))


class Load(NamedTuple):
    """What a server is doing at this moment. None: the family is absent."""

    running: int | None
    waiting: int | None
    generation_tokens: int | None
    prompt_tokens: int | None

    @property
    def tokens(self) -> int | None:
        """Tokens of prompts and answers together; None where neither counter is there."""
        known = [n for n in (self.generation_tokens, self.prompt_tokens) if n is not None]
        return sum(known) if known else None


def parse_counters(text: str) -> Counters | None:
    """Counters of one exposition; None when a line of a family that matters cannot be read, because half
    a reading would pass for a fall of the counters. An exposition without these families (or any other
    text) gives a Counters of None only.
    """
    samples = _samples(text, _COUNTER_NAMES)
    if samples is None:
        return None
    totals = {field: _total(samples, names) for field, names in COUNTERS.items()}
    return Counters(
        drafts=totals["drafts"],
        draft_tokens=totals["draft_tokens"],
        accepted_tokens=totals["accepted_tokens"],
        accepted_per_position=_positions(samples),
        preemptions=totals["preemptions"],
        prompt_tokens=totals["prompt_tokens"],
        generation_tokens=totals["generation_tokens"],
        prefix_cache_hits=totals["prefix_cache_hits"],
        acceptance_rate_gauge=_mean(samples, ACCEPTANCE_GAUGE),
    )


def parse_load(text: str) -> Load | None:
    """Gauges of one exposition, summed over engines; None when they cannot be read."""
    samples = _samples(text, _LOAD_NAMES)
    if samples is None:
        return None
    return Load(
        running=_total(samples, RUNNING),
        waiting=_total(samples, WAITING),
        generation_tokens=_total(samples, COUNTERS["generation_tokens"]),
        prompt_tokens=_total(samples, COUNTERS["prompt_tokens"]),
    )


def _samples(text: str, names: frozenset[str]) -> list[Sample] | None:
    """Finite samples called one of `names`. Only their lines are parsed: a full exposition has over a
    thousand lines of histograms, too many to read ten times a second beside the requests.
    """
    wanted = "\n".join(_lines(text, names))
    try:
        return [
            sample
            for family in text_string_to_metric_families(wanted)
            for sample in family.samples
            if math.isfinite(sample.value)
        ]
    except (ValueError, IndexError, KeyError, TypeError, OverflowError):
        return None


def _lines(text: str, names: frozenset[str]) -> Iterator[str]:
    for line in text.splitlines():
        end = line.find("{")
        name = line[:end] if end >= 0 else line.split(" ", 1)[0]
        if name.strip() in names:
            yield line


def _present(samples: Iterable[Sample], names: tuple[str, ...]) -> list[Sample]:
    for name in names:
        found = [sample for sample in samples if sample.name == name]
        if found:
            return found
    return []


def _total(samples: list[Sample], names: tuple[str, ...]) -> int | None:
    found = _present(samples, names)
    total = sum(sample.value for sample in found)
    # beyond 64 bits it is no count of an engine, and infinite sums of finite values exist
    return round(total) if found and abs(total) < _MOST else None


def _mean(samples: list[Sample], names: tuple[str, ...]) -> float | None:
    found = _present(samples, names)
    mean = sum(sample.value for sample in found) / len(found) if found else math.nan
    return mean if math.isfinite(mean) else None


def _positions(samples: list[Sample]) -> tuple[int, ...] | None:
    """Accepted tokens by draft position over all engines; None when the positions have a gap."""
    sums: dict[int, float] = {}
    for sample in _present(samples, PER_POSITION):
        label = sample.labels.get("position", "")
        if not label.isdecimal() or len(label) > 4:
            return None
        sums[int(label)] = sums.get(int(label), 0.0) + sample.value
    if not sums or sorted(sums) != list(range(len(sums))) or any(abs(n) >= _MOST for n in sums.values()):
        return None
    return tuple(round(sums[position]) for position in range(len(sums)))
