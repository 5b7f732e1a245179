"""Reads the answers of phases without holding them: digests first, details for the pairs that differ.

A million completions of a thousand tokens are indexed at some hundred bytes each; a second reading fetches
the few that are needed in full.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Collection, Iterable

import msgspec

from auditor.model.completion import Completion, RequestFailure
from auditor.model.record import Evidence

Key = tuple[str, int]
"""(prompt id, 0-based repeat)"""


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is kept of one completion. It holds no containers: the collector need not look at a million."""

    digest: bytes
    """Of ids and finish reason: equal digests are agreement."""
    length: int
    gap: int | None
    """Tokens counted in usage beyond those delivered; None without usage."""
    cached: int | None
    """Prompt tokens served from the prefix cache; None when the server did not say."""
    stuck: bool
    """One and the same token from beginning to end, at least 16 times."""


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """All answers of one phase."""

    phase: str
    entries: dict[Key, Entry]
    failures: dict[Key, RequestFailure]


class Answers:
    """Indexes phases once and keeps the indexes for one judgement."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._indexes: dict[str, Index] = {}

    def index(self, phase: str) -> Index:
        if phase not in self._indexes:
            self._indexes[phase] = self._read(phase)
        return self._indexes[phase]

    def merged(self, phases: Iterable[str]) -> Index:
        """Several phases as one; the last answer to the same prompt and repeat counts."""
        entries: dict[Key, Entry] = {}
        failures: dict[Key, RequestFailure] = {}
        names = []
        for phase in phases:
            index = self.index(phase)
            entries |= index.entries
            failures |= index.failures
            names.append(phase)
        return Index(phase=" + ".join(names), entries=entries, failures=failures)

    def fetch(self, phase: str, keys: Collection[Key]) -> dict[Key, Completion]:
        """The completions of `phase` at `keys`, in full."""
        wanted = set(keys)
        if not wanted:
            return {}
        return {
            (a.prompt, a.repeat): a
            for a in self._evidence.answers(phase)
            if isinstance(a, Completion) and (a.prompt, a.repeat) in wanted
        }

    def _read(self, phase: str) -> Index:
        entries: dict[Key, Entry] = {}
        failures: dict[Key, RequestFailure] = {}
        for answer in self._evidence.answers(phase):
            key = (answer.prompt, answer.repeat)
            if isinstance(answer, RequestFailure):
                failures[key] = answer
                entries.pop(key, None)
            else:
                entries[key] = _entry(answer)
                failures.pop(key, None)
        return Index(phase=phase, entries=entries, failures=failures)


def _entry(completion: Completion) -> Entry:
    ids = completion.token_ids
    state = hashlib.blake2b(array("q", ids).tobytes(), digest_size=16)
    state.update(repr(completion.finish_reason).encode())
    usage = completion.usage_completion
    return Entry(
        digest=state.digest(),
        length=len(ids),
        gap=None if usage is None else usage - len(ids),
        cached=completion.usage_cached,
        stuck=len(ids) >= 16 and ids.count(ids[0]) == len(ids),
    )


def agree(one: Entry, two: Entry) -> bool:
    """Same ids and finish reason, and neither alone counts tokens that it did not deliver."""
    if one.digest != two.digest:
        return False
    return one.gap == two.gap or not (one.gap or two.gap)
