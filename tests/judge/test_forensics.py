"""The noise floor, the calibration of rescoring, and what is sent to the second pass."""

from __future__ import annotations

import pytest

from auditor.judge.forensics import Forensics, served_dtype
from auditor.judge.judge import divergences_to_score, judge
from auditor.judge.scene import Scene
from auditor.model.judgement import Divergence
from auditor.model.launch import Setting
from auditor.model.plan import ForensicsPlan
from tests.fakes.evidence import (
    EvidenceBuilder,
    MemoryEvidence,
    answer_ids,
    differing,
    explain,
    honest_audit,
    plan,
)


def forensics(build: EvidenceBuilder) -> Forensics:
    launches = {x.arm: x for x in build.evidence.launches}
    return Forensics(Scene(build.evidence), launches["reference"], launches.get("control"))


def only(evidence: MemoryEvidence) -> Divergence:
    (found,) = [d for d in judge(evidence).divergences if d.arm == "eagle3"]
    return found


def test_the_floor_is_the_larger_noise_plus_one_step_of_the_dtype() -> None:
    floor = forensics(honest_audit()).floor
    assert (floor.dtype, floor.ulp) == ("bfloat16", 0.25)
    assert floor.decode_rescore_max == pytest.approx(0.03125)
    assert floor.reference_control_max == 0.0
    assert floor.floor == pytest.approx(0.28125)


@pytest.mark.parametrize(
    ("text", "dtype"),
    [("torch.bfloat16", "bfloat16"), ("half", "float16"), ("float32", "float32"), ("fp8", None)],
)
def test_served_dtype(text: str, dtype: str | None) -> None:
    launch = EvidenceBuilder(plan()).launch("reference", resolved=(Setting(name="dtype", value=text),))
    assert served_dtype(launch) == dtype


def test_a_floor_that_would_call_anything_a_tie_is_none() -> None:
    build = honest_audit()
    scores = build.evidence.scores
    build.evidence.scores = []
    launch = build.evidence.launches[0]
    for s in scores:
        build.score(launch, "calibration", s.prompt, s.position, {1: -0.1}, expected=1, decode_logprob=-5.0)
    found = forensics(build)
    assert found.floor.floor is None
    assert "differ by up to 4.9 nats" in found.floor_at(3).problem


@pytest.mark.parametrize(("margin", "cls"), [(0.0, "exact tie"), (0.125, "near tie"), (4.1, "unexplained")])
def test_margins_decide(margin: float, cls: str) -> None:
    ids = answer_ids(21)
    build = honest_audit(batch1={"code/1": differing(ids, 5)})
    explain(build, "code/1", 5, ids[4], 777, margin)
    found = only(build.evidence)
    assert (found.cls, found.position, found.reference_token, found.other_token) == (cls, 5, ids[4], 777)
    assert found.reference_score is not None
    assert found.reference_score.margin == pytest.approx(margin)
    assert found.reference_score.reproduces is True


def test_unscored_is_unknown_and_inconclusive() -> None:
    build = honest_audit(batch1={"code/1": differing(answer_ids(21), 5)})
    assert only(build.evidence).cls == "unknown"
    assert judge(build.evidence).verdict.name == "INCONCLUSIVE"


def test_what_the_second_pass_is_asked() -> None:
    ids = answer_ids(21)
    build = honest_audit(
        batch1={
            "code/1": differing(ids, 5),
            "code/10": differing(answer_ids(30), 7),
            "chat/4": {"token_ids": (*answer_ids(44), 55), "finish_reason": "stop"},
        }
    )
    assert divergences_to_score(build.evidence) == (("eagle3", "code/1", 5), ("eagle3", "code/10", 7))


def test_the_limit_holds_and_is_said() -> None:
    changed = {f"code/{i}": differing(answer_ids(20 + i), 5) for i in range(6)}
    build = honest_audit(batch1=changed, plan_fields={"forensics": ForensicsPlan(max_divergences=2)})
    assert len(divergences_to_score(build.evidence)) == 2
    found = judge(build.evidence).divergences
    assert [any("at most 2" in n for n in d.notes) for d in found] == [False, False, True, True, True, True]


def test_no_second_pass_asked_scores_nothing() -> None:
    build = honest_audit(batch1={"code/1": differing(answer_ids(21), 5)}, plan_fields={"forensics": None})
    assert divergences_to_score(build.evidence) == ()


def test_long_divergences_need_calibration_near_them() -> None:
    build = honest_audit()
    found = forensics(build)
    assert found.floor_at(16).nats is not None
    launch = build.evidence.launches[0]
    build.score(launch, "calibration", "code/0", 64, {5: -0.1}, expected=5, decode_logprob=-0.1)
    found = forensics(build)
    assert found.floor_at(100).nats is not None
    assert "not calibrated near token 200" in found.floor_at(200).problem
