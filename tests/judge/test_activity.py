"""Did the head run, and what its acceptance warns of."""

from __future__ import annotations

import msgspec
import pytest

from auditor.judge.activity import activities, activity, dead_from, level_collapse, pooled_length
from auditor.judge.judge import judge
from auditor.judge.scene import Scene
from auditor.model.phase import Counters, Phase
from tests.fakes.evidence import honest_audit, speculated


def phase(before: Counters | None, after: Counters | None) -> Phase:
    return Phase(
        id="batch1/eagle3-1/code",
        stage="batch1",
        launch="eagle3-1",
        arm="eagle3",
        planned=1,
        state="done",
        started_s=0.0,
        generating_s=2.0,
        before=before,
        after=after,
    )


@pytest.mark.parametrize(
    ("before", "after", "speculative", "status", "length"),
    [
        (speculated(10, 20), speculated(20, 38), True, "ran", 2.8),
        (speculated(10, 20), speculated(10, 20), True, "never ran", None),
        (speculated(10, 20), speculated(3, 4), True, "restarted", None),
        (speculated(10, 20), Counters(generation_tokens=5), True, "restarted", None),
        (Counters(generation_tokens=1), Counters(generation_tokens=5), True, "unknown", None),
        (None, None, True, "unknown", None),
        (None, None, False, "not speculative", None),
        (Counters(generation_tokens=1), Counters(generation_tokens=5), False, "not speculative", None),
        (speculated(10, 20), speculated(20, 38), False, "ran", 2.8),
    ],
)
def test_status(
    before: Counters | None, after: Counters | None, speculative: bool, status: str, length: float | None
) -> None:
    found = activity(phase(before, after), speculative)
    assert found.status == status
    assert found.acceptance_length == (None if length is None else pytest.approx(length))


def test_speed_is_tokens_over_generating_time() -> None:
    assert activity(phase(speculated(10, 20), speculated(20, 38)), True).tokens_per_s == pytest.approx(14.0)


def test_pooling_weights_by_drafts() -> None:
    found = [
        activity(phase(speculated(0, 0), speculated(10, 30)), True),
        activity(phase(speculated(0, 0), speculated(30, 30)), True),
    ]
    assert pooled_length(found) == pytest.approx(1 + 60 / 40)
    assert pooled_length([]) is None


def test_every_ended_phase_has_an_activity() -> None:
    build = honest_audit()
    assert len(activities(Scene(build.evidence))) == len(build.evidence.phases)


@pytest.mark.parametrize(
    ("rates", "start"),
    [
        ([0.61, 0.60, 0.02, 0.01, 0.02], 2),
        ([0.61, 0.60, 0.02, 0.60], None),
        ([0.61, 0.60, 0.02], None),  # one window is no trend
        ([0.0, 0.0, 0.0], None),
        ([], None),
    ],
)
def test_dead_from(rates: list[float], start: int | None) -> None:
    assert dead_from(rates) == start


def test_levels_that_hold_warn_of_nothing() -> None:
    assert level_collapse("eagle3", {2: 0.6, 8: 0.55, 32: 0.5}) == []


@pytest.mark.parametrize(
    ("acceptance", "gate", "finding"),
    [((100, 180), "PASS", None), ((100, 1), "INCONCLUSIVE", "HEAD-INERT"), ((0, 0), "INCONCLUSIVE", None)],
)
def test_head_ran_gate(acceptance: tuple[int, int], gate: str, finding: str | None) -> None:
    made = judge(honest_audit(acceptance=acceptance).evidence)
    status = {g.name: g.status for g in made.gates}
    assert status["head-ran/eagle3"] == gate
    assert status["agreement/eagle3"] == "PASS"
    assert [f.code for f in made.findings if f.severity == "warning"] == ([finding] if finding else [])


def test_a_reference_that_drafts_is_no_reference() -> None:
    build = honest_audit()
    first = build.evidence.phases[0]
    build.phase(first.id, build.evidence.launches[0], {}, drafts=(10, 20))
    gates = {g.name: g for g in judge(build.evidence).gates}
    assert gates["head-ran/reference"].status == "UNCERTIFIED"


def test_a_phase_that_was_complete_when_resumed_has_no_counters_and_blocks_nothing() -> None:
    build = honest_audit()
    at = next(i for i, p in enumerate(build.evidence.phases) if p.id == "batch1/eagle3-1/code")
    whole = build.evidence.phases[at]
    blank = msgspec.structs.replace(whole, before=None, after=None)
    build.evidence.phases[at] = blank
    assert {g.name: g.status for g in judge(build.evidence).gates}["head-ran/eagle3"] == "INCONCLUSIVE"
    build.evidence.phases[at] = msgspec.structs.replace(blank, reason="resumed: all answers were there")
    assert {g.name: g.status for g in judge(build.evidence).gates}["head-ran/eagle3"] == "PASS"
