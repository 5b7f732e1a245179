"""Public reports of people bitten, by id: those whose natural face is judging a record, or statistics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from auditor.judge.activity import dead_from, level_collapse
from auditor.judge.certify import certificate, repeatability
from auditor.judge.judge import judge
from auditor.judge.settings import diff
from auditor.model.counters import CounterDelta, acceptance_rate, delta
from auditor.model.judgement import Gate, Judgement
from auditor.model.launch import Setting
from auditor.model.phase import Counters
from auditor.stats.equivalence import EquivalenceVerdict, assess
from auditor.stats.table import PairedTable
from tests.fakes.evidence import (
    RESOLVED,
    EvidenceBuilder,
    answer_ids,
    differing,
    env,
    explain,
    failure,
    held,
    honest_audit,
    plan,
)

CASES = {
    c["id"]: c
    for line in (Path(__file__).parents[1] / "data" / "cases_open.jsonl").read_text().splitlines()
    for c in [json.loads(line)]
}


def fixture(case: str) -> Any:
    return CASES[case]["fixture"]


def gate(made: Judgement, name: str) -> Gate:
    return next(g for g in made.gates if g.name == name)


def put(build: EvidenceBuilder, phase_id: str, replies: dict[str, Any], **fields: Any) -> None:
    """Another phase in the place of one of the honest audit's."""
    launch = next(x for x in build.evidence.launches if x.id == phase_id.split("/")[1])
    build.evidence.phases = [p for p in build.evidence.phases if p.id != phase_id]
    if launch.arm == "eagle3":
        fields.setdefault("drafts", (100, 180))
    build.phase(phase_id, launch, replies, **fields)


def test_a5_penalties_under_speculation() -> None:
    case = fixture("A5")
    n = case["AB_penalty_1.05"][1]
    honest = {f"code/{i}": answer_ids(20 + i) for i in range(n)}

    def changed(k: int, start: int) -> dict[str, Any]:
        return {f"code/{i}": differing(honest[f"code/{i}"], 5) for i in range(start, start + k)}

    build = honest_audit(
        n=n,
        batch1=changed(case["AB_penalty_1.05"][0], 10),
        plan_fields={"forensics": None, "engine": plan().engine},
    )
    put(build, "batch1/control-1/code", honest | changed(case["AA"][0], 0))
    build.evidence.plan = msgspec.structs.replace(
        build.evidence.plan,
        engine=msgspec.structs.replace(
            build.evidence.plan.engine, args=("--override-generation-config", '{"repetition_penalty":1.05}')
        ),
    )
    made = judge(build.evidence)
    found = gate(made, "agreement/eagle3")
    assert (made.verdict.name, found.status) == ("FAIL", "FAIL")
    assert "more often than the control" in found.figure
    assert "penalties are in force" in found.remedy


def test_a7_a_self_trained_head_is_a_bug_not_numerics() -> None:
    case = fixture("A7")
    wrong = case["n"] - case["exact"]
    ids = {f"code/{i}": answer_ids(20 + i) for i in range(case["n"])}
    build = honest_audit(
        n=case["n"],
        batch1={f"code/{i}": differing(ids[f"code/{i}"], case["median_first_diff"]) for i in range(wrong)},
    )
    for i in range(wrong):
        explain(build, f"code/{i}", 2, ids[f"code/{i}"][1], 777, case["median_margin"])
    made = judge(build.evidence)
    assert made.verdict.name == "FAIL"
    assert f"{wrong} unexplained" in made.verdict.reason
    (first,) = [a.hazard[0] for a in made.agreement if (a.arm, a.corpus) == ("eagle3", "code")]
    assert first.divergences == wrong


