"""Which blocks of work one launch does, in which order: pure, from the plan and the frozen prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from auditor.measure.phases import PhaseSpec
from auditor.model.completion import Prompt
from auditor.model.plan import AuditPlan, InvariancePlan
from auditor.record.lazy import FrozenPrompts, LazyLines

CERTIFICATION = "certification"
FINGERPRINT = "fingerprint"
ROUNDS_UNDER_LOAD = 3
"""Requests a level gets at least, as a multiple of the level, so that a steady phase exists."""


def certification(launch: str, arm: str, prompts: FrozenPrompts) -> tuple[PhaseSpec, PhaseSpec]:
    """The certification prompts twice at batch 1."""
    twice = prompts.of(CERTIFICATION)
    first, second = (
        PhaseSpec(
            id=f"certify/{launch}/pass{n}",
            stage="certify",
            launch=launch,
            arm=arm,
            corpus=CERTIFICATION,
            concurrency=1,
            pass_no=n,
            prompts=twice,
        )
        for n in (1, 2)
    )
    return first, second


def batch1(plan: AuditPlan, launch: str, arm: str, prompts: FrozenPrompts) -> Iterator[PhaseSpec]:
    """Stage 4, one phase a corpus."""
    for use in plan.agreement.corpora if plan.agreement else ():
        yield PhaseSpec(
            id=f"batch1/{launch}/{use.name}",
            stage="batch1",
            launch=launch,
            arm=arm,
            corpus=use.name,
            concurrency=1,
            prompts=prompts.of(use.name),
        )


def in_turn(plan: AuditPlan, prompts: FrozenPrompts) -> LazyLines[Prompt]:
    """The agreement prompts, one of each corpus in turn."""
    corpora = plan.agreement.corpora if plan.agreement else ()
    return prompts.of(*(use.name for use in corpora))


def load(
    plan: AuditPlan, invariance: InvariancePlan, launch: str, arm: str, prompts: FrozenPrompts
) -> Iterator[PhaseSpec]:
    """Stage 6: each level twice, then the same prompts once more at batch 1."""
    chosen = in_turn(plan, prompts)[: invariance.prompts]
    for level in invariance.levels:
        rounds = max(1, -(-ROUNDS_UNDER_LOAD * level // len(chosen))) if chosen else 0
        for run in (1, 2):
            yield PhaseSpec(
                id=f"load/{launch}/n{level}/run{run}",
                stage="load",
                launch=launch,
                arm=arm,
                corpus=None,
                concurrency=level,
                pass_no=run,
                prompts=chosen,
                rounds=rounds,
            )
    yield PhaseSpec(
        id=f"replay/{launch}",
        stage="replay",
        launch=launch,
        arm=arm,
        corpus=None,
        concurrency=1,
        prompts=chosen,
    )


def accuracy(plan: AuditPlan, launch: str, arm: str, prompts: FrozenPrompts) -> Iterator[PhaseSpec]:
    """Stage 7."""
    if plan.accuracy is None:
        return
    yield PhaseSpec(
        id=f"accuracy/{launch}/{plan.accuracy.label}",
        stage="accuracy",
        launch=launch,
        arm=arm,
        corpus=plan.accuracy.label,
        concurrency=plan.accuracy.concurrency,
        prompts=prompts.of(plan.accuracy.label),
    )


def self_draft(launch: str, arm: str, prompts: Sequence[Prompt]) -> PhaseSpec:
    """The prompts on which an arm diverged, once more where the target drafts for itself."""
    return PhaseSpec(
        id=f"self-draft/{launch}",
        stage="self-draft",
        launch=launch,
        arm=arm,
        corpus=None,
        concurrency=1,
        prompts=prompts,
    )


def calibration(plan: AuditPlan, launch: str, arm: str, prompts: FrozenPrompts) -> PhaseSpec:
    """Second pass with logprobs over a few reference prompts, on which rescoring is calibrated."""
    assert plan.forensics is not None
    return PhaseSpec(
        id=f"calibrate/{launch}",
        stage="calibrate",
        launch=launch,
        arm=arm,
        corpus=None,
        concurrency=1,
        prompts=in_turn(plan, prompts)[: plan.forensics.calibration_prompts],
        logprobs=1,
    )
