"""The record of one run: an append-only journal while it runs, one closed document when it is over.

Folder of a run
  plan.json           the resolved AuditPlan, written first
  prompts.jsonl       every Prompt, written before the first server starts
  baseline.json       Baseline, only with --baseline; written before the first server starts
  journal.jsonl       one Event a line, append-only
  completions.jsonl   one Answer a line, append-only
  launches/<id>/      log, command, caches of one launch
  audit.json          AuditRecord, written by rename when the run is over (or was interrupted)
  report.html

Format history
  1  first version
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

from auditor.model.base import EnvVar, Model
from auditor.model.baseline import Baseline
from auditor.model.completion import Answer, ForcedPath, Prompt, Score
from auditor.model.judgement import Finding, Judgement
from auditor.model.launch import Fingerprint, Launch
from auditor.model.phase import Phase
from auditor.model.plan import AuditPlan

SCHEMA_VERSION = 1


class FileDigest(Model, frozen=True, kw_only=True):
    path: str
    size: int
    sha256: str


class Identity(Model, frozen=True, kw_only=True):
    """What was audited, byte for byte."""

    name: str
    """`target`, `draft:<name>`, `corpus:<name>`, `tokenizer`"""
    source: str
    """Folder or file as the user gave it (base name only), hub id, or `packaged`."""
    revision: str | None = None
    files: tuple[FileDigest, ...] = ()
    digest: str | None
    """sha256 over the sorted file digests; None when the files could not be read (attach mode)."""
    licence: str | None = None


class Environment(Model, frozen=True, kw_only=True):
    auditor_version: str
    python: str
    platform: str
    cpu: str
    cpu_count: int
    memory_gib: float
    devices: tuple[str, ...]
    """Accelerators with driver and memory; empty on a CPU host."""
    packages: tuple[EnvVar, ...]
    """Versions of auditor dependencies and of the engine's torch, vllm, triton, transformers."""
    git_commit: str | None = None


class StageNote(Model, frozen=True, kw_only=True):
    """A step of the run that is no phase of measuring: `preflight`, `fingerprint`, `stop`, …"""

    what: str
    subject: str
    started_s: float
    ended_s: float


class Resumed(Model, frozen=True, kw_only=True):
    """The run went on in a new process; `offset_s` continues the clock of the record."""

    offset_s: float
    note: str


Record = Launch | Phase | Fingerprint | Score | ForcedPath | Finding | StageNote | Resumed


class Event(Model, frozen=True, kw_only=True):
    """One journal line. Exactly one of the fields is set."""

    launch: Launch | None = None
    phase: Phase | None = None
    fingerprint: Fingerprint | None = None
    score: Score | None = None
    forced: ForcedPath | None = None
    finding: Finding | None = None
    """Findings of preflight and of the run itself (not of judging)."""
    note: StageNote | None = None
    resumed: Resumed | None = None


class AuditRecord(Model, frozen=True, kw_only=True):
    """audit.json"""

    schema_version: int = SCHEMA_VERSION
    status: Literal["complete", "interrupted", "error"]
    error: str | None = None
    date: str
    """UTC, ISO 8601, seconds."""
    command: tuple[str, ...]
    """Command line with secrets redacted and paths reduced to their base names where outside the run."""
    plan: AuditPlan
    environment: Environment
    identities: tuple[Identity, ...]
    launches: tuple[Launch, ...]
    fingerprints: tuple[Fingerprint, ...]
    phases: tuple[Phase, ...]
    scores: tuple[Score, ...]
    forced: tuple[ForcedPath, ...] = ()
    findings: tuple[Finding, ...]
    notes: tuple[StageNote, ...]
    resumed: tuple[Resumed, ...]
    files: tuple[FileDigest, ...]
    """The raw files as they were when this document was written: prompts.jsonl, completions.jsonl,
    journal.jsonl, plan.json, and baseline.json where there is one."""
    judgement: Judgement


class Evidence(Protocol):
    """All that judging may look at. Implemented by the record store (from disk) and by tests (in memory)."""

    @property
    def plan(self) -> AuditPlan: ...
    @property
    def status(self) -> Literal["running", "complete", "interrupted", "error"]: ...
    @property
    def error(self) -> str | None: ...
    @property
    def launches(self) -> Sequence[Launch]:
        """Last state of each launch, in order of start."""
        ...

    @property
    def phases(self) -> Sequence[Phase]:
        """Last state of each phase, in order of start."""
        ...

    @property
    def fingerprints(self) -> Sequence[Fingerprint]: ...
    @property
    def scores(self) -> Sequence[Score]: ...
    @property
    def forced(self) -> Sequence[ForcedPath]: ...
    @property
    def findings(self) -> Sequence[Finding]: ...
    @property
    def baseline(self) -> Baseline | None:
        """What the plan's baseline showed; None without one."""
        ...

    def prompts(self, corpus: str | None = None) -> Sequence[Prompt]: ...
    def answers(self, phase: str) -> Iterator[Answer]:
        """Answers of one phase in the order recorded. May read lazily from disk."""
        ...
