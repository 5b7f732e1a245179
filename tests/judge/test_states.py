"""Launch states over many launches: the measured ones, and scripted ones for every rule."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.judge import states
from auditor.judge.states import letters, study
from auditor.model.launch import Fingerprint, Launch
from auditor.model.plan import Arm, Draft
from auditor.model.study import PairComparison, StudyArm, StudyPlan, StudyResult
from tests.fakes.evidence import EvidenceBuilder, answer_ids, differing, failure, plan

EVIDENCE = Path(__file__).parents[1] / "data" / "evidence"
CONFIGURATIONS = {
    "plain": ("b1", "b2", "b3", "b4", "r1", "r2"),
    "forced": ("e2",),
    "eagle3": ("k1", "k2"),
    "forced-eagle3": ("s1", "s2"),
}


def arms_of(*configurations: str, warm: bool = False) -> tuple[tuple[Arm, ...], tuple[StudyArm, ...]]:
    arms, described = [], []
    for c in configurations:
        draft = None if c in ("plain", "forced") else Draft(name=c, method="eagle3", path="head")
        role = "candidate" if draft else "reference" if c == "plain" else "control"
        for caches in ("cold", "warm") if warm else ("cold",):
            name = c if caches == "cold" else f"{c}-warm"
            arms.append(Arm(name=name, role=role, draft=draft))  # type: ignore[arg-type]
            described.append(StudyArm(name=name, configuration=c, caches=caches))  # type: ignore[arg-type]
    return tuple(arms), tuple(described)


@pytest.fixture(scope="module")
def measured() -> StudyResult:
    """The launches measured on an H200, as one study. `prefill_fp` stands for the fingerprint's digest."""
    raw: dict[str, Any] = {}
    for name in "bers":
        raw |= json.loads(gzip.decompress((EVIDENCE / f"launches_{name}.json.gz").read_bytes()))
    arms, described = arms_of(*CONFIGURATIONS)
    build = EvidenceBuilder(plan(arms=arms))
    prompts = [p.id for p in build.prompts("certification", 40)]
    for configuration, names in CONFIGURATIONS.items():
        for number, name in enumerate(names, 1):
            launch = build.launch(configuration, number, id=name, ready_s=raw[name].get("ready_s"))
            build.evidence.fingerprints.append(
                Fingerprint(launch=name, digest=raw[name]["prefill_fp"], prompts=())
            )
            for n, passed in ((1, "solo"), (2, "again")):
                replies = dict(zip(prompts, raw[name][passed], strict=True))
                build.phase(f"certify/{name}/pass{n}", launch, replies)
    return study(build.evidence, StudyPlan(count=6, arms=described))


def pair(result: StudyResult, one: str, other: str) -> PairComparison:
    return next(p for p in result.pairs if {p.one, p.other} == {one, other})


@pytest.mark.parametrize(
    ("one", "other", "equal", "fingerprints", "state"),
    [
        ("b1", "b2", 1, "differ", "OTHER STATE"),
        ("b2", "b3", 40, "equal", "SAME STATE"),
        ("b1", "b4", 40, "equal", "SAME STATE"),
        ("b3", "b4", 1, "differ", "OTHER STATE"),
        ("s1", "s2", 40, "equal", "SAME STATE"),
        ("e2", "s1", 37, "differ", "SAME STATE"),
        ("r1", "r2", 40, "equal", "SAME STATE"),
        ("r2", "k1", 38, "differ", "SAME STATE"),
        ("r2", "k2", 0, "differ", "OTHER STATE"),
    ],
)
def test_measured_pairs(
    measured: StudyResult, one: str, other: str, equal: int, fingerprints: str, state: str
) -> None:
    found = pair(measured, one, other)
    assert (found.agreement.k, found.agreement.n) == (equal, 40)
    assert (found.fingerprints, found.state) == (fingerprints, state)


def test_measured_states(measured: StudyResult) -> None:
    by_launches = {s.launches: s for s in measured.states}
    assert set(by_launches) == {
        ("b1", "b4"), ("b2", "b3"), ("r1", "r2"), ("e2",), ("k1",), ("k2",), ("s1", "s2"),
    }  # fmt: skip
    name = {launch: s.name for s in measured.states for launch in s.launches}
    assert by_launches[("s1", "s2")].same_as == (name["e2"],)
    assert set(by_launches[("k1",)].same_as) == {name["r1"], name["b2"]}
    assert by_launches[("k2",)].same_as == ()
    assert by_launches[("b1", "b4")].same_as == ()


