"""Error rates of the whole judgement on arms with known truth (docs/operating-characteristics.md has all)."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from auditor.stats.proportions import clopper_pearson

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture(scope="module")
def simulated() -> ModuleType:
    """tools/simulated_audits.py; its folder is no package."""
    sys.path.insert(0, str(TOOLS))
    try:
        return importlib.import_module("simulated_audits")
    finally:
        sys.path.remove(str(TOOLS))


def verdicts(simulated: ModuleType, audits: int, **truth: object) -> Counter[str]:
    made = simulated.Truth(**truth)
    return Counter(simulated.audit(made, seed)[0].verdict.name for seed in range(audits))


def test_equal_arms_fail_no_more_often_than_promised(simulated: ModuleType) -> None:
    """Every gate, 5% each of the load gate and of the accuracy gate, which may add up."""
    flips, audits = (0.1, 0.1), 60
    found = verdicts(simulated, audits, flips=flips, problems=150, discordance=0.04)
    assert clopper_pearson(found["FAIL"], audits, 0.99).lower <= 0.10, found
    assert not found["UNCERTIFIED"], found


def test_equal_accuracy_fails_no_more_often_than_alpha(simulated: ModuleType) -> None:
    """Where equal arms often cannot show equivalence, they end as INCONCLUSIVE, not as FAIL."""
    audits = 60
    found = verdicts(simulated, audits, gates=("accuracy",), certification=8, problems=100, discordance=0.03)
    assert clopper_pearson(found["FAIL"], audits, 0.99).lower <= 0.05, found
    assert found["INCONCLUSIVE"] > audits / 4, found


def test_planted_faults_are_caught(simulated: ModuleType) -> None:
    gates = ("certification", "head-ran", "agreement")
    flips = verdicts(simulated, 20, gates=gates, hazard=0.02)
    assert flips["FAIL"] == 20, flips
    states = verdicts(simulated, 20, gates=gates, other_state=1.0)
    assert states["UNCERTIFIED"] == 20, states
    worse = verdicts(simulated, 10, gates=("accuracy",), certification=8, difference=-0.2, discordance=0.24)
    assert worse["FAIL"] == 10, worse
