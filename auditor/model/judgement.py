"""What was concluded from the record. Computed by `judge/`, rendered by `report/`, recomputed by verify."""

from __future__ import annotations

from typing import Literal

from auditor.model.base import Interval, Model

DivergenceClass = Literal[
    "exact tie",
    "near tie",
    "unexplained",
    "post-stop leak",
    "length overrun",
    "short delivery",
    "degenerate",
    "stop policy",
    "unknown",
]
STRUCTURAL: tuple[DivergenceClass, ...] = (
    "post-stop leak",
    "length overrun",
    "short delivery",
    "stop policy",
)
EXPLAINED: tuple[DivergenceClass, ...] = ("exact tie", "near tie")

PairState = Literal["SAME STATE", "OTHER STATE", "INTERMEDIATE", "NOT COMPARABLE", "UNVERIFIED"]
Status = Literal["PASS", "FAIL", "UNCERTIFIED", "INCONCLUSIVE", "ERROR", "NOT RUN"]
VerdictName = Literal["PASS", "FAIL", "INVALID", "UNCERTIFIED", "INCONCLUSIVE", "ERROR"]
EXIT_CODES: dict[VerdictName, int] = {
    "PASS": 0,
    "FAIL": 1,
    "INVALID": 2,
    "UNCERTIFIED": 3,
    "INCONCLUSIVE": 4,
    "ERROR": 5,
}


class Proportion(Model, frozen=True, kw_only=True):
    """k of n with its intervals. `n` = 0 has no interval."""

    k: int
    n: int
    clopper_pearson95: Interval | None
    wilson95: Interval | None


class Repeatability(Model, frozen=True, kw_only=True):
    """A launch against itself: the certification prompts twice at batch 1."""

    launch: str
    agreement: Proportion
    disagreeing: tuple[str, ...]
    """Prompt ids."""


class SettingDiff(Model, frozen=True, kw_only=True):
    """One resolved setting that differs between two launches."""

    name: str
    reference: str | None
    other: str | None
    kind: Literal["allowed", "listed", "not comparable"]
    """allowed: the speculative configuration itself; listed: cannot change numerics by itself;
    not comparable: can change numerics."""


class FingerprintDiff(Model, frozen=True, kw_only=True):
    prompt: str
    values: int
    """float32 values compared."""
    differing: int
    max_abs: float | None
    """Largest |Δ logprob|, nats; None when a value is not finite or the lengths differ."""


class ChoiceDiff(Model, frozen=True, kw_only=True):
    """A kernel that two launches tuned differently."""

    kernel: str
    key: str
    reference: str | None
    other: str | None
    race_us: tuple[float, float] | None
    """The two winners' times on the reference launch, microseconds; None when not timed."""


class PairCertificate(Model, frozen=True, kw_only=True):
    """One comparison of launch states. Every attempt is kept."""

    reference: str
    other: str
    arm: str
    fingerprints: Literal["equal", "differ", "missing"]
    fingerprint_diffs: tuple[FingerprintDiff, ...]
    sprt_outcomes: str
    """`1` agreement, `0` disagreement, in the seeded order, up to the stopping prompt."""
    sprt_llr: float
    sprt_decision: Literal["SAME STATE", "OTHER STATE", "INTERMEDIATE", "NOT RUN"]
    agreement: Proportion
    """All certification prompts of pass 1, also those after the stop."""
    settings: tuple[SettingDiff, ...]
    choices: tuple[ChoiceDiff, ...]
    state: PairState
    why: str


class Hazard(Model, frozen=True, kw_only=True):
    """First divergences D over tokens exposed E; rate = D/E a token, Garwood 95% interval."""

    start: int
    end: int | None
    """Token indices, inclusive; None: no upper end."""
    divergences: int
    exposure: int
    rate: float | None
    interval95: Interval | None


class SurvivalPoint(Model, frozen=True, kw_only=True):
    token: int
    survival: float
    low: float
    high: float
    at_risk: int


