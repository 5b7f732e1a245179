"""One run boiled down to what another run is compared with, and what the comparison found.

`baseline.json` of a run folder is a Baseline: with it, `audit verify` recomputes the gates `baseline/<arm>`
from the folder alone. `audit diff --json` prints a RunDiff.

Words
  before, after   the two runs: the last release, and this head
  marks           one character a prompt, in the order of the corpus' ids
"""

from __future__ import annotations

from typing import Literal

from auditor.model.base import Interval, Model
from auditor.model.judgement import DivergenceClass, PairState, Proportion, Status, VerdictName
from auditor.model.launch import Launch, Setting
from auditor.model.plan import Role

BASELINE_SCHEMA_VERSION = 1


class IdentityDigest(Model, frozen=True, kw_only=True):
    """An Identity without its list of files."""

    name: str
    source: str
    revision: str | None = None
    digest: str | None
    """None when the files could not be read (attach mode)."""


class CorpusPrompts(Model, frozen=True, kw_only=True):
    """The prompts of one corpus label."""

    corpus: str
    ids: tuple[str, ...]
    digests: tuple[str, ...]
    """Per prompt 64 bits of the SHA-256 over token ids, cap and reference answer: equal ones, one prompt."""


class Marks(Model, frozen=True, kw_only=True):
    """What one arm did with each prompt of a corpus.

    Agreement: `1` as the reference, `0` otherwise, `-` no completion on either side.
    Grades: `c` correct, `w` wrong, `n` no answer, `t` truncated, `-` missing.
    """

    arm: str
    corpus: str
    marks: str


class LoadMarks(Model, frozen=True, kw_only=True):
    """One arm at one level of load against its own batch-1 completions."""

    arm: str
    level: int
    """Requests in flight, as asked."""
    held: bool
    prompts: tuple[str, ...]
    marks: str
    """Per prompt: `1` when every request at this level equalled the batch-1 completion, `0` otherwise."""


class AcceptanceWindow(Model, frozen=True, kw_only=True):
    """Speculation counters of one kind of phase, its phases pooled."""

    arm: str
    kind: str
    """`certify`, `batch1/<corpus>`, `load/n<level>`, `replay`, `accuracy/<corpus>`."""
    drafts: int | None
    accepted: int | None
    """Both None when the counters could not be read or fell in one of the phases."""
    work: str
    """Digest of the prompts answered: figures of other prompts are not comparable."""


class DivergenceMark(Model, frozen=True, kw_only=True):
    arm: str
    prompt: str
    cls: DivergenceClass
    drafter_free: bool
    """The plain reference, scoring the prefix as a batch, flips as well: not the head's doing."""


class ArmState(Model, frozen=True, kw_only=True):
    """The launch of an arm that counts."""

    arm: str
    role: Role
    attempts: int
    """Launches of this arm that came up."""
    state: PairState | None
    """Against the reference; None for the reference itself and where nothing was compared."""
    fingerprint: str | None
    launch: Launch
    """Without the parts that no comparison reads: log, timings, what was read back."""


class GateMark(Model, frozen=True, kw_only=True):
    name: str
    status: Status


class Snapshot(Model, frozen=True, kw_only=True):
    """One run. What only audit.json knows is None or empty while the run is still being judged."""

    name: str
    run: str | None = None
    """Base name of the run folder."""
    date: str | None = None
    audit_sha256: str | None = None
    """SHA-256 of the run's audit.json."""
    status: Literal["running", "complete", "interrupted", "error"]
    verdict: VerdictName | None = None
    target_kind: str
    identities: tuple[IdentityDigest, ...] = ()
    plan: tuple[Setting, ...]
    """Settings of the plan by dotted name, values as JSON; paths are left out, identities stand for them."""
    host: tuple[Setting, ...] = ()
    """Devices, processor and package versions."""
    scored: bool
    """The plan asked for the second pass, which tells ties from faults."""
    margin: float | None
    """Of the accuracy test; None when accuracy was not asked for."""
    arms: tuple[ArmState, ...]
    prompts: tuple[CorpusPrompts, ...]
    agreement: tuple[Marks, ...]
    grades: tuple[Marks, ...]
    load: tuple[LoadMarks, ...]
    acceptance: tuple[AcceptanceWindow, ...]
    divergences: tuple[DivergenceMark, ...]
    gates: tuple[GateMark, ...] = ()


class Baseline(Model, frozen=True, kw_only=True):
    """baseline.json: the run that this one is compared with, as it was when this one began."""

    schema_version: int = BASELINE_SCHEMA_VERSION
    before: Snapshot
    identities: tuple[IdentityDigest, ...]
    """Of the run that keeps this file: judging sees no other list of them."""


