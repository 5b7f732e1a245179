"""Repeated launches: k of R, and coverage of the crossed interval where launches really vary."""

from __future__ import annotations

import numpy as np
import pytest

from auditor.stats.launches import CONFIGURATION, ONE_LAUNCH, crossed_interval, design_effect, launch_states
from auditor.stats.proportions import clopper_pearson, confidence_sequence


def test_one_launch_claims_nothing_about_the_configuration() -> None:
    state = launch_states(1, 1)
    assert (state.scope, state.interval) == (ONE_LAUNCH, None)
    assert crossed_interval([[1, 0, 1, 1]]).scope == ONE_LAUNCH


def test_several_launches() -> None:
    assert launch_states(2, 14).interval == clopper_pearson(2, 14)
    assert launch_states(2, 14).scope == CONFIGURATION
    assert launch_states(2, 14, optional_stopping=True).interval == confidence_sequence(2, 14)


def simulated(rng: np.random.Generator, launches: int, problems: int, launch_sd: float) -> np.ndarray:
    problem = rng.normal(0.7, 0.2, problems)
    launch = rng.normal(0.0, launch_sd, (launches, 1))
    return problem + launch + rng.normal(0.0, 0.1, (launches, problems))


@pytest.mark.parametrize("launch_sd", [0.0, 0.05])
def test_coverage_for_new_launches_and_new_problems(launch_sd: float) -> None:
    rng = np.random.default_rng(17)
    replicates, covered = 800, 0
    for _ in range(replicates):
        interval = crossed_interval(simulated(rng, 6, 60, launch_sd)).interval
        covered += interval.lower <= 0.7 <= interval.upper
    # 0.95 less four standard errors of the simulated share.
    assert covered / replicates > 0.919


def test_ignoring_launches_would_cover_too_little() -> None:
    """The same tables treated as independent answers: the reason for the crossed interval."""
    rng = np.random.default_rng(17)
    covered = 0
    for _ in range(300):
        table = simulated(rng, 6, 60, 0.05)
        half = 1.96 * table.std(ddof=1) / np.sqrt(table.size)
        covered += abs(table.mean() - 0.7) <= half
    assert covered / 300 < 0.85


def test_variance_components_are_recovered() -> None:
    rng = np.random.default_rng(4)
    results = [crossed_interval(simulated(rng, 8, 200, 0.05)) for _ in range(100)]
    assert np.mean([r.launch_variance for r in results]) == pytest.approx(0.05**2, rel=0.15)
    assert np.mean([r.problem_variance for r in results]) == pytest.approx(0.2**2, rel=0.05)
    assert all(r.design_effect is not None and r.design_effect > 1 for r in results)


def test_both_sources_of_variation_add_up() -> None:
    """No residual, worked by hand: mean squares 0.06 (launches, 1 df) and 0.14/3 (problems, 2 df)."""
    result = crossed_interval([[0.0, 0.1, 0.3], [0.2, 0.3, 0.5]])
    total = 0.06 + 0.14 / 3
    assert result.se**2 == pytest.approx(total / 6)
    assert result.degrees_of_freedom == pytest.approx(total**2 / (0.06**2 + (0.14 / 3) ** 2 / 2))
    assert result.launch_variance == pytest.approx(0.02)


def test_repeating_the_same_answers_adds_no_information() -> None:
    """R identical launches are one launch: the standard error must not shrink with √R."""
    answers = np.random.default_rng(2).integers(0, 2, 200)
    one, five = crossed_interval([answers]), crossed_interval(np.tile(answers, (5, 1)))
    assert five.se == pytest.approx(one.se, rel=1e-9)
    assert five.mean == one.mean
    assert five.launch_variance == 0.0
    assert five.design_effect == pytest.approx(5.0, rel=0.01)


def test_no_variation() -> None:
    result = crossed_interval(np.ones((3, 10)))
    assert result.interval == (1.0, 1.0)
    assert result.design_effect is None


@pytest.mark.parametrize(
    "values",
    [[1, 0, 1], [[1], [0]], [[1.0, float("nan")], [0.0, 1.0]], np.zeros((0, 3)), np.zeros((2, 2, 2))],
)
def test_impossible_tables(values: object) -> None:
    with pytest.raises(ValueError, match="expected"):
        crossed_interval(values)  # type: ignore[arg-type]


def test_design_effect() -> None:
    assert design_effect(1, 0.5) == 1.0
    assert design_effect(5, 1.0) == 5.0
    assert design_effect(5, 0.1) == pytest.approx(1.4)
    for size, rho in ((0.5, 0.1), (5, 1.1), (5, -0.3), (0, 0)):
        with pytest.raises(ValueError, match="expected"):
            design_effect(size, rho)


def test_impossible_counts() -> None:
    with pytest.raises(ValueError, match="expected"):
        launch_states(3, 2)
