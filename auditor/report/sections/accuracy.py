"""Task accuracy: paired equivalence, discordance, extractor sensitivity, what is missing."""

from __future__ import annotations

from auditor.model.judgement import AccuracyTest, ArmAccuracy
from auditor.model.record import AuditRecord
from auditor.report import numbers
from auditor.report.charts import equivalence
from auditor.report.parts import Block, Cell, Figure, Note, Section, Table, Tone, Value, series

VERDICT_TONE: dict[str, Tone] = {
    "equivalent": "good",
    "equivalent but different": "warn",
    "not equivalent": "bad",
    "inconclusive": "warn",
    "void": "warn",
}


def section(record: AuditRecord) -> Section:
    judgement, plan = record.judgement, record.plan.accuracy
    title = "Task accuracy"
    if not judgement.arm_accuracy and not judgement.accuracy:
        why = "was not asked for" if plan is None else "was not measured"
        return Section("accuracy", title, "", (Note(f"Task accuracy {why}."),))
    blocks: list[Block] = []
    tests = judgement.accuracy
    if tests:
        blocks.append(_verdicts(tests))
        blocks.append(
            Figure(
                "90% intervals on the difference; the paired score interval decides.",
                equivalence.plot(tests, series(record.plan)),
                _intervals(tests),
                wide=True,
            )
        )
        blocks += [_discordance(tests), _tests(tests), _margins(tests)]
    blocks += [_answers(judgement.arm_accuracy), _extractors(judgement.arm_accuracy)]
    intro = ""
    if plan is not None:
        intro = (
            f"{plan.corpus.name}, {plan.shots} worked examples, {plan.concurrency} in flight, greedy, strict "
            f"grading, paired by problem. Equivalent: within {numbers.margin(plan.margin)} either way."
        )
    return Section("accuracy", title, intro, tuple(blocks))


def _verdicts(tests: tuple[AccuracyTest, ...]) -> Table:
    return Table(
        "Equivalence with the reference, by arm.",
        ("Arm", "Verdict", "Difference", "90% interval", "Margin", "TOST p (score)", "TOST p (exact)", "Why"),
        tuple(
            (
                t.arm,
                Cell(t.verdict, VERDICT_TONE.get(t.verdict, "mute"), badge=True),
                f"{t.candidate_only - t.reference_only:+,} of {t.n:,} ({numbers.points(t.estimate)})".replace(
                    "-", numbers.MINUS, 1
                ),
                numbers.interval_points(t.ci90),
                numbers.margin(t.margin),
                numbers.p_value(t.score_p, t.alpha),
                numbers.p_value(t.exact_p, t.alpha),
                t.why,
            )
            for t in tests
        ),
    )


def _intervals(tests: tuple[AccuracyTest, ...]) -> Table:
    return Table(
        "The plot's figures.",
        ("Arm", "Method", "Difference", "90% interval", "Margin"),
        tuple(
            (t.arm, name, numbers.points(t.estimate), numbers.interval_points(i), numbers.margin(t.margin))
            for t in tests
            for name, i in equivalence.intervals(t)
        ),
    )


def _discordance(tests: tuple[AccuracyTest, ...]) -> Table:
    return Table(
        "Problems by who solved them; only the discordant ones carry the difference.",
        (
            "Arm",
            "Both",
            "Candidate only",
            "Reference only",
            "Neither",
            "Missing",
            "Planned",
            "McNemar exact",
            "mid-p",
        ),
        tuple(
            (
                t.arm,
                numbers.integer(t.both),
                numbers.integer(t.candidate_only),
                numbers.integer(t.reference_only),
                numbers.integer(t.neither),
                Cell(numbers.integer(t.missing), "warn" if t.missing else ""),
                numbers.integer(t.n),
                numbers.p_value(t.mcnemar_exact),
                numbers.p_value(t.mcnemar_mid_p),
            )
            for t in tests
        ),
        frozenset(range(1, 9)),
    )


def _tests(tests: tuple[AccuracyTest, ...]) -> Table:
    columns = ("Figure", *(t.arm for t in tests))

    def row(name: str, *values: str) -> tuple[Value, ...]:
        return (name, *values)

    return Table(
        "Every figure beside the primary test.",
        columns,
        (
            row(
                "score p, lower / upper",
                *(_both(t.score_p_lower, t.score_p_upper, t.alpha) for t in tests),
            ),
            row(
                "exact p, lower / upper",
                *(_both(t.exact_p_lower, t.exact_p_upper, t.alpha) for t in tests),
            ),
            row("95% score interval", *(numbers.interval_points(t.ci95) for t in tests)),
            row("unpaired Wald TOST p", *(numbers.p_value(t.wald_p, t.alpha) for t in tests)),
            row("Farrington–Manning p", *(numbers.p_value(t.farrington_manning_p, t.alpha) for t in tests)),
            row(
                "smallest margin shown, Δ*",
                *(f"{numbers.against(t.smallest_margin, t.margin, scale=100)} pp" for t in tests),
            ),
            row(
                "smallest this n could show",
                *(f"{numbers.against(t.floor_margin, t.margin, scale=100)} pp" for t in tests),
            ),
            row("power at the margin", *(numbers.percent(t.power_at_margin) for t in tests)),
        ),
    )


def _both(lower: float, upper: float, alpha: float) -> str:
    return f"{numbers.p_value(lower, alpha)} / {numbers.p_value(upper, alpha)}"


def _margins(tests: tuple[AccuracyTest, ...]) -> Table:
    margins = sorted({m for t in tests for m, _ in t.by_margin})
    return Table(
        "The same evidence at other margins; the plan's own decides.",
        ("Arm", *(numbers.margin(m) for m in margins)),
        tuple(
            (
                t.arm,
                *(
                    Cell(v, VERDICT_TONE.get(v, "mute"))
                    if (v := dict(t.by_margin).get(m, ""))
                    else "not tested"
                    for m in margins
                ),
            )
            for t in tests
        ),
    )


def _answers(rows: tuple[ArmAccuracy, ...]) -> Table:
    return Table(
        "Answers by the strict rule. Transport errors are not wrong answers.",
        ("Arm", "Correct", "Wrong", "No answer", "Truncated", "Errors", "Planned"),
        tuple(
            (
                a.arm,
                numbers.of(a.correct, a.planned),
                numbers.integer(a.wrong),
                numbers.integer(a.no_answer),
                numbers.integer(a.truncated),
                Cell(numbers.integer(a.errors), "warn" if a.errors else ""),
                numbers.integer(a.planned),
            )
            for a in rows
        ),
        frozenset({2, 3, 4, 5, 6}),
    )


def _extractors(rows: tuple[ArmAccuracy, ...]) -> Table:
    return Table(
        "Extractor sensitivity: the same completions graded by three rules.",
        ("Arm", "Strict", "Flexible", "vLLM's own"),
        tuple(
            (
                a.arm,
                numbers.of(a.correct, a.planned),
                numbers.of(a.flexible_correct, a.planned),
                numbers.of(a.vllm_correct, a.planned),
            )
            for a in rows
        ),
    )