def test_a9_a_flip_without_any_drafter_clears_the_head() -> None:
    case = fixture("A9")
    ids = (*(i % 50 + 100 for i in range(39)), case["base"], 200, 201, 2)
    other = (*ids[:39], case["spec"], *ids[40:])
    build = honest_audit(batch1={"code/1": other})
    for arm in ("reference", "control"):
        honest = {f"code/{i}": answer_ids(20 + i) for i in range(20)}
        put(build, f"batch1/{arm}-1/code", honest | {"code/1": ids})
    for position in (32, 40):
        build.score(
            build.evidence.launches[0],
            "calibration",
            "code/1",
            position - 1,
            {5: -0.1},
            expected=5,
            decode_logprob=-0.1,
        )
    build.score(
        build.evidence.launches[0],
        "eagle3",
        "code/1",
        case["idx"],
        {case["batch_top1"]: -0.3, case["decode_top1"]: -1.5},
    )
    made = judge(build.evidence)
    (found,) = made.divergences
    assert (found.position, found.drafter_free_flip) == (case["idx"], True)
    assert "Verify-shape numerics, not the head" in found.why
    assert gate(made, "agreement/eagle3").status == "PASS"


def test_a10_rescoring_that_does_not_reproduce_the_plain_arm_blames_nobody() -> None:
    case = fixture("A10")
    bad = case["rescore_disagree"]["plain"][0] + 1  # the case counts from 0
    ids = tuple((i * 13) % 71 + 100 for i in range(case["n"]))
    build = honest_audit(batch1={"code/10": differing(ids, bad)}, cap=4096)
    honest = {f"code/{i}": answer_ids(20 + i) for i in range(20)}
    for arm in ("reference", "control"):
        put(build, f"batch1/{arm}-1/code", honest | {"code/10": ids})
    reference = build.evidence.launches[0]
    for position in (64, 128, 256, bad):
        expected = ids[position - 1]
        best = expected if position != bad else 999
        top = {best: -0.1} if best == expected else {best: -0.1, expected: -4.0}
        build.score(
            reference, "calibration", "code/10", position, top, expected=expected, decode_logprob=-0.1
        )
    explain(build, "code/10", bad, ids[bad - 1], 777, 4.0)
    made = judge(build.evidence)
    assert [(c.bin_start, c.usable) for c in made.calibration if c.n] == [(1, True), (65, True), (257, False)]
    (found,) = made.divergences
    assert (found.cls, found.position) == ("unknown", bad)
    assert "rescoring reproduces only 0 of 1" in found.why
    assert made.verdict.name == "INCONCLUSIVE"


def test_b1_repeats_lost_under_concurrency() -> None:
    case = fixture("B1")
    build = honest_audit()
    solo = (5,) * case["solo"]
    for launch in ("reference-1", "eagle3-1"):
        put(build, f"batch1/{launch}/code", {f"code/{i}": (*solo, 9 + i, 2) for i in range(20)})
    for level in (2, 8):
        for run in (1, 2):
            put(
                build,
                f"load/reference-1/n{level}/run{run}",
                {f"code/{i}": [(*solo, 9 + i, 2)] * 4 for i in range(8)},
            )
            put(
                build,
                f"load/eagle3-1/n{level}/run{run}",
                {f"code/{i}": [(*([5] * k), 9 + i, 2) for k in case["concurrent"]] for i in range(8)},
            )
    made = judge(build.evidence)
    found = gate(made, "invariance/eagle3")
    assert found.status == "FAIL"
    assert "48 of 64 at 2 (reference 64 of 64)" in found.figure
    assert "draft state shared between requests" in found.remedy


def loaded(build: EvidenceBuilder, distinct: dict[str, dict[int, int]]) -> None:
    """Every prompt under load has so many distinct completions, batch 1 included, per launch and level."""
    prompts = {f"{c}/{i}": answer_ids(s + i) for c, s in (("code", 20), ("chat", 40)) for i in range(4)}
    for launch, levels in distinct.items():
        for level, kinds in levels.items():
            for run in (1, 2):
                replies = {
                    p: [ids if r % kinds == 0 else differing(ids, 4, 700 + r % kinds) for r in range(8)]
                    for p, ids in prompts.items()
                }
                put(build, f"load/{launch}/n{level}/run{run}", replies)


