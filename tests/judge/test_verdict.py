"""Gates and verdict: precedence, missing evidence, and that every failure says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from auditor.judge.judge import judge
from auditor.judge.verdict import PRECEDENCE
from auditor.model.judgement import EXIT_CODES, Finding, Judgement
from auditor.model.launch import Setting
from auditor.model.plan import GATES, AgreementPlan, Arm, CorpusUse, Draft
from tests.fakes.evidence import (
    RESOLVED,
    EvidenceBuilder,
    MemoryEvidence,
    answer_ids,
    calibrate,
    differing,
    explain,
    failure,
    honest_audit,
    sample_audit,
)

IDS = answer_ids(21)


def gate(made: Judgement, name: str) -> Any:
    return next(g for g in made.gates if g.name == name)


def drop(evidence: MemoryEvidence, prefix: str) -> None:
    evidence.phases = [p for p in evidence.phases if not p.id.startswith(prefix)]
    evidence.by_phase = {k: v for k, v in evidence.by_phase.items() if not k.startswith(prefix)}


def redo(build: EvidenceBuilder, phase_id: str, **fields: Any) -> None:
    """The same phase with other fields."""
    evidence = build.evidence
    at = next(i for i, p in enumerate(evidence.phases) if p.id == phase_id)
    evidence.phases[at] = msgspec.structs.replace(evidence.phases[at], **fields)


def test_an_honest_audit_passes() -> None:
    made = judge(honest_audit().evidence)
    assert {g.status for g in made.gates} == {"PASS"}
    assert (made.verdict.name, made.verdict.exit_code) == ("PASS", 0)
    assert {g.name.partition("/")[0] for g in made.gates} >= {*GATES, "repeatability", "replay"}


@pytest.mark.parametrize(("agreeing", "status"), [(40, "FAIL"), (32, "INCONCLUSIVE")])
def test_an_unexplained_divergence_in_an_intermediate_state_is_inconclusive(
    agreeing: int, status: str
) -> None:
    """SAME STATE: the head is at fault. INTERMEDIATE: other kernels may be."""
    build = honest_audit(
        certification=40, candidate_fingerprint="B", batch1={"code/1": differing(answer_ids(41), 5)}
    )
    explain(build, "code/1", 5, answer_ids(41)[4], 777, 4.1)
    candidate = next(x for x in build.evidence.launches if x.arm == "eagle3")
    drop(build.evidence, f"certify/{candidate.id}")
    said = {
        p.id: answer_ids(i) if i < agreeing else differing(answer_ids(i), 3)
        for i, p in enumerate(build.evidence.prompts("certification"))
    }
    for run in (1, 2):
        build.phase(f"certify/{candidate.id}/pass{run}", candidate, said, drafts=(100, 180))
    assert gate(judge(build.evidence), "agreement/eagle3").status == status


def test_judging_twice_is_the_same_and_survives_the_wire() -> None:
    evidence = sample_audit().evidence
    one, two = judge(evidence), judge(evidence)
    assert one == two
    assert msgspec.json.decode(msgspec.json.encode(one), type=Judgement) == one


def uncertified(build: EvidenceBuilder) -> None:
    build.evidence.fingerprints = [f for f in build.evidence.fingerprints if f.launch != "control-1"]
    build.fingerprint(next(x for x in build.evidence.launches if x.arm == "control"), "B")


def failing(build: EvidenceBuilder) -> None:
    launch = next(x for x in build.evidence.launches if x.arm == "eagle3")
    build.phase(f"replay/{launch.id}/again", launch, {"code/0": (9, 9, 9)}, drafts=(1, 2))


def inconclusive(build: EvidenceBuilder) -> None:
    drop(build.evidence, "load/eagle3-1/n8")


def broken(build: EvidenceBuilder) -> None:
    redo(build, "batch1/eagle3-1/code", state="error", reason="the engine died: out of memory")


def not_repeating(build: EvidenceBuilder) -> None:
    launch = build.evidence.launches[0]
    replies = {f"certification/{i}": differing(answer_ids(i), 4) for i in range(20)}
    build.phase(f"certify/{launch.id}/pass2", launch, replies)


Change = Callable[[EvidenceBuilder], None]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ((inconclusive,), "INCONCLUSIVE"),
        ((failing,), "FAIL"),
        ((failing, inconclusive), "FAIL"),
        ((uncertified, failing, inconclusive), "UNCERTIFIED"),
        ((not_repeating,), "UNCERTIFIED"),
        ((broken, uncertified, failing, inconclusive), "ERROR"),
    ],
    ids=lambda v: "+".join(c.__name__ for c in v) if isinstance(v, tuple) else v,
)
def test_precedence(changes: tuple[Change, ...], expected: str) -> None:
    build = honest_audit()
    for change in changes:
        change(build)
    made = judge(build.evidence)
    assert made.verdict.name == expected
    assert made.verdict.exit_code == EXIT_CODES[made.verdict.name]
    for found in made.gates:
        assert (found.status == "PASS") == (found.remedy == ""), found
        assert found.figure
        assert found.bound


def test_precedence_is_the_protocols() -> None:
    codes = [EXIT_CODES[name] for _, name in PRECEDENCE]
    assert codes == [5, 3, 1, 4, 4]


def test_no_gate_is_invalid_not_a_pass() -> None:
    made = judge(honest_audit(plan_fields={"gates": ()}).evidence)
    assert (made.verdict.name, made.verdict.exit_code, made.gates) == ("INVALID", 2, ())


@pytest.mark.parametrize("stage", ["certify", "batch1", "load", "replay", "accuracy"])
def test_a_stage_that_was_asked_and_is_missing_is_never_a_pass(stage: str) -> None:
    build = honest_audit()
    drop(build.evidence, stage)
    assert judge(build.evidence).verdict.exit_code in (3, 4)


@pytest.mark.parametrize("stage", ["batch1", "accuracy"])
def test_missing_because_interrupted_is_an_error_that_can_be_resumed(stage: str) -> None:
    build = honest_audit()
    drop(build.evidence, f"{stage}/eagle3")
    build.evidence.status, build.evidence.error = "interrupted", "stopped by SIGINT"
    made = judge(build.evidence)
    assert made.verdict.exit_code == 5
    assert "SIGINT" in made.verdict.reason
    assert "audit resume" in made.verdict.reason


def test_a_candidate_that_never_came_up_is_an_error_in_the_engines_words() -> None:
    build = honest_audit(arms=("reference", "control"))
    build.launch("eagle3", state="failed", error="ValueError: No available memory for the cache blocks")
    made = judge(build.evidence)
    assert made.verdict.name == "ERROR"
    assert "No available memory" in gate(made, "agreement/eagle3").figure


def test_void_phases_are_inconclusive() -> None:
    build = honest_audit()
    redo(build, "batch1/eagle3-1/code", state="void", reason="a counter fell")
    assert gate(judge(build.evidence), "agreement/eagle3").status == "INCONCLUSIVE"


def test_a_failed_request_at_batch_1_voids_its_claim() -> None:
    build = honest_audit(batch1={"code/1": failure("timeout")})
    made = judge(build.evidence)
    found = gate(made, "agreement/eagle3")
    assert found.status == "ERROR"
    assert "1 prompts have no completion" in found.figure
    (summary,) = [a for a in made.agreement if (a.arm, a.corpus) == ("eagle3", "code")]
    assert (summary.agreement.n, summary.errors) == (19, 1)


def test_ties_pass_and_are_reported() -> None:
    build = honest_audit(batch1={"code/1": differing(IDS, 5)})
    explain(build, "code/1", 5, IDS[4], 777, 0.125)
    made = judge(build.evidence)
    found = gate(made, "agreement/eagle3")
    assert found.status == "PASS"
    assert found.figure == "39 of 40 agree, control 40 of 40 (1 near tie)"
    (summary,) = [a for a in made.agreement if (a.arm, a.corpus) == ("eagle3", "all")]
    assert summary.zero_bound is None
    assert summary.tango95 is not None
    assert summary.hazard[0].divergences == 1
    assert summary.survival[0].token == 5


def test_unexplained_fails_unless_the_control_shows_as_many() -> None:
    build = honest_audit(batch1={"code/1": differing(IDS, 5)})
    explain(build, "code/1", 5, IDS[4], 777, 4.1)
    made = judge(build.evidence)
    assert gate(made, "agreement/eagle3").status == "FAIL"
    assert "code/1 from token 5" in made.verdict.reason
    control = next(x for x in build.evidence.launches if x.arm == "control")
    build.evidence.by_phase["batch1/control-1/code"] = []
    phase_id = "batch1/control-1/code"
    build.evidence.phases = [p for p in build.evidence.phases if p.id != phase_id]
    answers = {f"code/{i}": answer_ids(20 + i) for i in range(20)}
    build.phase(phase_id, control, answers | {"code/2": differing(answer_ids(22), 3)})
    for launch, ahead in ((build.evidence.launches[0], 22), (control, 777)):
        top = {answer_ids(22)[2]: -0.01, 777: -5.0} if ahead == 22 else {777: -0.01, answer_ids(22)[2]: -5.0}
        build.score(launch, "control", "code/2", 3, top)
    assert gate(judge(build.evidence), "agreement/eagle3").status == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("least", "agreeing", "status"), [(0.8, 20, "PASS"), (0.9, 20, "INCONCLUSIVE"), (0.9, 16, "FAIL")]
)
def test_min_agreement_is_a_lower_bound_per_corpus(least: float, agreeing: int, status: str) -> None:
    changed = {f"code/{i}": differing(answer_ids(20 + i), 5) for i in range(20 - agreeing)}
    build = honest_audit(
        batch1=changed,
        plan_fields={
            "agreement": AgreementPlan(
                corpora=(CorpusUse(name="code"), CorpusUse(name="chat")), min_agreement=least
            )
        },
    )
    for prompt in changed:
        explain(build, prompt, 5, answer_ids(20 + int(prompt[5:]))[4], 777, 0.0)
    found = gate(judge(build.evidence), "agreement/eagle3")
    assert found.status == status, found


def intermediate(explained: bool) -> EvidenceBuilder:
    """An EAGLE-3 candidate with other bits that agrees on 31 of 40 certification prompts."""
    build = honest_audit(
        certification=40, candidate_fingerprint="B", batch1={"code/1": differing(answer_ids(41), 5)}
    )
    launch = next(x for x in build.evidence.launches if x.arm == "eagle3")
    for run in (1, 2):
        phase_id = f"certify/{launch.id}/pass{run}"
        build.evidence.phases = [p for p in build.evidence.phases if p.id != phase_id]
        build.phase(
            phase_id,
            launch,
            {
                f"certification/{i}": differing(answer_ids(i), 4) if i < 8 else answer_ids(i)
                for i in range(40)
            },
            drafts=(100, 180),
        )
    if explained:
        explain(build, "code/1", 5, answer_ids(41)[4], 777, 0.0)
    return build


@pytest.mark.parametrize(("explained", "status"), [(True, "PASS"), (False, "INCONCLUSIVE")])
def test_an_intermediate_candidate_is_inconclusive_unless_all_is_explained(
    explained: bool, status: str
) -> None:
    made = judge(intermediate(explained).evidence)
    assert gate(made, "certification/eagle3").status == status
    assert made.verdict.name == status


def test_every_attempt_is_kept_and_told() -> None:
    made = judge(sample_audit().evidence)
    assert [(c.other, c.state) for c in made.certificates] == [
        ("control-0", "OTHER STATE"),
        ("control-1", "SAME STATE"),
        ("eagle3-1", "SAME STATE"),
    ]
    assert "control-0 OTHER STATE" in gate(made, "certification/control").figure


def test_a_pair_with_other_settings_is_not_compared() -> None:
    build = honest_audit()
    resolved = tuple(
        Setting(name=s.name, value="torch.float32") if s.name == "dtype" else s for s in RESOLVED
    )
    at = next(i for i, x in enumerate(build.evidence.launches) if x.arm == "eagle3")
    build.evidence.launches[at] = msgspec.structs.replace(build.evidence.launches[at], resolved=resolved)
    made = judge(build.evidence)
    assert made.verdict.name == "UNCERTIFIED"
    assert "set dtype alike" in gate(made, "certification/eagle3").remedy
    assert gate(made, "agreement/eagle3").status == "UNCERTIFIED"
    assert gate(made, "accuracy/eagle3").status == "PASS"


def test_graph_untouched_methods_should_have_equal_fingerprints() -> None:
    arms = (
        Arm(name="reference", role="reference"),
        Arm(name="control", role="control"),
        Arm(name="eagle3", role="candidate", draft=Draft(name="eagle3", method="ngram")),
    )
    made = judge(honest_audit(plan_fields={"arms": arms}, candidate_fingerprint="B").evidence)
    assert "FINGERPRINT-UNEQUAL" in {f.code for f in made.findings}


def test_no_control_is_uncertified() -> None:
    arms = (
        Arm(name="reference", role="reference"),
        Arm(name="eagle3", role="candidate", draft=Draft(name="eagle3", method="eagle3", path="h")),
    )
    made = judge(honest_audit(plan_fields={"arms": arms}, arms=("reference", "eagle3")).evidence)
    assert made.verdict.name == "UNCERTIFIED"


def test_a_reference_that_says_one_token_only_shows_nothing() -> None:
    build = honest_audit()
    stuck = {f"{c}/{i}": {"token_ids": (0,) * 30} for c in ("code", "chat") for i in range(20)}
    for launch in build.evidence.launches:
        for corpus in ("code", "chat"):
            phase_id = f"batch1/{launch.id}/{corpus}"
            build.evidence.phases = [p for p in build.evidence.phases if p.id != phase_id]
            replies = {k: v for k, v in stuck.items() if k.startswith(corpus)}
            build.phase(phase_id, launch, replies, drafts=(9, 9) if launch.arm == "eagle3" else None)
    made = judge(build.evidence)
    assert gate(made, "agreement/eagle3").status == "INCONCLUSIVE"
    assert "REFERENCE-DEGENERATE" in {f.code for f in made.findings}


def test_penalties_are_named_as_a_cause() -> None:
    build = honest_audit(batch1={"code/1": differing(IDS, 5)})
    explain(build, "code/1", 5, IDS[4], 777, 4.1)
    build.evidence.findings.append(
        Finding(
            code="GENERATION-CONFIG",
            severity="warning",
            seen="generation_config.json sets repetition_penalty 1.05",
            expected="1.0",
            remedy="pin it",
        )
    )
    assert "run again with them off" in gate(judge(build.evidence), "agreement/eagle3").remedy


def test_limits_say_what_is_not_covered() -> None:
    limits = " ".join(judge(honest_audit().evidence).verdict.limits)
    for part in (
        "toy model",
        "this launch",
        "Batch invariance is not claimed",
        "0.1500 (3/n)",
        "pinned (snapshot)",
    ):
        assert part in limits


def test_attached_servers_are_unverified() -> None:
    build = honest_audit()
    build.evidence.launches = [
        msgspec.structs.replace(x, state="attached", unverified=("command line", "environment"))
        for x in build.evidence.launches
    ]
    plan = build.evidence.plan
    arms = tuple(msgspec.structs.replace(a, url="http://127.0.0.1:1") for a in plan.arms)
    build.evidence.plan = msgspec.structs.replace(plan, arms=arms)
    limits = judge(build.evidence).verdict.limits
    assert any("command line, environment could not be verified" in x for x in limits)
    assert not any("pinned" in x for x in limits), "the auditor pinned nothing there"


def test_answers_are_read_a_bounded_number_of_times() -> None:
    build = honest_audit()
    judge(build.evidence)
    assert build.evidence.reads <= 2 * len(build.evidence.phases)


def test_prompts_are_read_once_however_many_diverge() -> None:
    def reads(many: int) -> int:
        build = honest_audit(batch1={f"code/{i}": differing(IDS, 5) for i in range(many)})
        assert len(judge(build.evidence).divergences) == many
        return build.evidence.prompt_reads

    assert reads(8) == reads(1)


def test_a_restart_for_rescoring_counts_as_its_launch() -> None:
    build = honest_audit(batch1={"code/1": differing(IDS, 5)})
    build.evidence.scores = []
    reference = build.evidence.launches[0]
    again = build.launch("reference", id="reference-1r1", restart_of="reference-1")
    build.evidence.launches.remove(again)
    calibrate(build, {f"code/{i}": answer_ids(20 + i) for i in range(8)}, [f"code/{i}" for i in range(8)])
    build.evidence.launches.append(again)
    build.score(again, "eagle3", "code/1", 5, {IDS[4]: -1.0, 777: -1.0})
    made = judge(build.evidence)
    assert [d.cls for d in made.divergences] == ["exact tie"]
    assert reference.id in {c.reference for c in made.certificates}
