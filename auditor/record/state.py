"""Folding a journal into the last state of everything it mentions."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from auditor.errors import RecordError
from auditor.model.completion import ForcedPath, Score
from auditor.model.judgement import Finding
from auditor.model.launch import Fingerprint, Launch
from auditor.model.phase import Phase
from auditor.model.record import Event, Resumed, StageNote
from auditor.record.lines import read_lines

T = TypeVar("T")
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises on bytes that the auditor did not write; nesting without end is among them."""


class JournalState:
    """Launches and phases by id in the order of their first line, each with its last state."""

    def __init__(self) -> None:
        self.launches: dict[str, Launch] = {}
        self.phases: dict[str, Phase] = {}
        self.fingerprints: list[Fingerprint] = []
        self.scores: list[Score] = []
        self.forced: dict[tuple[str, str], ForcedPath] = {}
        self.findings: list[Finding] = []
        self.notes: list[StageNote] = []
        self.resumed: list[Resumed] = []
        self._failed_scores: dict[tuple[str, str, str, int], Score] = {}
        self.last_s = 0.0
        """Latest moment mentioned, seconds."""

    def apply(self, event: Event) -> None:
        if event.launch is not None:
            self.launches[event.launch.id] = event.launch
            self._saw(event.launch.started_s, event.launch.ended_s)
            if event.launch.ready_s is not None:
                self._saw(event.launch.started_s + event.launch.ready_s)
        if event.phase is not None:
            self.phases[event.phase.id] = event.phase
            self._saw(event.phase.started_s, event.phase.ended_s)
        if event.fingerprint is not None:
            self.fingerprints.append(event.fingerprint)
        if event.score is not None:
            self._add_score(event.score)
        if event.forced is not None:
            # one that failed gives way to a later one
            self.forced[event.forced.launch, event.forced.prompt] = event.forced
        if event.finding is not None:
            self.findings.append(event.finding)
        if event.note is not None:
            self.notes.append(event.note)
            self._saw(event.note.ended_s)
        if event.resumed is not None:
            self.resumed.append(event.resumed)
            self._saw(event.resumed.offset_s)

    def _add_score(self, score: Score) -> None:
        """A score that failed gives way to a later one of the same position; it stays in the file."""
        key = (score.launch, score.pair_arm, score.prompt, score.position)
        if (failed := self._failed_scores.pop(key, None)) is not None:
            self.scores.remove(failed)
        if score.error is not None:
            self._failed_scores[key] = score
        self.scores.append(score)

    def _saw(self, *moments: float | None) -> None:
        self.last_s = max(self.last_s, *(m for m in moments if m is not None))


def fold_journal(path: Path) -> JournalState:
    """The state after all whole lines. Raises RecordError naming the line and the JSON path."""
    state = JournalState()
    decoder = msgspec.json.Decoder(Event)
    for number, (_, line) in enumerate(read_lines(path), 1):
        state.apply(decode_line(line, decoder, path.name, number))
    return state


def decode_line(line: bytes, kind: type[T] | msgspec.json.Decoder[T], name: str, number: int) -> T:
    """One line as `kind`. Raises RecordError naming file, line and JSON path."""
    try:
        return (
            kind.decode(line)
            if isinstance(kind, msgspec.json.Decoder)
            else msgspec.json.decode(line, type=kind)
        )
    except UNREADABLE as err:
        raise RecordError(
            f"Line {number} of {name} is damaged: {err}",
            expected="a line as the auditor wrote it",
            todo="restore the file from a copy",
        ) from err