def test_b2_distinct_completions_grow_with_the_load_in_both_arms() -> None:
    case = {arm: {int(k): v for k, v in fixture("B2")[arm].items() if k != "1"} for arm in ("plain", "spec")}
    build = honest_audit(
        plan_fields={"invariance": msgspec.structs.replace(plan().invariance, levels=(8, 32))}
    )
    loaded(build, {"reference-1": case["plain"], "eagle3-1": case["spec"]})
    made = judge(build.evidence)
    shown = {(x.arm, x.level): x.distinct_mean for x in made.invariance if x.arm != "control"}
    assert shown == {("reference", 8): 2, ("reference", 32): 5, ("eagle3", 8): 2, ("eagle3", 32): 5}
    assert "NOT-BATCH-INVARIANT" in {f.code for f in made.findings}
    assert gate(made, "invariance/eagle3").status == "PASS"
    assert any("Batch invariance is not claimed" in x for x in made.verdict.limits)


def test_b3_a_head_that_varies_no_more_than_the_plain_server_is_not_blamed() -> None:
    case = fixture("B3")["long"]
    build = honest_audit()
    loaded(build, {"reference-1": {8: case["plain"]}, "eagle3-1": {8: case["spec"]}})
    made = judge(build.evidence)
    assert gate(made, "invariance/eagle3").status == "PASS"
    (remark,) = [f for f in made.findings if f.code == "NOT-BATCH-INVARIANT"]
    assert "what varies is the engine" in remark.remedy


def test_b5_a_determinism_switch_that_never_reached_the_server() -> None:
    assert fixture("B5")["environ"] == {"server": {}, "engine": {}}
    build = honest_audit()
    build.evidence.launches = [
        msgspec.structs.replace(
            x,
            env=env(VLLM_BATCH_INVARIANT="1"),
            environ_checked=env(PATH="/bin") if x.arm == "control" else (),
        )
        for x in build.evidence.launches
    ]
    made = judge(build.evidence)
    assert made.verdict.name == "UNCERTIFIED"
    (remark,) = [f for f in made.findings if f.code == "SWITCH-NOT-REACHED"]
    assert "set it where the server is started" in remark.remedy


def test_b6_acceptance_collapses_with_the_level() -> None:
    rates = {int(k): v for k, v in fixture("B6").items()}
    (found,) = level_collapse("eagle3", rates)
    assert found.severity == "warning"
    assert "mixed up between requests at 8 and more" in found.remedy
    build = honest_audit()
    for level, accepted in ((2, 150), (8, 12)):
        honest = {f"{c}/{i}": answer_ids(s + i) for c, s in (("code", 20), ("chat", 40)) for i in range(4)}
        for run in (1, 2):
            put(build, f"load/eagle3-1/n{level}/run{run}", honest, drafts=(100, accepted))
    codes = {f.code for f in judge(build.evidence).findings}
    assert "ACCEPTANCE-FALLS-WITH-LOAD" in codes


def test_b7_a_cache_poisoned_under_load() -> None:
    assert fixture("B7")["seq"] == ["ok", "bad", "bad_cached", "ok_after_reset"]
    stray = {"code/0": (*answer_ids(20)[:5], 90210, 2)}
    made = judge(honest_audit(load=stray, replay=stray).evidence)
    found = gate(made, "replay/eagle3")
    assert (made.verdict.name, found.status) == ("FAIL", "FAIL")
    (remark,) = [f for f in made.findings if f.code == "CACHE-POISONED"]
    assert "reset the prefix cache" in remark.remedy