def test_measured_groups_by_one_evidence_alone(measured: StudyResult) -> None:
    """Completions put b2 and r1 together, fingerprints do not: r's prefill kernels are others."""
    by_launch = {o.launch: o for o in measured.observations}
    assert by_launch["b2"].output_group == by_launch["r1"].output_group == by_launch["k1"].output_group
    assert by_launch["b1"].output_group == by_launch["b4"].output_group != by_launch["b2"].output_group
    assert by_launch["e2"].output_group == by_launch["s1"].output_group == by_launch["s2"].output_group
    prints = {o.print_group for o in measured.observations}
    assert prints == set(range(1, 8))
    assert by_launch["b2"].print_group != by_launch["r1"].print_group


def test_measured_shares(measured: StudyResult) -> None:
    plain = next(a for a in measured.arms if a.arm == "plain")
    assert [(s.share.k, s.share.n) for s in plain.states] == [(2, 6), (2, 6), (2, 6)]
    interval = plain.states[0].share.clopper_pearson95
    assert interval is not None
    assert interval.low == pytest.approx(0.0433, abs=1e-4)
    assert interval.high == pytest.approx(0.7772, abs=1e-4)
    assert (plain.same_pairs, plain.pairs) == (3, 15)
    forced = next(a for a in measured.arms if a.arm == "forced")
    assert forced.states[0].share.clopper_pearson95 is None, "one launch says nothing of the share"
    assert all(o.repeatability.k == o.repeatability.n == 40 for o in measured.observations)


def test_measured_agreement_inside_and_across(measured: StudyResult) -> None:
    name = {launch: s.name for s in measured.states for launch in s.launches}
    inside = next(s.inside for s in measured.states if s.name == name["b1"])
    assert inside is not None
    assert (inside.pairs, inside.least.k, inside.greatest.k) == (1, 40, 40)
    across = next(c for c in measured.contrasts if {c.one, c.other} == {name["b1"], name["b2"]})
    assert (across.across.pairs, across.across.least.k, across.across.greatest.k) == (4, 1, 1)
    assert across.fingerprints == "differ"


# ------------------------------------------------------------------ scripted launches


def answers(n: int, wrong: int = 0) -> dict[str, Sequence[int]]:
    honest = {f"certification/{i}": answer_ids(i) for i in range(n)}
    return honest | {f"certification/{i}": differing(answer_ids(i), 3) for i in range(wrong)}


class Scripted:
    """A study of the plain target built launch by launch."""

    def __init__(self, n: int = 20, *configurations: str, warm: bool = False) -> None:
        arms, self.described = arms_of(*(configurations or ("plain",)), warm=warm)
        self.build = EvidenceBuilder(plan(arms=arms))
        self.build.prompts("certification", n)
        self.n = n
        self.count: dict[str, int] = {}

    def add(
        self,
        wrong: int = 0,
        *,
        second: int | None = None,
        state: str | None = "A",
        arm: str = "plain",
        **fields: Any,
    ) -> Launch:
        """A launch with `wrong` other answers in pass 1, `second` in pass 2 (as many by default)."""
        self.count[arm] = number = self.count.get(arm, 0) + 1
        launch = self.build.launch(arm, number, **fields)
        if state is not None:
            self.build.fingerprint(launch, state, shift=0.5 if state == "C" else 0.0)
        for n, other in ((1, wrong), (2, wrong if second is None else second)):
            self.build.phase(f"certify/{launch.id}/pass{n}", launch, answers(self.n, other))
        return launch

    def result(self, count: int = 4) -> StudyResult:
        return study(self.build.evidence, StudyPlan(count=count, arms=self.described))


def test_equal_fingerprints_with_other_answers_are_other_states() -> None:
    scripted = Scripted()
    scripted.add()
    scripted.add(wrong=18)
    result = scripted.result()
    assert [s.launches for s in result.states] == [("plain-1",), ("plain-2",)]
    assert [o.print_group for o in result.observations] == [1, 1]
    assert [o.output_group for o in result.observations] == [1, 2]


def test_without_a_fingerprint_the_sequential_test_decides() -> None:
    scripted = Scripted()
    scripted.add(state=None)
    scripted.add(wrong=1, state=None)
    scripted.add(wrong=18, state=None)
    result = scripted.result()
    assert [s.launches for s in result.states] == [("plain-1", "plain-2"), ("plain-3",)]
    assert result.states[0].fingerprint is None
    assert {p.fingerprints for p in result.pairs} == {"missing"}


def test_a_launch_that_does_not_repeat_itself_has_no_state() -> None:
    scripted = Scripted()
    scripted.add()
    scripted.add(second=5)
    result = scripted.result()
    arm = result.arms[0]
    assert (arm.observed, arm.without_state, arm.pairs, arm.same_pairs) == (2, 1, 1, 0)
    unstable = result.observations[1]
    assert unstable.state is None
    assert unstable.observed
    assert (unstable.repeatability.k, len(unstable.disagreeing)) == (15, 5)
    assert "repeat" in unstable.why


