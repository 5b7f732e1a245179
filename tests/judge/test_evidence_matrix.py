"""Replays the launches measured on an H200: every pair is classified as the table in the facts says."""

from __future__ import annotations

import gzip
import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from auditor.judge.answers import Answers
from auditor.judge.certify import certificate, repeatability
from auditor.judge.invariance import levels
from auditor.judge.scene import Scene
from auditor.model.launch import Fingerprint, Launch
from auditor.model.plan import Arm, Draft
from tests.fakes.evidence import EvidenceBuilder, plan

FOLDER = Path(__file__).parents[1] / "data" / "evidence"
HEADS = ("s1", "s2", "k1", "k2")
NAMES = ("b1", "b2", "b3", "b4", "e2", "s1", "s2", "r1", "r2", "k1", "k2")
AGREEMENT = {
    ("b1", "b2"): 1, ("b1", "b3"): 1, ("b1", "b4"): 40, ("b2", "b3"): 40, ("b2", "b4"): 1, ("b3", "b4"): 1,
    ("e2", "s1"): 37, ("e2", "s2"): 37, ("s1", "s2"): 40, ("r1", "r2"): 40, ("r2", "k1"): 38, ("r2", "k2"): 0,
    ("r1", "k1"): 38, ("r1", "k2"): 0,
}  # fmt: skip
EQUAL_FINGERPRINTS = {("b1", "b4"), ("b2", "b3"), ("s1", "s2"), ("r1", "r2")}
STATES = {
    # plain pairs: the control's rule
    ("b1", "b2"): "OTHER STATE",
    ("b1", "b4"): "SAME STATE",
    ("b2", "b3"): "SAME STATE",
    ("b3", "b4"): "OTHER STATE",
    ("r1", "r2"): "SAME STATE",
    # a head against a plain launch: fingerprints differ, the sequential test decides
    ("e2", "s1"): "SAME STATE",
    ("r2", "k1"): "SAME STATE",
    ("r2", "k2"): "OTHER STATE",
    # two launches with the same head
    ("s1", "s2"): "SAME STATE",
}


def measured() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for file in sorted(FOLDER.glob("launches_*.json.gz")):
        found |= json.loads(gzip.decompress(file.read_bytes()))
    return found


@pytest.fixture(scope="module")
def build() -> EvidenceBuilder:
    made = EvidenceBuilder(
        plan(
            arms=(
                Arm(name="reference", role="reference"),
                *(Arm(name=n, role="control") for n in NAMES if n not in HEADS),
                *(
                    Arm(name=n, role="candidate", draft=Draft(name=n, method="eagle3", path="head"))
                    for n in HEADS
                ),
            )
        )
    )
    made.prompts("certification", 40)
    for name, data in measured().items():
        launch = made.launch(name, id=name)
        made.evidence.fingerprints.append(Fingerprint(launch=name, digest=data["prefill_fp"], prompts=()))
        for run, key in ((1, "solo"), (2, "again")):
            made.phase(
                f"certify/{name}/pass{run}",
                launch,
                {f"certification/{i}": {"token_ids": ids} for i, ids in enumerate(data[key])},
            )
        made.phase(
            f"batch1/{name}/certification",
            launch,
            {f"certification/{i}": {"token_ids": ids} for i, ids in enumerate(data["solo"])},
        )
        made.phase(
            f"load/{name}/n32/run1",
            launch,
            {f"certification/{i}": {"token_ids": ids} for i, ids in enumerate(data["conc"])},
        )
    return made


def launch(build: EvidenceBuilder, name: str) -> Launch:
    return next(x for x in build.evidence.launches if x.id == name)


def test_all_launches_are_there() -> None:
    assert set(measured()) == set(NAMES)


@pytest.mark.parametrize("pair", sorted(AGREEMENT), ids="-".join)
def test_completions_agree_as_measured(build: EvidenceBuilder, pair: tuple[str, str]) -> None:
    found = certificate(launch(build, pair[0]), launch(build, pair[1]), build.evidence)
    assert (found.agreement.k, found.agreement.n) == (AGREEMENT[pair], 40)


@pytest.mark.parametrize("pair", list(itertools.combinations(NAMES, 2)), ids="-".join)
def test_fingerprints_tell_the_states(build: EvidenceBuilder, pair: tuple[str, str]) -> None:
    found = certificate(launch(build, pair[0]), launch(build, pair[1]), build.evidence)
    assert found.fingerprints == ("equal" if pair in EQUAL_FINGERPRINTS else "differ")
    if found.fingerprints == "equal":
        assert found.agreement.k == 40


@pytest.mark.parametrize("pair", sorted(STATES), ids="-".join)
def test_pairs_are_classified_as_the_table_says(build: EvidenceBuilder, pair: tuple[str, str]) -> None:
    found = certificate(launch(build, pair[0]), launch(build, pair[1]), build.evidence)
    assert found.state == STATES[pair]
    assert str(found.agreement.n) in found.why or "fingerprints" in found.why


@pytest.mark.parametrize("name", NAMES)
def test_every_launch_repeats_itself(build: EvidenceBuilder, name: str) -> None:
    found = repeatability(launch(build, name), build.evidence)
    assert (found.agreement.k, found.agreement.n, found.disagreeing) == (40, 40, ())


@pytest.mark.parametrize("name", NAMES)
def test_hardly_anything_survives_32_in_flight(build: EvidenceBuilder, name: str) -> None:
    found = levels(Scene(build.evidence), Answers(build.evidence), launch(build, name), name in HEADS)
    assert found[32].figures.self_agreement.k == measured()[name]["batch32"]
    assert found[32].figures.self_agreement.n == 32


def cd_rows() -> list[tuple[str, str, int, bool]]:
    text = (FOLDER / "launches_cd.txt").read_text()
    rows = re.findall(r"(\w\d) ~ (\w\d) agree (\d+) /40 .* same fp (True|False)", text)
    return [(a, b, int(k), same == "True") for a, b, k, same in rows]


def _with(agreeing: int, same_fingerprint: bool) -> tuple[EvidenceBuilder, Launch, Launch]:
    """Two plain launches with so many equal completions of 40, whose ids were not kept."""
    made = EvidenceBuilder(plan())
    ids = [p.id for p in made.prompts("certification", 40)]
    one, two = made.launch("reference"), made.launch("control")
    made.fingerprint(one, "A")
    made.fingerprint(two, "A" if same_fingerprint else "B")
    for who, differs in ((one, 0), (two, 40 - agreeing)):
        for run in (1, 2):
            made.phase(
                f"certify/{who.id}/pass{run}",
                who,
                {p: (5, 6, 9 if i < differs else 7) for i, p in enumerate(ids)},
            )
    return made, one, two


@pytest.mark.parametrize(("one", "two", "agreeing", "same"), cd_rows())
def test_text_only_launches(one: str, two: str, agreeing: int, same: bool) -> None:
    made, first, second = _with(agreeing, same)
    found = certificate(first, second, made.evidence)
    assert found.state == ("SAME STATE" if same else "OTHER STATE"), (one, two)
    assert found.agreement.k == agreeing