def test_c1_cold_and_warm_differ() -> None:
    case = fixture("C1")
    build = honest_audit()
    cold, warm = case["cached"][0], case["cached"][1]
    prompts = {f"certification/{i}": answer_ids(i) for i in range(20)}
    put(
        build,
        "certify/reference-1/pass1",
        {p: {"token_ids": t, "usage_cached": cold} for p, t in prompts.items()},
    )
    put(
        build,
        "certify/reference-1/pass2",
        {p: {"token_ids": differing(t, 4), "usage_cached": warm} for p, t in prompts.items()},
    )
    made = judge(build.evidence)
    assert made.verdict.name == "UNCERTIFIED"
    assert "--no-enable-prefix-caching" in gate(made, "repeatability/reference").remedy
    (remark,) = [f for f in made.findings if f.code == "CACHE-PATH"]
    assert "not noise from run to run" in remark.remedy


def test_c2_speculation_zeroes_prefix_hits() -> None:
    case = fixture("C2")
    build = honest_audit()
    for launch, hits in (("reference-1", case["plain_cached"]), ("eagle3-1", case["spec_cached"])):
        replies = {
            f"certification/{i}": {"token_ids": answer_ids(i), "usage_cached": hits} for i in range(20)
        }
        put(build, f"certify/{launch}/pass2", replies)
    made = judge(build.evidence)
    found = gate(made, "certification/eagle3")
    assert (made.verdict.name, found.status) == ("UNCERTIFIED", "UNCERTIFIED")
    assert "prefix cache hits" in found.figure


def with_resolved(build: EvidenceBuilder, arm: str, name: str, value: str) -> None:
    build.evidence.launches = [
        msgspec.structs.replace(
            x, resolved=(*(s for s in x.resolved if s.name != name), Setting(name=name, value=value))
        )
        if x.arm == arm
        else x
        for x in build.evidence.launches
    ]


def test_c4_async_scheduling_resolved_unequally() -> None:
    case = fixture("C4")
    build = honest_audit()
    for arm, key in (
        ("reference", "plain_resolved"),
        ("control", "plain_resolved"),
        ("eagle3", "spec_resolved"),
    ):
        with_resolved(build, arm, "async_scheduling", str(case[key]["async_scheduling"]))
    made = judge(build.evidence)
    (mine,) = [c for c in made.certificates if c.arm == "eagle3"]
    assert mine.state == "NOT COMPARABLE"
    assert ("async_scheduling", "True", "False") in {(s.name, s.reference, s.other) for s in mine.settings}
    assert "set async_scheduling alike on every arm" in gate(made, "certification/eagle3").remedy


def test_c6_acceptance_that_never_comes_back() -> None:
    case = fixture("C6")
    assert dead_from(case["acc"]) == case["long_at"]
    build = honest_audit()
    honest = {f"{c}/{i}": answer_ids(s + i) for c, s in (("code", 20), ("chat", 40)) for i in range(4)}
    for part in ("load/eagle3-1/n8/run2", "replay/eagle3-1"):
        put(build, part, honest, drafts=(100, 3))
    graded = {
        f"gsm8k/{i}": {"token_ids": answer_ids(i), "text": f"#### {i + (i % 10 == 0)}"} for i in range(200)
    }
    put(build, "accuracy/eagle3-1/gsm8k", graded, drafts=(100, 6), concurrency=32, corpus="gsm8k")
    made = judge(build.evidence)
    (remark,) = [f for f in made.findings if f.code == "ACCEPTANCE-COLLAPSED"]
    assert "until a restart" in remark.remedy
    assert gate(made, "agreement/eagle3").status == "PASS"


def test_c7_a_dead_server_is_an_error_not_wrong_answers() -> None:
    build = honest_audit(batch1={"code/19": failure("connection", "reset at 2060 tokens")})
    at = next(i for i, p in enumerate(build.evidence.phases) if p.id == "batch1/eagle3-1/code")
    build.evidence.phases[at] = msgspec.structs.replace(
        build.evidence.phases[at], state="error", reason="the engine died: index out of range"
    )
    made = judge(build.evidence)
    assert (made.verdict.name, made.verdict.exit_code) == ("ERROR", 5)
    assert "index out of range" in made.verdict.reason
    assert not made.divergences