def test_undecided_pairs_are_not_one_state() -> None:
    scripted = Scripted(n=20)
    scripted.add()
    scripted.add(wrong=5)
    result = scripted.result()
    assert result.pairs[0].sprt_decision == "INTERMEDIATE"
    assert len(result.states) == 2


def test_failed_launches_are_listed_and_not_counted() -> None:
    scripted = Scripted()
    scripted.add()
    scripted.build.launch("plain", 2, state="failed", error="CUDA out of memory", ready_s=None)
    died = scripted.build.launch("plain", 3, state="died", error="engine died")
    scripted.build.phase("certify/plain-3/pass1", died, answers(20), state="error", reason="engine died")
    result = scripted.result()
    assert [o.observed for o in result.observations] == [True, False, False]
    assert result.observations[1].why == "CUDA out of memory"
    assert "engine died" in result.observations[2].why
    assert (result.arms[0].planned, result.arms[0].observed) == (4, 1)
    assert result.pairs == ()


def test_a_start_that_was_tried_again_counts_once() -> None:
    scripted = Scripted()
    scripted.build.launch("plain", 1, id="plain-1-failed", state="failed", error="a port race", ready_s=None)
    scripted.add()
    assert [o.launch for o in scripted.result().observations] == ["plain-1"]


def test_failed_requests_are_no_disagreement() -> None:
    scripted = Scripted()
    scripted.add()
    launch = scripted.build.launch("plain", 2)
    scripted.build.fingerprint(launch, "A")
    for n in (1, 2):
        replies: Mapping[str, Any] = answers(20) | {"certification/0": failure()}
        scripted.build.phase(f"certify/plain-2/pass{n}", launch, replies)
    result = scripted.result()
    assert (result.pairs[0].agreement.k, result.pairs[0].agreement.n) == (19, 19)
    assert result.states[0].launches == ("plain-1", "plain-2")


def test_arms_are_counted_apart_and_share_states() -> None:
    scripted = Scripted(20, "plain", "eagle3", warm=True)
    scripted.add()
    scripted.add(arm="plain-warm", cache_from="plain-1")
    scripted.add(wrong=18, state="B")
    scripted.add(wrong=1, state="C", arm="eagle3")
    result = scripted.result()
    by_arm = {a.arm: [(s.state, s.share.k, s.share.n) for s in a.states] for a in result.arms}
    assert by_arm == {
        "plain": [("A", 1, 2), ("B", 1, 2)],
        "plain-warm": [("A", 1, 1)],
        "eagle3": [("C", 1, 1)],
        "eagle3-warm": [],
    }
    eagle = result.states[2]
    assert (eagle.configuration, eagle.same_as) == ("eagle3", ("A",))
    assert result.states[0].same_as == ("C",)


def test_under_load_is_compared_with_the_launch_itself() -> None:
    scripted = Scripted()
    launch = scripted.add(wrong=2)
    replies = {k: [v, differing(v, 5)] for k, v in answers(20, 2).items()}
    scripted.build.phase("load/plain-1/n8/run1", launch, replies)
    load = scripted.result().observations[0].under_load
    assert load is not None
    assert (load.level, load.achieved, load.held_fraction) == (8, 8, 1.0)
    assert (load.agreement.k, load.agreement.n) == (20, 40)


def test_speculation_is_counted_over_both_passes() -> None:
    scripted = Scripted(20, "eagle3")
    launch = scripted.build.launch("eagle3", 1)
    for n in (1, 2):
        scripted.build.phase(f"certify/eagle3-1/pass{n}", launch, answers(20), drafts=(100, 150))
    found = scripted.result().observations[0]
    assert (found.drafts, found.acceptance_length) == (100, 2.5)


@given(st.lists(st.integers(0, 4), max_size=12))
def test_groups_are_the_classes_of_an_equivalence(kinds: list[int]) -> None:
    launches = [str(i) for i in range(len(kinds))]
    groups = states._groups(launches, lambda a, b: kinds[int(a)] == kinds[int(b)])
    for a, b in combinations(launches, 2):
        assert (groups[a] == groups[b]) == (kinds[int(a)] == kinds[int(b)])


@given(st.lists(st.booleans(), min_size=10, max_size=10))
def test_no_group_holds_a_pair_that_is_not_the_same(bits: list[bool]) -> None:
    launches = list("abcde")
    same = dict(zip(combinations(launches, 2), bits, strict=True))
    groups = states._groups(launches, lambda a, b: same[(min(a, b), max(a, b))])
    for a, b in combinations(launches, 2):
        assert groups[a] != groups[b] or same[(a, b)]


@pytest.mark.parametrize(
    ("n", "name"), [(0, "A"), (25, "Z"), (26, "AA"), (51, "AZ"), (52, "BA"), (702, "AAA")]
)
def test_letters(n: int, name: str) -> None:
    assert letters(n) == name
