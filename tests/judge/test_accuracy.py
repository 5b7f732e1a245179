"""Task accuracy: pairing by problem, missing answers, and the verdicts of the paired test."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from auditor.judge.judge import judge
from auditor.model.judgement import AccuracyTest, ArmAccuracy, Judgement
from auditor.model.plan import AccuracyPlan, CorpusUse
from tests.fakes.evidence import EvidenceBuilder, answer_ids, failure, honest_audit, plan


def accuracy_only(
    n: int,
    wrong: dict[str, Iterable[int]],
    *,
    margin: float = 0.05,
    missing: dict[str, Iterable[int]] | None = None,
    replies: dict[tuple[str, int], Any] | None = None,
) -> EvidenceBuilder:
    """Two arms and the accuracy stage alone: `--gates accuracy`."""
    build = EvidenceBuilder(
        plan(
            gates=("accuracy",),
            agreement=None,
            invariance=None,
            forensics=None,
            accuracy=AccuracyPlan(corpus=CorpusUse(name="gsm8k"), margin=margin),
        )
    )
    prompts = build.prompts("gsm8k", n, golds=[str(i) for i in range(n)])
    for arm in ("reference", "eagle3"):
        launch = build.launch(arm)
        off, gone = set(wrong.get(arm, ())), set((missing or {}).get(arm, ()))
        build.phase(
            f"accuracy/{launch.id}/gsm8k",
            launch,
            {
                p.id: failure()
                if i in gone
                else (replies or {}).get(
                    (arm, i), {"token_ids": answer_ids(i), "text": f"#### {i + (i in off)}"}
                )
                for i, p in enumerate(prompts)
            },
            drafts=(10, 20) if arm == "eagle3" else None,
        )
    return build


def equivalence(build: EvidenceBuilder) -> AccuracyTest:
    (found,) = judge(build.evidence).accuracy
    return found


def counts(made: Judgement, arm: str) -> ArmAccuracy:
    return next(a for a in made.arm_accuracy if a.arm == arm)


def test_pairs_are_made_by_problem() -> None:
    found = paired(200, {"reference": range(0, 40), "eagle3": range(20, 50)})
    assert (found.both, found.candidate_only, found.reference_only, found.neither) == (150, 20, 10, 20)
    assert (found.n, found.missing) == (200, 0)
    assert found.estimate == pytest.approx(0.05)


def paired(n: int, wrong: dict[str, Iterable[int]], **how: Any) -> AccuracyTest:
    return equivalence(accuracy_only(n, wrong, **how))


@pytest.mark.parametrize(
    ("n", "wrong", "margin", "verdict", "gate"),
    [
        (400, {"reference": range(40), "eagle3": range(40)}, 0.05, "equivalent", "PASS"),
        (400, {"reference": range(40), "eagle3": range(120)}, 0.05, "not equivalent", "FAIL"),
        (400, {"reference": range(120), "eagle3": range(40)}, 0.05, "not equivalent", "FAIL"),
        (
            1319,
            {"eagle3": range(52), "reference": range(1200, 1319)},
            0.20,
            "equivalent but different",
            "PASS",
        ),
        (250, {"reference": range(9), "eagle3": range(100, 104)}, 0.02, "inconclusive", "INCONCLUSIVE"),
        (50, {"reference": range(5), "eagle3": range(5)}, 0.05, "inconclusive", "INCONCLUSIVE"),
        (200, {"reference": range(200), "eagle3": range(200)}, 0.05, "void", "INCONCLUSIVE"),
        (200, {}, 0.05, "void", "INCONCLUSIVE"),
    ],
    ids=["same", "worse", "better", "different", "few", "too few", "floor", "ceiling"],
)
def test_verdicts(n: int, wrong: dict[str, Iterable[int]], margin: float, verdict: str, gate: str) -> None:
    made = judge(accuracy_only(n, wrong, margin=margin).evidence)
    assert made.accuracy[0].verdict == verdict
    assert [(g.name, g.status) for g in made.gates] == [("accuracy/eagle3", gate)]
    assert all(0 < m < 1 for m, _ in made.accuracy[0].by_margin)
    if gate != "PASS":
        assert made.gates[0].remedy


def test_a_record_of_before_reads_the_same_though_it_holds_what_nothing_computed() -> None:
    test = paired(100, {})
    written = msgspec.json.encode(test)
    assert b"suspect_golds" not in written
    before = written[:-1] + b',"suspect_golds":0}'
    assert msgspec.json.decode(before, type=AccuracyTest) == test


def test_the_three_margins_are_always_reported() -> None:
    found = paired(400, {"reference": range(40), "eagle3": range(40)}, margin=0.04)
    assert [m for m, _ in found.by_margin] == [0.02, 0.03, 0.04, 0.05]


def test_a_failed_request_is_not_a_wrong_answer() -> None:
    wrong = {"reference": range(40), "eagle3": range(40)}
    made = judge(accuracy_only(400, wrong, missing={"eagle3": [399]}).evidence)
    mine = counts(made, "eagle3")
    assert (mine.correct, mine.wrong, mine.errors, mine.planned) == (359, 40, 1, 400)
    assert made.accuracy[0].missing == 1
    assert made.accuracy[0].n == 400
    assert made.accuracy[0].verdict == "equivalent"


def test_many_missing_answers_decide_and_are_not_a_pass() -> None:
    wrong = {"reference": range(40), "eagle3": range(40)}
    build = accuracy_only(400, wrong, missing={"eagle3": range(340, 400)})
    made = judge(build.evidence)
    assert made.accuracy[0].verdict == "inconclusive"
    assert "missing" in made.gates[0].figure


def test_no_answer_and_truncated_are_counted_apart() -> None:
    replies = {
        ("eagle3", 100): {"token_ids": (5, 6), "text": "hm", "finish_reason": "stop"},
        ("eagle3", 101): {"token_ids": (5, 6), "text": "we first", "finish_reason": "length"},
    }
    mine = counts(judge(accuracy_only(200, {"reference": range(20)}, replies=replies).evidence), "eagle3")
    assert (mine.no_answer, mine.truncated, mine.wrong, mine.errors) == (1, 1, 0, 0)


def test_accuracy_alone_can_pass_and_says_what_it_does_not_cover() -> None:
    made = judge(accuracy_only(400, {"reference": range(40), "eagle3": range(40)}).evidence)
    assert made.verdict.name == "PASS"
    assert "Byte-exact agreement was not asked for and is not claimed." in made.verdict.limits


def test_rules_that_disagree_are_a_warning() -> None:
    replies = {("eagle3", i): {"token_ids": (5, 6), "text": f"It is {i}"} for i in range(100)}
    made = judge(accuracy_only(200, {"reference": range(20)}, replies=replies).evidence)
    assert "EXTRACTOR-SENSITIVE" in {f.code for f in made.findings}


def test_a_dead_engine_is_an_error_not_wrong_answers() -> None:
    build = honest_audit(gsm8k=200)
    last = next(p for p in build.evidence.phases if p.id == "accuracy/eagle3-1/gsm8k")
    build.evidence.phases.remove(last)
    launch = next(x for x in build.evidence.launches if x.arm == "eagle3")
    build.phase(
        last.id,
        launch,
        {"gsm8k/0": {"token_ids": (5, 6), "text": "#### 0"}, "gsm8k/1": failure("connection")},
        state="error",
        reason="engine died: CUDA error",
        drafts=(10, 20),
        planned=200,
    )
    made = judge(build.evidence)
    assert made.verdict.name == "ERROR"
    assert "CUDA error" in made.verdict.reason
    assert counts(made, "eagle3").wrong == 0
    assert counts(made, "eagle3").errors == 199


def test_nothing_answered_has_no_estimate() -> None:
    found = equivalence(accuracy_only(80, {}, missing={"eagle3": range(80)}))
    assert found.estimate is None
    assert (found.n, found.missing, found.verdict) == (80, 80, "void")