def test_c8_argument_drift_between_the_arms() -> None:
    case = fixture("C8")
    build = honest_audit()
    build.evidence.launches = [
        msgspec.structs.replace(
            x,
            argv=("python", *case["spec" if x.arm == "eagle3" else "plain"]),
            resolved=tuple(s for s in RESOLVED if s.name != "tensor_parallel_size"),
        )
        for x in build.evidence.launches
    ]
    made = judge(build.evidence)
    assert made.verdict.name == "UNCERTIFIED"
    assert "set tensor_parallel_size alike on every arm (2 against 1)" in made.verdict.reason.replace(
        "Set", "set"
    )


def test_d6_an_arm_that_dies_has_no_wrong_answers() -> None:
    case = fixture("D6")
    build = honest_audit()
    answered = {f"gsm8k/{i}": {"token_ids": answer_ids(i), "text": f"#### {i}"} for i in range(case["ok"])}
    lost = {f"gsm8k/{i}": failure("connection") for i in range(case["ok"], case["ok"] + case["reset"])}
    put(
        build,
        "accuracy/eagle3-1/gsm8k",
        answered | lost,
        state="error",
        reason=f"/health answers {case['health_after']}",
        corpus="gsm8k",
    )
    made = judge(build.evidence)
    mine = next(a for a in made.arm_accuracy if a.arm == "eagle3")
    assert (mine.correct, mine.wrong, mine.errors) == (case["ok"], 0, case["reset"])
    assert made.verdict.name == "ERROR"
    assert "503" in made.verdict.reason


def test_e3_unequal_kv_cache_is_a_note_of_the_certificate() -> None:
    build = EvidenceBuilder(plan())
    one = build.launch("reference")
    two = msgspec.structs.replace(
        build.launch("control"), diary=msgspec.structs.replace(one.diary, kv_blocks=2100)
    )
    (found,) = diff(
        msgspec.structs.replace(one, diary=msgspec.structs.replace(one.diary, kv_blocks=5000)), two
    )
    assert (found.name, found.reference, found.other, found.kind) == ("kv_blocks", "5000", "2100", "listed")


def test_f4_a_window_not_the_lifetime() -> None:
    (a0, d0), (a1, d1) = fixture("F4")["start"], fixture("F4")["end"]
    window = delta(
        Counters(accepted_tokens=a0, draft_tokens=d0), Counters(accepted_tokens=a1, draft_tokens=d1)
    )
    assert isinstance(window, CounterDelta)
    assert acceptance_rate(window) == pytest.approx(0.10)