class Agreement(Model, frozen=True, kw_only=True):
    """Byte-exact agreement at batch 1 of one arm with the reference, on one corpus (`all` pools)."""

    arm: str
    corpus: str
    planned: int
    errors: int
    agreement: Proportion
    control: Proportion | None
    """Reference against control on the same prompts; None for the control itself or without one."""
    mcnemar_exact: float | None
    tango95: Interval | None
    """Candidate minus control agreement; None without a control."""
    zero_bound: float | None
    """3/n when nothing disagreed: 'at most', never 'identical'. None otherwise."""
    hazard: tuple[Hazard, ...]
    survival: tuple[SurvivalPoint, ...]


class TokenMargin(Model, frozen=True, kw_only=True):
    """The two candidate tokens at a divergence as one server scores them."""

    launch: str
    reference_logprob: float | None
    other_logprob: float | None
    margin: float | None
    """reference_logprob - other_logprob, nats; None when unusable."""
    reference_rank: int | None
    other_rank: int | None
    reproduces: bool | None
    """Whether rescoring chose the token that this server had decoded; None when not scored."""


class Divergence(Model, frozen=True, kw_only=True):
    arm: str
    corpus: str
    prompt: str
    position: int
    """1-based; a strict prefix diverges at its length + 1."""
    reference_token: int | None
    """None: this side had ended."""
    other_token: int | None
    cls: DivergenceClass
    why: str
    notes: tuple[str, ...] = ()
    reference_score: TokenMargin | None = None
    other_score: TokenMargin | None = None
    drafter_free_flip: bool | None = None
    """True when the plain reference server, scoring the prefix as a batch, also prefers the other
    token: verify-shape numerics, not the head. None when not scored."""
    width_flip: bool | None = None
    """True when the target without a drafter, at k + 1 tokens a forward pass, also says the other token
    here. None when that was not measured, or the control is not usable (see WidthControl)."""
    self_draft: Literal["other", "reference", "third", "earlier"] | None = None
    """What the target says here when it drafts for itself: the other token, the reference's, a third, or it
    left the reference's path earlier. None when that was not measured."""


class WidthControl(Model, frozen=True, kw_only=True):
    """Does one candidate diverge more often than the target at k + 1 tokens a pass without any drafter?

    Pairs: prompts that were sampled for the control and that the candidate answered.
    """

    arm: str
    launch: str
    width: int
    candidate: Proportion
    """Prompts on which the candidate diverged."""
    control: Proportion
    """The same prompts: those with a token of the reference's completion that the control replaces."""
    candidate_only: int
    control_only: int
    p_more: float
    """Exact one-sided McNemar p of `the candidate diverges no more often`."""
    tokens: int
    """Tokens forced over these prompts."""
    replaced: int
    usable: bool
    """Whether the control keeps at least 90% of the forced tokens; else its flips excuse no divergence."""
    errors: int


class NoiseFloor(Model, frozen=True, kw_only=True):
    """Largest |Δ logprob| that the engine shows without a drafter, and how it was measured."""

    reference_control_max: float | None
    reference_control_n: int
    decode_rescore_max: float | None
    decode_rescore_n: int
    ulp: float | None
    """One unit in the last place of the served dtype at the logits' magnitude, in nats."""
    dtype: str | None
    floor: float | None
    """The bound in use; None when margins are not evidence."""


class Calibration(Model, frozen=True, kw_only=True):
    """Does rescoring reproduce what the reference itself decoded?"""

    bin_start: int
    bin_end: int | None
    reproduced: int
    n: int
    usable: bool


class Invariance(Model, frozen=True, kw_only=True):
    """One launch at one level against its own batch-1 completions."""

    arm: str
    level: int
    achieved: int | None
    held: bool
    """True when running >= level for at least 90% of the steady phase."""
    held_share: float | None = None
    """Part of the steady phase over which the level was held, the shorter of the two runs'; None where
    nothing was sampled."""
    self_agreement: Proportion
    """Run 1 and run 2 together: requests whose completion equals the batch-1 one."""
    distinct_mean: float | None
    """Mean number of distinct completions a prompt, over the level's requests and batch 1."""
    run_to_run: Proportion
    preemptions: int | None
    acceptance_length: float | None
    reference: Proportion | None
    """The reference's self-agreement at this level."""
    difference90: Interval | None
    """Candidate minus reference self-agreement, paired by prompt; 90% over all levels together."""
    errors: int


