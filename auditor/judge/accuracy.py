"""Stage 7: grades every answer, pairs the arms by problem, and tests equivalence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from auditor.judge.grading import AnswerStatus, grade
from auditor.judge.shares import as_interval
from auditor.model.completion import Completion
from auditor.model.judgement import AccuracyTest, ArmAccuracy
from auditor.model.phase import Phase
from auditor.model.plan import AccuracyPlan
from auditor.model.record import Evidence
from auditor.stats.equivalence import PairedEquivalence, assess
from auditor.stats.power import equivalence_power
from auditor.stats.table import MissingAnswers, PairedTable

MARGINS = (0.02, 0.03, 0.05)
"""Always reported, beside the plan's own."""
EXTRACTOR_GAP = 0.1
"""Difference between strict and flexible accuracy above which the extractor decides the figure."""


class Mark(NamedTuple):
    """What a grade says by the three rules, without what was extracted: few exist, however many answers."""

    status: AnswerStatus
    flexible_correct: bool
    vllm_correct: bool


class Graded(msgspec.Struct, frozen=True, kw_only=True):
    """One arm's graded answers. A planned problem without an entry in `grades` has no answer."""

    arm: str
    phase: Phase
    grades: Mapping[str, Mark]
    prompts: tuple[str, ...]
    """Planned problems."""


def grade_phase(evidence: Evidence, phase: Phase) -> Graded:
    """Grades the completions of one accuracy phase as they stream by; texts are not kept."""
    assert phase.corpus is not None
    golds = {p.id: (p.id, p.gold) for p in evidence.prompts(phase.corpus)}
    whole = len(golds) == phase.planned
    grades: dict[str, Mark] = {}
    marks: dict[Mark, Mark] = {}
    seen: dict[str, None] = {}
    for answer in evidence.answers(phase.id):
        # the id as the prompts have it: one string for both
        prompt, gold = golds.get(answer.prompt, (answer.prompt, None))
        if not whole:
            seen[prompt] = None
        if isinstance(answer, Completion) and gold is not None:
            found = grade(answer.text, gold, finish_reason=answer.finish_reason)
            mark = Mark(found.status, found.flexible_correct, found.vllm_correct)
            grades[prompt] = marks.setdefault(mark, mark)
    planned = tuple(golds) if whole else tuple(seen)
    return Graded(arm=phase.arm, phase=phase, grades=grades, prompts=planned)


def arm_accuracy(graded: Graded) -> ArmAccuracy:
    """Counts by status; what never arrived is an error, not a wrong answer."""
    counts = {status: 0 for status in ("correct", "wrong", "no-answer", "truncated", "error")}
    for found in graded.grades.values():
        counts[found.status] += 1
    planned = max(graded.phase.planned, len(graded.prompts))
    return ArmAccuracy(
        arm=graded.arm,
        correct=counts["correct"],
        wrong=counts["wrong"],
        no_answer=counts["no-answer"],
        truncated=counts["truncated"],
        errors=planned - len(graded.grades) + counts["error"],
        planned=planned,
        flexible_correct=sum(g.flexible_correct for g in graded.grades.values()),
        vllm_correct=sum(g.vllm_correct for g in graded.grades.values()),
    )


def extractor_sensitive(counts: ArmAccuracy) -> bool:
    """Whether strict and flexible accuracy are so far apart that the rule of extraction decides."""
    answered = counts.planned - counts.errors
    return answered > 0 and abs(counts.flexible_correct - counts.correct) > EXTRACTOR_GAP * answered


def paired_test(reference: Graded, other: Graded, plan: AccuracyPlan) -> AccuracyTest | None:
    """The paired test of one arm; None where nothing was planned on either."""
    table, missing = pair(reference, other)
    if table.n + missing.total == 0:
        return None
    found = assess(table, plan.margin, plan.alpha, missing=missing, band=(plan.floor, plan.ceiling))
    return _record(other.arm, table, found, plan, missing)


def pair(reference: Graded, other: Graded) -> tuple[PairedTable, MissingAnswers]:
    """The two-by-two table of problems that both arms answered, and what is missing."""
    counts: dict[tuple[bool | None, bool | None], int] = {}
    prompts = dict.fromkeys((*reference.prompts, *other.prompts))
    for prompt in prompts:
        key = _right(reference.grades.get(prompt)), _right(other.grades.get(prompt))
        counts[key] = counts.get(key, 0) + 1
    # Problems that neither arm was asked, because both phases ended early.
    unseen = max(reference.phase.planned, other.phase.planned) - len(prompts)
    table = PairedTable(
        both=counts.get((True, True), 0),
        candidate_only=counts.get((False, True), 0),
        reference_only=counts.get((True, False), 0),
        neither=counts.get((False, False), 0),
    )
    missing = MissingAnswers(
        candidate_when_reference_right=counts.get((True, None), 0),
        candidate_when_reference_wrong=counts.get((False, None), 0),
        reference_when_candidate_right=counts.get((None, True), 0),
        reference_when_candidate_wrong=counts.get((None, False), 0),
        both=counts.get((None, None), 0) + max(0, unseen),
    )
    return table, missing


def _right(found: Mark | None) -> bool | None:
    return None if found is None or found.status == "error" else found.status == "correct"


def _record(
    arm: str, table: PairedTable, found: PairedEquivalence, plan: AccuracyPlan, missing: MissingAnswers
) -> AccuracyTest:
    margins = sorted({*MARGINS, plan.margin})
    band = (plan.floor, plan.ceiling)
    return AccuracyTest(
        arm=arm,
        both=table.both,
        candidate_only=table.candidate_only,
        reference_only=table.reference_only,
        neither=table.neither,
        missing=found.missing,
        n=found.n,
        margin=found.margin,
        alpha=found.alpha,
        estimate=found.estimate,
        score_p_lower=found.score.p_lower,
        score_p_upper=found.score.p_upper,
        score_p=found.score.p,
        exact_p_lower=found.exact.p_lower,
        exact_p_upper=found.exact.p_upper,
        exact_p=found.exact.p,
        ci90=as_interval(found.score.ci90),
        ci95=as_interval(found.score.ci95),
        newcombe90=as_interval(found.newcombe10_ci90),
        mcnemar_exact=found.mcnemar.exact,
        mcnemar_mid_p=found.mcnemar.mid_p,
        wald_se=found.unpaired_wald.se,
        wald_p=found.unpaired_wald.p,
        farrington_manning_p=found.farrington_manning_p,
        smallest_margin=found.smallest_margin,
        floor_margin=found.floor_margin,
        power_at_margin=_power(table, plan),
        by_margin=tuple(
            (
                m,
                found.verdict.value
                if m == plan.margin
                else assess(table, m, plan.alpha, missing=missing, band=band).verdict.value,
            )
            for m in margins
        ),
        verdict=found.verdict.value,
        why=found.reason,
    )


def _power(table: PairedTable, plan: AccuracyPlan) -> float | None:
    """Of the score test at no difference, with as many discordant pairs as were seen; None without any."""
    if table.n == 0 or table.discordant == 0:
        return None
    return equivalence_power(table.n, plan.margin, table.discordant / table.n, 0.0, plan.alpha)