def test_f5_an_inert_head_is_equal_and_warned_of() -> None:
    case = fixture("F5")
    per_phase = case["drafted"] // 10 // 3
    build = honest_audit(
        acceptance=(per_phase, case["accepted"] // 6), plan_fields={"min_acceptance_length": 1.0}
    )
    made = judge(build.evidence)
    assert made.verdict.name == "PASS"
    (remark,) = [f for f in made.findings if f.code == "HEAD-INERT"]
    assert "says little of this head" in remark.remedy


def table(n: int, b: int, c: int, both: int) -> PairedTable:
    return PairedTable(both=both, candidate_only=b, reference_only=c, neither=n - b - c - both)


def test_g6_a_wrong_gold_cancels() -> None:
    build = honest_audit(gsm8k=200)
    before = judge(build.evidence).accuracy[-1]
    same_wrong = {arm: [*range(0, 200, 10), 18] for arm in ("reference", "control", "eagle3")}
    after = judge(honest_audit(gsm8k=200, wrong=same_wrong).evidence).accuracy[-1]
    assert after.verdict == before.verdict == "equivalent"
    assert after.neither == before.neither + 1
    assert after.score_p == before.score_p


def test_g8_a_broken_stop_list_is_void_never_equivalent() -> None:
    n = fixture("G8")["plain"][1]
    everything = {arm: range(n) for arm in ("reference", "control", "eagle3")}
    made = judge(honest_audit(gsm8k=n, wrong=everything).evidence)
    found = gate(made, "accuracy/eagle3")
    assert made.accuracy[-1].verdict == "void"
    assert found.status == "INCONCLUSIVE"
    assert "stop list" in found.remedy


def test_h1_pairs_show_what_unpaired_hides() -> None:
    """The case states Wald's interval, -1.97 to -0.30, which just passes at 2 points; the score interval,
    -2.02 to -0.31, does not: p is 0.054 there."""
    case = fixture("H1")
    pairs = table(case["n"], case["c"], case["b"], 1025)
    found = assess(pairs, 0.02)
    assert found.mcnemar.exact == pytest.approx(0.036, abs=5e-4)
    assert (found.score.ci90.lower, found.score.ci90.upper) == pytest.approx((-0.02023, -0.00310), abs=1e-5)
    assert found.score.p == pytest.approx(0.054, abs=5e-4)
    assert assess(pairs, 0.03).verdict is EquivalenceVerdict.DIFFERENT
    assert assess(pairs, 0.01).verdict is EquivalenceVerdict.NOT_EQUIVALENT


def test_h2_no_significance_is_no_equivalence() -> None:
    case = fixture("H2")
    found = assess(table(case["n"], case["c"], case["b"], 190), case["margin_pp"] / 100)
    assert found.mcnemar.exact == pytest.approx(0.27, abs=5e-3)
    assert found.verdict is EquivalenceVerdict.INCONCLUSIVE
    assert found.score.ci90.lower < -0.02 < 0.0 < found.score.ci90.upper


def test_h4_no_discordance_is_no_zero_width() -> None:
    case = fixture("H4")
    found = assess(table(case["n"], case["b"], case["c"], 1100), 0.05)
    assert found.verdict is EquivalenceVerdict.EQUIVALENT
    assert found.score.ci90.lower < 0 < found.score.ci90.upper
    assert found.score.ci90.upper < 0.0025


def test_i9_a_level_is_labelled_with_what_was_achieved() -> None:
    case = fixture("I9")
    build = honest_audit()
    honest = {f"{c}/{i}": answer_ids(s + i) for c, s in (("code", 20), ("chat", 40)) for i in range(4)}
    reached = held(case["asked"], 0.0, achieved=case["peak"])
    for run in (1, 2):
        put(
            build,
            f"load/eagle3-1/n8/run{run}",
            honest,
            concurrency=case["asked"],
            concurrency_summary=reached,
        )
    made = judge(build.evidence)
    level = next(x for x in made.invariance if x.level == case["asked"])
    assert (level.held, level.achieved) == (False, case["peak"])
    (remark,) = [f for f in made.findings if f.code == "CONCURRENCY-NOT-REACHED"]
    assert "read this level as 100" in remark.remedy


def test_i10_a_retried_request_voids_its_batch_1_claim() -> None:
    build = honest_audit(batch1={"code/3": failure("timeout", "no answer within 31 s; not retried")})
    made = judge(build.evidence)
    assert gate(made, "agreement/eagle3").status == "ERROR"
    assert "audit resume" in gate(made, "agreement/eagle3").remedy
    assert made.verdict.exit_code == 5


def test_launches_of_two_states_are_uncertified_with_the_diff() -> None:
    build = honest_audit(certification=40)
    build.evidence.fingerprints = [f for f in build.evidence.fingerprints if f.launch != "control-1"]
    control = next(x for x in build.evidence.launches if x.arm == "control")
    build.fingerprint(control, "B")
    made = certificate(build.evidence.launches[0], control, build.evidence)
    assert made.state == "OTHER STATE"
    assert len(made.fingerprint_diffs) == 8
    assert repeatability(control, build.evidence).agreement.k == 40
