"""Published claims about two accuracies, through `audit stats tost`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases.audits import cli, says


def tost(both: int, candidate_only: int, reference_only: int, neither: int, margin: float) -> dict[str, Any]:
    ran = cli(
        Path("nowhere"),
        "stats",
        "tost",
        f"--both={both}",
        f"--candidate-only={candidate_only}",
        f"--reference-only={reference_only}",
        f"--neither={neither}",
        f"--margin={margin}",
        "--json",
    )
    assert ran.code == 0, ran.err
    found: dict[str, Any] = json.loads(ran.out)
    return found


def test_H1_pairs_show_a_loss_that_the_unpaired_test_hides() -> None:
    """1,055 against 1,040 of 1,319 right, 30 lost and 15 gained."""
    at_one = tost(1025, 15, 30, 249, 0.01)
    assert at_one["mcnemar"]["exact"] == pytest.approx(0.036, abs=5e-4)
    assert at_one["verdict"] == "not equivalent"
    low, high = at_one["paired_wald"]["ci90"]
    assert (low, high) == (pytest.approx(-0.0197, abs=5e-5), pytest.approx(-0.0030, abs=5e-5))
    at_two = tost(1025, 15, 30, 249, 0.02)
    assert low > -0.02
    # the score test is a little stricter than the Wald interval of the report: .054 at two points
    assert at_two["score"]["p"] == pytest.approx(0.054, abs=5e-4)
    assert at_two["smallest_margin"] == pytest.approx(0.0202, abs=5e-5)
    says(at_one["reason"], "was not shown")


def test_H2_no_significance_is_no_equivalence() -> None:
    found = tost(189, 4, 9, 48, 0.02)
    assert found["mcnemar"]["exact"] == pytest.approx(0.27, abs=5e-3)
    assert found["paired_wald"]["ci90"] == pytest.approx([-0.0436, 0.0036], abs=5e-5)
    assert found["verdict"] == "inconclusive"
    says(found["reason"], "too few for 0.02")


def test_H4_no_discordance_is_an_interval_and_no_crash() -> None:
    found = tost(1000, 0, 0, 319, 0.05)
    low, high = found["score"]["ci90"]
    assert low < 0 < high < 0.0023
    assert found["verdict"] == "equivalent"
