"""What an audit is asked to do, fully resolved: written to the record before any server starts."""

from __future__ import annotations

import json
from typing import Literal

from auditor.model.base import EnvVar, Model

Role = Literal["reference", "control", "candidate"]
Pin = Literal["none", "snapshot", "force"]
GateName = Literal["certification", "head-ran", "agreement", "invariance", "accuracy"]
Control = Literal["width", "self-draft"]
GATES: tuple[GateName, ...] = ("certification", "head-ran", "agreement", "invariance", "accuracy")


class Draft(Model, frozen=True, kw_only=True):
    """What speculates for the target."""

    name: str
    """Label of the candidate arm, unique in the plan, for example `eagle3` or `ngram`."""
    method: str
    """vLLM's speculative method: eagle3, mtp, ngram, suffix, draft_model, dflash, …"""
    path: str | None = None
    """Head directory or draft model; None where the method needs no weights (mtp, ngram, suffix)."""
    speculative_config: str = "{}"
    """The JSON object given to the engine's --speculative-config, keys sorted."""

    @property
    def tokens(self) -> int | None:
        """Draft tokens a step, k; None where the configuration does not say."""
        count = json.loads(self.speculative_config).get("num_speculative_tokens")
        return count if isinstance(count, int) else None


class Arm(Model, frozen=True, kw_only=True):
    """One serving configuration. Arms may differ in the speculative configuration only."""

    name: str
    role: Role
    draft: Draft | None = None
    """None for reference and control."""
    url: str | None = None
    """Base URL of a server that somebody else runs (attach mode); None where the audit launches it."""
    extra_args: tuple[str, ...] = ()
    """Engine flags of this arm alone. Listed as a difference between arms; for negative controls."""
    target: str | None = None
    """Another target directory for this arm alone (negative controls); None for the plan's target."""


class EnginePlan(Model, frozen=True, kw_only=True):
    """How servers are started. Unused fields keep their defaults in attach mode."""

    kind: str = "vllm"
    python: str = ""
    """Interpreter that has the engine; empty means the auditor's own."""
    args: tuple[str, ...] = ()
    """Flags that every arm gets, verbatim."""
    env: tuple[EnvVar, ...] = ()
    """Environment variables that every arm gets on top of the auditor's own environment."""
    devices: tuple[str, ...] = ()
    """Device ids for placement (CUDA_VISIBLE_DEVICES); empty means the CPU or all devices as they are."""
    one_at_a_time: bool = False
    """True when the servers do not fit the devices together."""
    start_timeout_s: float = 1800.0
    """Longest wait for /health while the log still advances."""
    silent_timeout_s: float = 600.0
    """Longest wait for /health without any new line in the log."""
    request_timeout_s: float = 600.0
    """Deadline of one request; longer caps get proportionally more."""
    trust_remote_code: bool = False
    api_key_env: str | None = None
    """Name (never the value) of the variable that holds the bearer token for attached servers."""


class CorpusUse(Model, frozen=True, kw_only=True):
    """A corpus and how much of it is used."""

    name: str
    path: str | None = None
    """Local file (jsonl, jsonl.gz, parquet); None means the packaged file or the hub."""
    limit: int | None = None
    """First `limit` problems of the seeded order; None means all."""
    max_tokens: int = 4096
    """Cap on generated tokens a request."""


class CertificationPlan(Model, frozen=True, kw_only=True):
    """Stage 3: is the control in the reference's launch state?"""

    prompts: int = 64
    """Truncation of the sequential test: at most so many certification prompts."""
    max_tokens: int = 128
    p0: float = 0.5
    p1: float = 0.95
    alpha: float = 0.001
    beta: float = 0.001
    attempts: int = 3
    """Launches allowed for the control, and for each candidate, the first included."""


class AgreementPlan(Model, frozen=True, kw_only=True):
    """Stage 4: byte-exact agreement at batch 1."""

    corpora: tuple[CorpusUse, ...] = ()
    min_agreement: float | None = None
    """Lower 95% bound that each corpus must reach, as a fraction; None switches this bound off."""


class ForensicsPlan(Model, frozen=True, kw_only=True):
    """Stage 5: the second pass over every divergence."""

    max_divergences: int = 200
    """Rescored divergences per pair; further ones are counted as unknown with that reason."""
    calibration_prompts: int = 8
    """Reference completions on which rescoring is calibrated."""
    top_logprobs: int = 20
    controls: tuple[Control, ...] = ()
    """Controls that separate head from engine, run where a candidate diverged. `width`: the target without a
    drafter at k + 1 tokens a forward pass; `self-draft`: the target drafting for itself."""
    control_prompts: int = 64
    """Reference completions that the width control is forced along, besides the diverged ones."""


class InvariancePlan(Model, frozen=True, kw_only=True):
    """Stage 6: the same prompts under load."""

    levels: tuple[int, ...] = (2, 8, 32)
    """Requests in flight."""
    prompts: int = 32
    """How many of the agreement prompts are used, spread evenly over the corpora."""
    max_tokens: int | None = None
    """Always None in format 1: each corpus's own cap, so that batch-1 completions are the baseline."""


class AccuracyPlan(Model, frozen=True, kw_only=True):
    """Stage 7: paired task accuracy."""

    corpus: CorpusUse
    shots: int = 8
    """Worked examples before each question, from the train split."""
    concurrency: int = 32
    margin: float = 0.05
    """Equivalence margin on the accuracy difference, as a fraction."""
    alpha: float = 0.05
    floor: float = 0.05
    """Reference accuracy below this is VOID (fraction)."""
    ceiling: float = 0.99
    """Reference accuracy above this is VOID (fraction)."""

    @property
    def label(self) -> str:
        """Corpus label of the accuracy prompts, `gsm8k+8shot`: the agreement prompts of the same corpus
        have no worked examples, hence other ids."""
        return f"{self.corpus.name}+{self.shots}shot"


class BaselinePlan(Model, frozen=True, kw_only=True):
    """An earlier audit that this one is compared with: regressions become the gates `baseline/<arm>`."""

    path: str
    """Its run folder, read before the first server starts; what is kept of it is baseline.json."""
    max_acceptance_drop: float = 0.05
    """Largest relative drop of the acceptance length that is no regression, a fraction."""


class AuditPlan(Model, frozen=True, kw_only=True):
    """The whole audit. Empty `gates` is refused: no checks is not a pass."""

    name: str
    target: str
    """Target model: a directory, or a hub id. Attach mode: whatever the servers report."""
    target_kind: str = "trained"
    """`trained`, `toy` or `random-weight`: printed wherever results appear."""
    arms: tuple[Arm, ...]
    engine: EnginePlan
    pin: Pin = "snapshot"
    seed: int = 0
    certification: CertificationPlan = CertificationPlan()
    fingerprint_prompts: int = 8
    agreement: AgreementPlan | None = None
    forensics: ForensicsPlan | None = None
    invariance: InvariancePlan | None = None
    accuracy: AccuracyPlan | None = None
    gates: tuple[GateName, ...] = GATES
    min_acceptance_length: float = 1.05
    """Bound of the head-ran gate, tokens per step."""
    baseline: BaselinePlan | None = None

    def arm(self, name: str) -> Arm:
        """The arm called `name`. Raises KeyError."""
        for arm in self.arms:
            if arm.name == name:
                return arm
        raise KeyError(name)

    @property
    def candidates(self) -> tuple[Arm, ...]:
        return tuple(a for a in self.arms if a.role == "candidate")

    @property
    def attached(self) -> bool:
        """True when the servers are somebody else's."""
        return any(a.url for a in self.arms)
