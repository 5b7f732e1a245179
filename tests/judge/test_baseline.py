"""Two runs compared: the rule, what cannot be compared, and the gate that follows from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from auditor.judge.baseline import compare, pair_arms
from auditor.judge.figures import compute
from auditor.judge.judge import judge
from auditor.judge.snapshot import snapshot
from auditor.model.baseline import Baseline, GateMark, IdentityDigest, RunDiff, Snapshot
from auditor.model.judgement import Gate
from auditor.model.plan import (
    AccuracyPlan,
    Arm,
    BaselinePlan,
    CorpusUse,
    Draft,
)
from tests.fakes.evidence import (
    EvidenceBuilder,
    answer_ids,
    differing,
    explain,
    honest_audit,
    sample_audit,
)

DIFFERING = {f"code/{i}": differing(answer_ids(20 + i), 5) for i in range(6)}
TARGET, OTHER_TARGET = (IdentityDigest(name="target", source="t", digest=d * 64) for d in "ab")


def snap(build: EvidenceBuilder, *identities: IdentityDigest) -> Snapshot:
    return snapshot(compute(build.evidence), identities)


@pytest.fixture(scope="module")
def release() -> Snapshot:
    """The honest audit that the others are compared with."""
    return snap(honest_audit())


def ties() -> EvidenceBuilder:
    """Six prompts differ, each by an exact tie: no fault, and a lower agreement."""
    build = honest_audit(batch1=DIFFERING)
    for prompt in DIFFERING:
        explain(build, prompt, 5, answer_ids(20 + int(prompt[5:]))[4], 777, 0.0)
    return build


def unexplained() -> EvidenceBuilder:
    build = honest_audit(batch1={"code/1": differing(answer_ids(21), 5)})
    explain(build, "code/1", 5, answer_ids(21)[4], 777, 4.1)
    return build


def other_prompts(*corpora: str) -> EvidenceBuilder:
    """The same ids, other tokens."""
    build = honest_audit()
    build.evidence.all_prompts = [
        replace(p, token_ids=(9, *p.token_ids)) if p.corpus in corpora else p
        for p in build.evidence.all_prompts
    ]
    return build


def without(stage: str) -> EvidenceBuilder:
    build = honest_audit()
    build.evidence.phases = [p for p in build.evidence.phases if p.stage != stage]
    return build


def candidate(name: str) -> Any:
    return (
        Arm(name="reference", role="reference"),
        Arm(name="control", role="control"),
        Arm(name=name, role="candidate", draft=Draft(name=name, method="eagle3", path="head")),
    )


def renamed() -> EvidenceBuilder:
    return honest_audit(
        plan_fields={"arms": candidate("eagle3-v2")}, arms=("reference", "control", "eagle3-v2")
    )


CASES: dict[str, tuple[Callable[[], EvidenceBuilder], str, str]] = {
    "the same": (honest_audit, "no regression", "agreement 40 of 40 after 40 of 40"),
    "agreement lower": (ties, "regression", "agreement 34 of 40 after 40 of 40 (0 gained, 6 lost"),
    "accuracy lower": (
        lambda: honest_audit(wrong={"eagle3": [*range(0, 100, 10), 1, 2, 3, 4, 5]}),
        "regression",
        "accuracy 85 of 100 after 90 of 100 (0 gained, 5 lost, one-sided p 0.031",
    ),
    "accuracy not shown within the margin": (
        lambda: honest_audit(wrong={"eagle3": [*range(0, 100, 10), 1, 2]}),
        "regression",
        "inferior at 0.05",
    ),
    "acceptance lower": (
        lambda: honest_audit(acceptance=(100, 165)),
        "regression",
        "acceptance length 2.6500 after 2.8000",
    ),
    "acceptance hardly lower": (
        lambda: honest_audit(acceptance=(100, 167)),
        "no regression",
        "acceptance length 2.6700 after 2.8000",
    ),
    "a new class": (unexplained, "regression", "1 unexplained, a class that the run before did not have"),
    "a structural class": (sample_audit, "regression", "post-stop leak"),
    "the candidate has another name": (renamed, "no regression", "eagle3-v2: agreement 40 of 40"),
    "no agreement prompt in common": (
        lambda: other_prompts("code", "chat"),
        "inconclusive",
        "no prompt is the same in both runs",
    ),
    "one corpus in common": (
        lambda: other_prompts("code"),
        "no regression",
        "agreement 20 of 20 after 20 of 20",
    ),
    "no problem in common": (
        lambda: other_prompts("gsm8k"),
        "inconclusive",
        "accuracy: no prompt is the same",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_rule(release: Snapshot, case: str) -> None:
    make, outcome, said = CASES[case]
    found = compare(release, snap(make()))
    assert found.outcome == outcome, found.arms
    assert found.exit_code == {"no regression": 0, "regression": 1, "inconclusive": 4}[outcome]
    arm = found.arms[-1]
    words = "\n".join([found.reason, *arm.regressions, *arm.undecided, *arm.compared])
    assert said in words, words


def test_four_lost_of_many_are_within_the_margin() -> None:
    few = {"eagle3": range(0, 100, 10)}
    before = snap(honest_audit(gsm8k=400, wrong=few))
    after = snap(honest_audit(gsm8k=400, wrong={"eagle3": [*few["eagle3"], 1, 2, 3, 4]}))
    found = compare(before, after)
    assert found.outcome == "no regression"
    (tested,) = found.accuracy
    assert (tested.result, tested.n) == ("not inferior", 400)


def test_too_few_problems_are_undecided_not_fine() -> None:
    few = snap(honest_audit(gsm8k=40))
    found = compare(few, few)
    assert found.outcome == "inconclusive"
    assert "40 problems cannot show a margin of 0.05: at least 59 can" in found.reason


def test_another_target_is_not_comparable_whatever_the_figures() -> None:
    before = snap(honest_audit(), TARGET)
    found = compare(before, snap(ties(), OTHER_TARGET))
    assert (found.outcome, found.exit_code) == ("not comparable", 4)
    assert found.conditions[0].bearing == "blocks"
    assert found.arms[0].regressions, "the figures are shown all the same"


def test_unknown_weights_confound_and_do_not_block() -> None:
    unread = replace(TARGET, digest=None)
    found = compare(snap(honest_audit(), TARGET), snap(honest_audit(), unread))
    assert found.outcome == "no regression"
    assert [(c.what, c.bearing) for c in found.conditions] == [("target", "confounds")]


def test_what_only_one_run_measured_is_named() -> None:
    full, part = snap(honest_audit()), snap(without("accuracy"))
    backward, forward = compare(full, part), compare(part, full)
    assert backward.outcome == forward.outcome == "no regression"
    assert any(
        "accuracy of eagle3 on gsm8k: only measured in the run before" in x for x in backward.not_compared
    )
    assert forward.arms[0].missing == ("accuracy was not measured in the run before",)


def test_nothing_in_common_is_not_comparable() -> None:
    before = snap(honest_audit(arms=("reference", "control")))
    found = compare(before, snap(honest_audit()))
    assert (found.outcome, found.arms[0].before_arm) == ("not comparable", None)
    assert "no such candidate" in found.reason


def test_a_gate_that_fails_now_is_a_regression(release: Snapshot) -> None:
    gates = [
        replace(release, gates=(GateMark(name="replay/eagle3", status=s),))
        for s in ("PASS", "FAIL", "NOT RUN")
    ]
    assert compare(gates[0], gates[1]).outcome == "regression"
    assert compare(gates[1], gates[0]).outcome == "no regression"
    assert compare(gates[0], gates[2]).outcome == "no regression"


def test_flips_of_the_drafter_free_reference_are_no_new_class(release: Snapshot) -> None:
    after = snap(unexplained())
    excused = replace(after, divergences=tuple(replace(d, drafter_free=True) for d in after.divergences))
    assert compare(release, excused).outcome == "no regression"


def test_a_run_without_second_pass_cannot_vouch_for_new_classes() -> None:
    before = snap(honest_audit(plan_fields={"forensics": None}))
    found = compare(before, snap(unexplained()))
    assert found.outcome == "inconclusive"
    assert "no second pass" in found.reason


def test_acceptance_on_other_prompts_is_shown_and_not_judged(release: Snapshot) -> None:
    build = other_prompts("certification")
    slow = honest_audit(acceptance=(100, 100))
    build.evidence.phases = [
        replace(p, before=q.before, after=q.after) if p.stage == "certify" else p
        for p, q in zip(build.evidence.phases, slow.evidence.phases, strict=True)
    ]
    found = compare(release, snap(build))
    (certify,) = [s for s in found.acceptance if s.kind == "certify"]
    assert (certify.comparable, certify.note) == (False, "other prompts were answered")
    assert certify.relative == pytest.approx(2.0 / 2.8 - 1)
    assert found.outcome == "no regression"


def test_conditions_name_what_is_not_alike(release: Snapshot) -> None:
    accuracy = AccuracyPlan(corpus=CorpusUse(name="gsm8k", max_tokens=64), concurrency=8)
    build = honest_audit(plan_fields={"pin": "force", "accuracy": accuracy, "min_acceptance_length": 1.5})
    build.evidence.launches = [replace(x, engine_version="vllm 9") for x in build.evidence.launches]
    engine = honest_audit()
    engine.evidence.launches = [replace(x, engine_version="vllm 8") for x in engine.evidence.launches]
    found = compare(snap(engine), snap(build))
    assert {(c.what, c.before, c.after, c.bearing) for c in found.conditions} == {
        ("reference: engine_version", "vllm 8", "vllm 9", "confounds"),
        ("plan: pin", '"snapshot"', '"force"', "confounds"),
        ("plan: accuracy.concurrency", "32", "8", "confounds"),
        ("plan: min_acceptance_length", "1.05", "1.5", "listed"),
    }


def test_fingerprints_tell_other_launch_states(release: Snapshot) -> None:
    found = compare(release, snap(honest_audit(candidate_fingerprint="B")))
    assert {s.arm: s.fingerprints for s in found.states} == {
        "reference": "equal",
        "control": "equal",
        "eagle3": "differ",
    }


def test_unpaired_shares_have_an_interval_and_no_test(release: Snapshot) -> None:
    found = compare(release, snap(other_prompts("code", "chat")))
    (change,) = [c for c in found.changes if (c.what, c.arm, c.subject) == ("agreement", "eagle3", "code")]
    assert not change.paired
    assert (change.p, change.p_lower, change.p_holm, change.gained) == (None, None, None, None)
    assert change.interval95 is not None
    assert change.interval95.low < 0.0 < change.interval95.high


def test_beyond_chance_is_corrected(release: Snapshot) -> None:
    """Six lost of 40: p 0.031 alone, not after Holm's method over the candidate's tests."""
    six = compare(release, snap(ties()))
    (total,) = [c for c in six.changes if (c.what, c.arm, c.subject) == ("agreement", "eagle3", "all")]
    assert total.p == pytest.approx(2 * 0.5**6)
    assert total.p_holm is not None
    assert total.p_holm > 0.05
    assert six.beyond_chance == ()
    many = compare(release, snap(honest_audit(wrong={"eagle3": range(0, 100, 2)})))
    assert [x.split(" on ")[0] for x in many.beyond_chance] == ["accuracy of eagle3"]


def test_arms_are_paired_by_role_by_name_and_as_the_last_ones_left(release: Snapshot) -> None:
    state = release.arms[-1]
    two = replace(release, arms=(*release.arms, replace(state, arm="ngram")))
    other = replace(release, arms=(*release.arms[:2], replace(state, arm="ngram"), replace(state, arm="new")))
    three = replace(other, arms=(*other.arms, replace(state, arm="newer")))
    assert pair_arms(two, other)["ngram"] == "ngram"
    assert pair_arms(two, other)["new"] == "eagle3"
    assert "new" not in pair_arms(two, three), "which of two would be a guess"


def test_a_run_against_itself_changed_nothing(release: Snapshot) -> None:
    for one in (release, snap(sample_audit(), TARGET)):
        found = compare(one, one)
        assert not found.conditions
        assert not found.beyond_chance
        assert not found.not_compared
        assert all(c.gained == c.lost == 0 for c in found.changes)
        assert found.outcome == "no regression"
        assert msgspec.json.decode(msgspec.json.encode(found), type=RunDiff) == found


def test_exchanged_runs_exchange_the_signs(release: Snapshot) -> None:
    other = snap(sample_audit(), TARGET)
    forth, back = compare(release, other), compare(other, release)
    for one, two in zip(forth.changes, back.changes, strict=True):
        assert (one.gained, one.lost) == (two.lost, two.gained)
        assert (one.before, one.after) == (two.after, two.before)


def baseline_gate(build: EvidenceBuilder, before: Snapshot | None, *mine: IdentityDigest) -> Gate:
    evidence = build.evidence
    evidence.plan = replace(evidence.plan, baseline=BaselinePlan(path="release"))
    evidence.baseline = None if before is None else Baseline(before=before, identities=mine)
    made = judge(evidence)
    found = [g for g in made.gates if g.name.partition("/")[0] == "baseline"]
    assert (found[0].status == "PASS") == (found[0].remedy == "")
    return found[0]


@pytest.mark.parametrize(
    ("make", "status", "said"),
    [
        (honest_audit, "PASS", "agreement 40 of 40 after 40 of 40"),
        (ties, "FAIL", "agreement 34 of 40 after 40 of 40"),
        (lambda: other_prompts("code", "chat"), "INCONCLUSIVE", "no prompt is the same"),
        (lambda: honest_audit(arms=("reference", "control")), "NOT RUN", "a launch of eagle3"),
    ],
)
def test_the_gate(release: Snapshot, make: Callable[[], EvidenceBuilder], status: str, said: str) -> None:
    found = baseline_gate(make(), release)
    assert found.status == status
    assert said in found.figure


def test_the_gate_is_no_pass_where_the_baseline_measured_less() -> None:
    found = baseline_gate(honest_audit(), snap(without("accuracy")))
    assert found.status == "INCONCLUSIVE"
    assert "accuracy was not measured in the run before" in found.figure


def test_the_gate_is_no_pass_on_another_target() -> None:
    found = baseline_gate(honest_audit(), snap(honest_audit(), TARGET), OTHER_TARGET)
    assert found.status == "INCONCLUSIVE"
    assert "another target" in found.figure


def test_the_gate_is_no_pass_without_its_file() -> None:
    assert baseline_gate(honest_audit(), None).status == "NOT RUN"


def test_without_a_baseline_there_is_no_such_gate() -> None:
    assert not [g for g in judge(honest_audit().evidence).gates if g.name.startswith("baseline")]