class Condition(Model, frozen=True, kw_only=True):
    """Something that is not alike in both runs."""

    what: str
    before: str | None
    after: str | None
    bearing: Literal["blocks", "confounds", "subject", "listed"]
    """blocks: figures of both runs do not belong together; confounds: it may be the reason of a change;
    subject: the draft itself; listed: no bearing known."""


class Change(Model, frozen=True, kw_only=True):
    """A share of prompts in both runs, paired by prompt where both asked the same."""

    what: Literal["agreement", "accuracy", "self-agreement"]
    arm: str
    before_arm: str
    subject: str
    """Corpus, `all` for the corpora together, or `n<level>`."""
    paired: bool
    note: str = ""
    """Why unpaired, or which prompts are left out."""
    before: Proportion
    after: Proportion
    gained: int | None = None
    """Prompts that only the run after has right; None when unpaired."""
    lost: int | None = None
    difference: float | None
    """After minus before, a fraction; None without a prompt on either side."""
    interval95: Interval | None
    """Tango's score interval of the paired difference; Mee's of independent shares when unpaired."""
    p: float | None = None
    """Exact McNemar, two-sided; None when unpaired."""
    p_lower: float | None = None
    """Exact McNemar of 'not lower', one-sided; None when unpaired."""
    p_holm: float | None = None
    """`p` by Holm's method, over the tests of candidates or over those of reference and control."""


class NonInferiority(Model, frozen=True, kw_only=True):
    """Is the accuracy after lower by less than the margin? Missing answers count against it."""

    arm: str
    corpus: str
    n: int
    missing: int
    margin: float
    interval90: Interval
    p_score: float
    p_exact: float
    floor_margin: float
    """The smallest margin that as many discordant pairs, evenly split, could show."""
    result: Literal["not inferior", "inferior", "undecided"]
    why: str


class AcceptanceChange(Model, frozen=True, kw_only=True):
    arm: str
    kind: str
    before: float | None
    """Tokens a step, 1 + accepted/drafts; None when not measured or nothing was drafted."""
    after: float | None
    relative: float | None
    """(after − before)/before; None when either is missing."""
    comparable: bool
    note: str = ""


class ClassChange(Model, frozen=True, kw_only=True):
    """Divergences of one class on the prompts that both runs asked."""

    arm: str
    cls: DivergenceClass
    before: int
    after: int
    new_fault: bool
    """A structural, degenerate or unexplained class that the run before did not have."""
    note: str = ""


class GateChange(Model, frozen=True, kw_only=True):
    name: str
    before: Status | None
    """None: that run did not have this gate."""
    after: Status | None


class StateChange(Model, frozen=True, kw_only=True):
    """An arm's launch in both runs."""

    arm: str
    before_arm: str
    role: Role
    before_state: PairState | None
    after_state: PairState | None
    before_attempts: int
    after_attempts: int
    fingerprints: Literal["equal", "differ", "missing"]


class ArmDiff(Model, frozen=True, kw_only=True):
    """What the rule says of one candidate."""

    arm: str
    before_arm: str | None
    """None: the run before has no counterpart."""
    regressions: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    """Both runs measured it, and nothing can be said."""
    missing: tuple[str, ...] = ()
    """The run after measured it, the one before did not."""
    compared: tuple[str, ...] = ()
    """What was compared and found no worse, counts first."""


class RunLabel(Model, frozen=True, kw_only=True):
    name: str
    run: str | None
    date: str | None
    verdict: VerdictName | None
    status: Literal["running", "complete", "interrupted", "error"]
    audit_sha256: str | None
    target_kind: str


DiffOutcome = Literal["no regression", "regression", "inconclusive", "not comparable"]
DIFF_EXIT_CODES: dict[DiffOutcome, int] = {
    "no regression": 0,
    "regression": 1,
    "inconclusive": 4,
    "not comparable": 4,
}


class RunDiff(Model, frozen=True, kw_only=True):
    """Two runs side by side."""

    before: RunLabel
    after: RunLabel
    max_acceptance_drop: float
    """Largest relative drop of the acceptance length that is no regression, a fraction."""
    outcome: DiffOutcome
    exit_code: int
    reason: str
    """One sentence."""
    conditions: tuple[Condition, ...]
    states: tuple[StateChange, ...]
    arms: tuple[ArmDiff, ...]
    changes: tuple[Change, ...]
    accuracy: tuple[NonInferiority, ...]
    acceptance: tuple[AcceptanceChange, ...]
    classes: tuple[ClassChange, ...]
    gates: tuple[GateChange, ...]
    tests: int
    """Paired tests among `changes`."""
    beyond_chance: tuple[str, ...]
    not_compared: tuple[str, ...]
