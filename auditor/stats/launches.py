"""Repeated launches: how many were in one state, and accuracy when launches and problems both vary."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from auditor.stats.checks import require_open_unit, require_positive, require_successes
from auditor.stats.interval import Interval
from auditor.stats.proportions import clopper_pearson, confidence_sequence

ONE_LAUNCH = "this launch"
"""Scope of a result from one launch: no claim about the configuration."""
CONFIGURATION = "this configuration"
"""Scope of a result from several launches: it extends to further launches of the same configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchStates:
    """k of R launches in the state of interest."""

    successes: int
    launches: int
    scope: str
    """`ONE_LAUNCH` or `CONFIGURATION`."""
    interval: Interval | None
    """Of the share of launches in that state; None for one launch, which says nothing about the share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossedInterval:
    """The mean of a launches × problems table, with an interval for new launches and new problems."""

    mean: float
    se: float
    degrees_of_freedom: float
    interval: Interval
    scope: str
    launch_variance: float
    """Estimated variance component between launches; 0 where the estimate is negative or R = 1."""
    problem_variance: float
    """Estimated variance component between problems; for R = 1 all variation between problems."""
    design_effect: float | None
    """se² over that of as many independent answers; None where the answers do not vary."""


def launch_states(
    successes: int, launches: int, confidence: float = 0.95, *, optional_stopping: bool = False
) -> LaunchStates:
    """k of R launches, with Clopper–Pearson, or a confidence sequence where one launched until it fitted.

    ValueError unless 0 ≤ k ≤ R, R ≥ 1.
    """
    k, r = require_successes(successes, launches)
    if r == 1:
        return LaunchStates(successes=k, launches=r, scope=ONE_LAUNCH, interval=None)
    bound = confidence_sequence if optional_stopping else clopper_pearson
    return LaunchStates(successes=k, launches=r, scope=CONFIGURATION, interval=bound(k, r, confidence))


def crossed_interval(values: npt.ArrayLike, confidence: float = 0.95) -> CrossedInterval:
    """Interval for the mean of `values`, shape (R launches, N problems), launches and problems both random.

    Two-way analysis of variance without replication: Var(mean) = (MS_launch + MS_problem − MS_residual)/(RN),
    not below either single factor's share (MS/(RN)), with Satterthwaite's degrees of freedom and a t
    quantile. `values` are 0/1 answers of one arm, or candidate − reference differences (−1, 0, 1) whose row r
    takes launch r of either arm. For R = 1 only problems vary and the scope is `ONE_LAUNCH`. No value may be
    missing: NaN, N < 2 or another shape is a ValueError. With R of 2 to 4 the t quantile is large; that is
    what so few launches can say. Source: Satterthwaite 1946, Biometrics Bull 2:110; Searle, Casella &
    McCulloch 1992, chapter 4.
    """
    require_open_unit("the confidence level", confidence)
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] < 1 or table.shape[1] < 2:
        raise ValueError(
            f"A table of shape {table.shape}: expected launches × problems, with at least 2 problems."
        )
    if not np.isfinite(table).all():
        raise ValueError(
            "A launch × problem cell is missing: expected an answer of every launch to every problem."
        )
    r, n = table.shape
    mean = float(table.mean())
    ms_problem = r * float(table.mean(axis=0).var(ddof=1))
    cells = r * n
    if r == 1:
        variance, freedom, launch_part, problem_part = ms_problem / cells, n - 1.0, 0.0, ms_problem
    else:
        ms_launch = n * float(table.mean(axis=1).var(ddof=1))
        residual = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + mean
        ms_residual = float((residual**2).sum()) / ((r - 1) * (n - 1))
        variance = max(ms_launch + ms_problem - ms_residual, ms_launch, ms_problem) / cells
        freedom = _satterthwaite(
            variance * cells, ((ms_launch, r - 1), (ms_problem, n - 1), (ms_residual, (r - 1) * (n - 1)))
        )
        launch_part = max(0.0, ms_launch - ms_residual) / n
        problem_part = max(0.0, ms_problem - ms_residual) / r
    se = math.sqrt(variance)
    half = float(stdtrit(freedom, 0.5 + confidence / 2.0)) * se
    independent = float(table.var(ddof=1)) / cells
    return CrossedInterval(
        mean=mean,
        se=se,
        degrees_of_freedom=freedom,
        interval=Interval(mean - half, mean + half),
        scope=ONE_LAUNCH if r == 1 else CONFIGURATION,
        launch_variance=launch_part,
        problem_variance=problem_part,
        design_effect=variance / independent if independent > 0.0 else None,
    )


def _satterthwaite(total: float, squares: tuple[tuple[float, int], ...]) -> float:
    """total²/Σ MS²/df, between the least df and their sum; the least where nothing varies."""
    spread = sum(ms * ms / df for ms, df in squares)
    least, most = min(df for _, df in squares), sum(df for _, df in squares)
    return float(least) if spread == 0.0 else min(max(total * total / spread, float(least)), float(most))


def design_effect(cluster_size: float, intraclass_correlation: float) -> float:
    """1 + (m − 1)ρ: how many times the variance grows when answers come in clusters of mean size m.

    Source: Kish 1965. m ≥ 1 and ρ in [−1/(m − 1), 1], else ValueError; N/deff is the effective sample size.
    """
    size, rho = require_positive("the cluster size", cluster_size), float(intraclass_correlation)
    if size < 1.0:
        raise ValueError(f"A cluster size of {size:g}: expected at least 1.")
    effect = 1.0 + (size - 1.0) * rho
    if not (rho <= 1.0 and effect >= 0.0):
        raise ValueError(f"An intraclass correlation of {rho:g}: expected from −1/(m − 1) to 1.")
    return effect