class Replay(Model, frozen=True, kw_only=True):
    """Batch-1 completions asked for again after the load."""

    arm: str
    agreement: Proportion
    differing: tuple[str, ...]


class ArmAccuracy(Model, frozen=True, kw_only=True):
    arm: str
    correct: int
    wrong: int
    no_answer: int
    truncated: int
    errors: int
    planned: int
    flexible_correct: int
    """By the flexible rule, for extractor sensitivity."""
    vllm_correct: int
    """By vLLM's own rule."""


class AccuracyTest(Model, frozen=True, kw_only=True, omit_defaults=True):
    """Paired equivalence of one candidate (or the control) with the reference. δ = candidate - reference."""

    arm: str
    both: int
    candidate_only: int
    reference_only: int
    neither: int
    missing: int
    n: int
    margin: float
    alpha: float
    estimate: float | None
    """None when no problem has both answers."""
    score_p_lower: float
    score_p_upper: float
    score_p: float
    exact_p_lower: float
    exact_p_upper: float
    exact_p: float
    ci90: Interval
    ci95: Interval
    newcombe90: Interval
    mcnemar_exact: float
    mcnemar_mid_p: float
    wald_se: float
    wald_p: float | None
    """None where the standard error is zero."""
    farrington_manning_p: float
    smallest_margin: float
    floor_margin: float
    power_at_margin: float | None
    by_margin: tuple[tuple[float, str], ...]
    """(margin, verdict) for 0.02, 0.03 and 0.05 and the plan's own."""
    verdict: str
    """equivalent | equivalent but different | not equivalent | inconclusive | void"""
    why: str
    suspect_golds: int = 0
    """Records of before December 2026 hold a 0 here that nothing computed. Never written, never shown."""


class Activity(Model, frozen=True, kw_only=True):
    """Speculation counters of one phase, from differences."""

    arm: str
    launch: str
    phase: str
    drafts: int | None
    draft_tokens: int | None
    accepted: int | None
    per_position: tuple[float, ...] | None
    """Acceptance rate by draft position."""
    acceptance_length: float | None
    """1 + accepted/drafts; None without drafts."""
    tokens_per_s: float | None
    status: Literal["ran", "never ran", "unknown", "restarted", "not speculative"]


class Finding(Model, frozen=True, kw_only=True):
    """A typed remark with its remedy."""

    code: str
    """Stable, for example `LAUNCH-DRAFT-INACTIVE`."""
    severity: Literal["error", "warning", "note"]
    seen: str
    expected: str
    remedy: str
    subject: str = ""
    """Arm, launch, phase or prompt it is about."""


class Gate(Model, frozen=True, kw_only=True):
    name: str
    """`certification`, `head-ran/<arm>`, `agreement/<arm>`, …"""
    status: Status
    figure: str
    """What was measured, counts first."""
    bound: str
    remedy: str
    """What to do next; empty on PASS."""


class Verdict(Model, frozen=True, kw_only=True):
    name: VerdictName
    exit_code: int
    reason: str
    """One sentence."""
    limits: tuple[str, ...]
    """What this verdict does not cover."""


class Judgement(Model, frozen=True, kw_only=True):
    repeatability: tuple[Repeatability, ...] = ()
    certificates: tuple[PairCertificate, ...] = ()
    activity: tuple[Activity, ...] = ()
    agreement: tuple[Agreement, ...] = ()
    divergences: tuple[Divergence, ...] = ()
    noise_floor: NoiseFloor | None = None
    calibration: tuple[Calibration, ...] = ()
    width_controls: tuple[WidthControl, ...] = ()
    invariance: tuple[Invariance, ...] = ()
    replay: tuple[Replay, ...] = ()
    arm_accuracy: tuple[ArmAccuracy, ...] = ()
    accuracy: tuple[AccuracyTest, ...] = ()
    findings: tuple[Finding, ...] = ()
    gates: tuple[Gate, ...]
    verdict: Verdict
