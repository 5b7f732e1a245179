"""The document of `audit launches`: the same flags launched several times, and the states that came out.

Folder of a study: as of an audit (model/record.py), with `study.json` (StudyPlan) beside plan.json, and
`launches.json` (LaunchStudy) and `launches.html` in place of audit.json and report.html.

Words
  configuration  the plain target, or the target with one draft: one set of flags
  arm            a configuration with cold caches, or with copies of the first plain launch's
  state          launches of one configuration that the protocol's rule for pairs puts together
"""

from __future__ import annotations

from typing import Literal

from auditor.model.base import Model
from auditor.model.judgement import Finding, PairState, Proportion, SettingDiff
from auditor.model.launch import Fingerprint, Launch
from auditor.model.phase import Phase
from auditor.model.plan import AuditPlan
from auditor.model.record import Environment, FileDigest, Identity, StageNote

STUDY_SCHEMA_VERSION = 1
PLAIN = "plain"
"""Name of the configuration without a draft."""

Caches = Literal["cold", "warm"]


class StudyArm(Model, frozen=True, kw_only=True):
    name: str
    """Name of the arm in the plan: `plain`, `plain-warm`, `eagle3`, `eagle3-warm`."""
    configuration: str
    """`plain`, or the draft's name."""
    caches: Caches
    """warm: a private copy of the caches of the first plain launch that was observed."""


class StudyPlan(Model, frozen=True, kw_only=True):
    """What `audit launches` asks beyond the AuditPlan; study.json."""

    count: int
    """Launches of each arm."""
    arms: tuple[StudyArm, ...]
    parallel: int = 1
    """Servers running at once, at most."""
    concurrency: int | None = None
    """Requests in flight of the run under load; None for none."""

    @property
    def planned(self) -> int:
        """Launches in all."""
        return self.count * len(self.arms)


class UnderLoad(Model, frozen=True, kw_only=True):
    """Certification prompts with several requests in flight, against the launch's own batch-1 answers."""

    level: int
    achieved: int | None
    """Median of what the engine reported as running; None without samples."""
    held_fraction: float | None
    """Share of the samples at or above the level."""
    agreement: Proportion


class Observation(Model, frozen=True, kw_only=True):
    """One launch and what it showed."""

    launch: str
    arm: str
    configuration: str
    caches: Caches
    observed: bool
    """It answered the certification prompts twice."""
    why: str = ""
    """Why it was not observed, or has no state; empty otherwise."""
    boot_s: float | None
    """From start to a served canary, seconds; None when it never got there."""
    fingerprint: str | None = None
    """Digest; None where none could be taken."""
    print_group: int | None = None
    """Launches of the study with equal fingerprints share a number, from 1 in order of start."""
    output_group: int | None = None
    """The same for completions, by the sequential test alone."""
    repeatability: Proportion
    """Pass 2 equal to pass 1, certification prompts at batch 1."""
    disagreeing: tuple[str, ...] = ()
    """Ids of the prompts that it answered differently the second time."""
    state: str | None = None
    """Name of its state; None without one."""
    under_load: UnderLoad | None = None
    drafts: int | None = None
    """Drafts during the certification passes; None where the server has no such counter."""
    acceptance_length: float | None = None
    """1 + accepted/drafts of those passes; None without drafts."""


class PairComparison(Model, frozen=True, kw_only=True):
    """Two observed launches on the certification prompts."""

    one: str
    other: str
    same_flags: bool
    """Both of one configuration: then the same state has the same bits."""
    fingerprints: Literal["equal", "differ", "missing"]
    prints_differing: int
    """Fingerprint prompts with any differing bit."""
    max_abs: float | None
    """Largest |Δ logprob| over the fingerprint, nats; None where nothing could be compared."""
    agreement: Proportion
    """Equal completions in pass 1."""
    sprt_decision: Literal["SAME STATE", "OTHER STATE", "INTERMEDIATE", "NOT RUN"]
    state: PairState
    why: str
    settings: tuple[SettingDiff, ...] = ()
    """Resolved settings that differ, those of speculation itself left out."""


class Spread(Model, frozen=True, kw_only=True):
    """Agreement over several pairs: the least and the greatest, because pairs share launches and no
    interval holds for their sum."""

    pairs: int
    least: Proportion
    greatest: Proportion


class State(Model, frozen=True, kw_only=True):
    name: str
    """`A`, `B`, … in order of first appearance, over all configurations."""
    configuration: str
    launches: tuple[str, ...]
    fingerprint: str | None
    """The common digest; None where they differ or none was taken."""
    inside: Spread | None
    """Pairs inside the state; None for a state of one launch."""
    same_as: tuple[str, ...] = ()
    """States of other configurations whose launches are all in the same state as all of these, by the rule
    for candidates."""


class Contrast(Model, frozen=True, kw_only=True):
    """Two states, pair by pair of their launches."""

    one: str
    other: str
    fingerprints: Literal["equal", "differ", "missing", "mixed"]
    across: Spread


class StateCount(Model, frozen=True, kw_only=True):
    state: str
    share: Proportion
    """k of the arm's observed launches. A single launch has no interval: it says nothing of the share."""


class ArmStates(Model, frozen=True, kw_only=True):
    arm: str
    configuration: str
    caches: Caches
    planned: int
    observed: int
    states: tuple[StateCount, ...]
    """Most frequent first."""
    without_state: int
    """Observed launches that do not repeat themselves."""
    same_pairs: int
    """Pairs of the arm's observed launches in one state, of `pairs`."""
    pairs: int


class StateChoice(Model, frozen=True, kw_only=True):
    """What the launches of one state chose for a kernel, most frequent first."""

    state: str
    chosen: tuple[str, ...]


class KernelSplit(Model, frozen=True, kw_only=True):
    """A kernel that was tuned differently in launches of one configuration."""

    configuration: str
    kernel: str
    key: str
    source: str
    tells: Literal["every state", "some states", "none"]
    """Which states its choice tells apart; `none`: it varies inside a state, so it cannot be the reason."""
    choices: tuple[StateChoice, ...]
    race_us: tuple[float, float] | None
    """Times of the two winners that were closest, microseconds, measured on `timed_on`; None if not timed."""
    timed_on: str | None = None


class StudyResult(Model, frozen=True, kw_only=True):
    """What follows from the record. Computed by judge/states.py."""

    observations: tuple[Observation, ...]
    """In order of start; first tries of a start that was tried again are left out."""
    arms: tuple[ArmStates, ...]
    states: tuple[State, ...]
    contrasts: tuple[Contrast, ...]
    pairs: tuple[PairComparison, ...]
    kernels: tuple[KernelSplit, ...]
    """Those that tell the states apart first, the closest race first."""


class LaunchStudy(Model, frozen=True, kw_only=True):
    """launches.json"""

    schema_version: int = STUDY_SCHEMA_VERSION
    status: Literal["complete", "interrupted", "error"]
    error: str | None = None
    date: str
    """UTC, ISO 8601, seconds."""
    command: tuple[str, ...]
    study: StudyPlan
    plan: AuditPlan
    environment: Environment
    identities: tuple[Identity, ...]
    launches: tuple[Launch, ...]
    fingerprints: tuple[Fingerprint, ...]
    phases: tuple[Phase, ...]
    findings: tuple[Finding, ...]
    notes: tuple[StageNote, ...]
    files: tuple[FileDigest, ...]
    """The raw files as they were when this document was written."""
    result: StudyResult
