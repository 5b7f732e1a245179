"""Under load: each launch against itself, beside the reference, and batch 1 afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from auditor.judge.judge import judge
from auditor.model.judgement import Invariance, Judgement
from auditor.model.phase import Counters
from tests.fakes.evidence import EvidenceBuilder, answer_ids, differing, held, honest_audit

LOADED = [f"{c}/{i}" for c in ("code", "chat") for i in range(4)]


def changed(count: int, position: int = 3) -> dict[str, Any]:
    start = {"code": 20, "chat": 40}
    ids = [(p, answer_ids(start[p.split("/")[0]] + int(p.split("/")[1]))) for p in LOADED[:count]]
    return {p: differing(tokens, position) for p, tokens in ids}


def level(found: Judgement, arm: str, n: int) -> Invariance:
    return next(x for x in found.invariance if x.arm == arm and x.level == n)


def status(found: Judgement) -> dict[str, str]:
    return {g.name: g.status for g in found.gates}


def test_requests_are_counted_over_both_runs() -> None:
    found = level(judge(honest_audit(load=changed(2)).evidence), "eagle3", 8)
    assert (found.self_agreement.k, found.self_agreement.n) == (12, 16)
    assert (found.run_to_run.k, found.run_to_run.n) == (8, 8)
    assert found.distinct_mean == pytest.approx(1.25)
    assert found.reference is not None
    assert (found.reference.k, found.reference.n) == (16, 16)
    assert found.acceptance_length == pytest.approx(2.8)


@pytest.mark.parametrize(("count", "expected"), [(0, "PASS"), (2, "PASS"), (8, "FAIL")])
def test_below_the_reference_by_more_than_the_interval_allows(count: int, expected: str) -> None:
    assert status(judge(honest_audit(load=changed(count)).evidence))["invariance/eagle3"] == expected


def reloaded(build: EvidenceBuilder, arm: str, run: int, replies: dict[str, Any], **fields: Any) -> None:
    """Puts another phase in the place of one under load."""
    launch = next(x for x in build.evidence.launches if x.arm == arm)
    phase_id = f"load/{launch.id}/n8/run{run}"
    build.evidence.phases = [p for p in build.evidence.phases if p.id != phase_id]
    build.phase(phase_id, launch, replies, **fields)


def test_runs_that_differ_from_each_other_show() -> None:
    build = honest_audit()
    honest = {p: answer_ids((20 if p.startswith("code") else 40) + int(p[5:])) for p in LOADED}
    reloaded(build, "eagle3", 2, honest | changed(3), drafts=(100, 180))
    found = level(judge(build.evidence), "eagle3", 8)
    assert (found.run_to_run.k, found.run_to_run.n) == (5, 8)
    assert (found.self_agreement.k, found.self_agreement.n) == (13, 16)


def test_a_level_that_was_not_held_never_passes() -> None:
    build = honest_audit()
    honest = {p: answer_ids((20 if p.startswith("code") else 40) + int(p[5:])) for p in LOADED}
    reloaded(build, "eagle3", 1, honest, drafts=(100, 180), concurrency_summary=held(8, 0.4, achieved=5))
    made = judge(build.evidence)
    found = level(made, "eagle3", 8)
    assert (found.held, found.achieved) == (False, 5)
    gate = next(g for g in made.gates if g.name == "invariance/eagle3")
    assert gate.status == "INCONCLUSIVE"
    assert "did not hold 8 running (median 5, held for 40% of the steady phase)" in gate.figure
    assert [f.code for f in made.findings if "at 8" in f.subject] == ["CONCURRENCY-NOT-REACHED"]


def test_no_samples_are_not_a_held_level() -> None:
    build = honest_audit()
    honest = {p: answer_ids((20 if p.startswith("code") else 40) + int(p[5:])) for p in LOADED}
    reloaded(build, "eagle3", 1, honest, drafts=(100, 180), concurrency_summary=None)
    found = level(judge(build.evidence), "eagle3", 8)
    assert (found.held, found.achieved) == (False, None)


def test_preemptions_make_a_level_inconclusive() -> None:
    build = honest_audit()
    honest = {p: answer_ids((20 if p.startswith("code") else 40) + int(p[5:])) for p in LOADED}
    counters = {
        "before": Counters(preemptions=0, drafts=1, accepted_tokens=1, draft_tokens=3),
        "after": Counters(preemptions=4, drafts=9, accepted_tokens=20, draft_tokens=27),
    }
    reloaded(build, "eagle3", 1, honest, **counters)
    made = judge(build.evidence)
    assert level(made, "eagle3", 8).preemptions == 4
    assert status(made)["invariance/eagle3"] == "INCONCLUSIVE"


def test_replay_that_differs_fails_and_names_the_prompt() -> None:
    made = judge(honest_audit(replay=changed(1)).evidence)
    gate = next(g for g in made.gates if g.name == "replay/eagle3")
    assert (gate.status, made.verdict.exit_code) == ("FAIL", 1)
    assert "code/0" in gate.figure
    assert "--no-enable-prefix-caching" in gate.remedy
    assert {f.code for f in made.findings if f.severity == "error"} == {"CACHE-POISONED"}


def test_levels_that_were_asked_and_are_missing_do_not_pass() -> None:
    build = honest_audit()
    build.evidence.phases = [p for p in build.evidence.phases if "/n8/" not in p.id]
    made = judge(build.evidence)
    assert status(made)["invariance/eagle3"] == "NOT RUN"
    assert made.verdict.name == "INCONCLUSIVE"
