"""Concurrency, batch invariance and caches: requests that influence each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from auditor.model.judgement import Invariance
from tests.cases.audits import Ran, audit, says

LEVELS = "--levels=2,6"


def level(ran: Ran, arm: str, n: int) -> Invariance:
    return next(x for x in ran.record.judgement.invariance if (x.arm, x.level) == (arm, n))


@pytest.fixture(scope="module")
def shared_state(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Heads with a fault that only shows beside other requests, on an engine without one."""
    arms = {
        "b1": {"batch_flip": {"share": 1.0}},
        "b7": {"poison": {"share": 0.5}},
        "b6": {"acceptance": {"1": 0.6, "3": 0.02}},
        "i9": {"max_running": 4},
    }
    return audit(
        tmp_path_factory.mktemp("shared"),
        {"all": {"latency_ms": 60, "jitter_ms": 60}, "arms": arms},
        "--gates=head-ran,agreement,invariance",
        LEVELS,
        drafts=[f"{arm}=ngram" for arm in arms],
    )


def test_B1_answers_that_change_beside_others_fail_the_candidate(shared_state: Ran) -> None:
    mine, plain = level(shared_state, "b1", 6), level(shared_state, "reference", 6)
    assert plain.self_agreement.k == plain.self_agreement.n > 0
    assert mine.self_agreement.k < mine.self_agreement.n
    assert mine.difference90 is not None
    assert mine.difference90.high < 0
    gate = shared_state.gate("invariance/b1")
    # whether a level was held depends on this machine's load; the curve above does not
    assert gate.status in ("FAIL", "INCONCLUSIVE")
    says(gate.figure, f"{mine.self_agreement.k} of {mine.self_agreement.n} at 6")
    says(gate.remedy, "requests" if gate.status == "FAIL" else "lower levels")
    assert shared_state.gate("agreement/b1").status == "PASS", "alone, its answers are the reference's"


def test_B7_a_cache_poisoned_under_load_fails_the_replay(shared_state: Ran) -> None:
    gate = shared_state.gate("replay/b7")
    assert gate.status == "FAIL"
    says(gate.figure, "equal after the load", "first difference: sums/")
    says(gate.remedy, "poisoned cache", "--no-enable-prefix-caching")
    found = shared_state.finding("CACHE-POISONED", "b7")
    says(found.remedy, "reset the prefix cache")
    assert shared_state.gate("replay/b1").status == "PASS"
    assert shared_state.gate("replay/reference").status == "PASS"
    assert shared_state.code == 1


def test_B6_acceptance_that_falls_with_the_level_is_named(shared_state: Ran) -> None:
    found = shared_state.finding("ACCEPTANCE-FALLS-WITH-LOAD", "b6")
    assert found.severity == "warning"
    says(found.seen, "2: 0.", "6: 0.0")
    says(found.remedy, "mixed up between requests at 6", "serve below that level")
    assert "ACCEPTANCE-FALLS-WITH-LOAD" not in shared_state.codes("b1")


def test_I9_a_level_is_labelled_with_what_was_running(shared_state: Ran) -> None:
    found = level(shared_state, "i9", 6)
    assert not found.held
    assert found.achieved is not None
    assert found.achieved <= 4
    gate = shared_state.gate("invariance/i9")
    assert gate.status == "INCONCLUSIVE"
    says(gate.figure, "i9 did not hold")
    says(gate.remedy, "--max-num-seqs", "lower levels")
    warning = shared_state.finding("CONCURRENCY-NOT-REACHED", "i9 at 6")
    says(warning.remedy, f"read this level as {found.achieved}")


def test_replies_out_of_order_are_told_apart(shared_state: Ran) -> None:
    """Each request waits up to 60 ms more than its neighbours; every answer still is its prompt's own."""
    plain = level(shared_state, "reference", 6)
    assert plain.self_agreement.k == plain.self_agreement.n == 48
    assert plain.run_to_run.k == plain.run_to_run.n


@pytest.fixture(scope="module")
def engine_varies(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """All arms answer otherwise beside other requests, as a kernel for shared prefixes makes them."""
    return audit(
        tmp_path_factory.mktemp("cascade"),
        {"all": {"latency_ms": 30, "cascade": True}},
        "--gates=agreement,invariance",
        LEVELS,
    )


def test_B2_distinct_answers_by_level_are_both_arms_not_the_head_s(engine_varies: Ran) -> None:
    for arm in ("reference", "ngram"):
        low, high = level(engine_varies, arm, 2), level(engine_varies, arm, 6)
        assert low.self_agreement.k < low.self_agreement.n
        assert high.distinct_mean is not None
        assert high.distinct_mean > 1
    found = engine_varies.finding("NOT-BATCH-INVARIANT", "reference")
    says(found.seen, "at 2", "at 6")
    assert engine_varies.gate("invariance/ngram").status != "FAIL"
    assert any("Batch invariance is not claimed" in x for x in engine_varies.record.judgement.verdict.limits)


def test_B3_a_head_that_varies_no_more_than_its_engine_is_not_blamed(engine_varies: Ran) -> None:
    mine = level(engine_varies, "ngram", 6)
    assert mine.reference is not None
    assert mine.difference90 is not None
    assert mine.difference90.low <= 0 <= mine.difference90.high
    found = engine_varies.finding("NOT-BATCH-INVARIANT")
    says(found.remedy, "head that varies no more than this is not at fault", "the engine")
    says(engine_varies.gate("invariance/ngram").figure, "(reference ")


def test_C3_the_kernel_can_be_switched_off_in_every_arm(engine_varies: Ran, tmp_path: Path) -> None:
    says(engine_varies.finding("NOT-BATCH-INVARIANT").remedy, "--disable-cascade-attn", "every arm")
    ran = audit(
        tmp_path,
        {"all": {"latency_ms": 30, "cascade": True}},
        "--gates=agreement,invariance",
        LEVELS,
        "--engine-args=--disable-cascade-attn",
    )
    assert "NOT-BATCH-INVARIANT" not in ran.codes("")
    assert all(x.self_agreement.k == x.self_agreement.n for x in ran.record.judgement.invariance)
    assert all("--disable-cascade-attn" in x.argv for x in ran.record.launches)
