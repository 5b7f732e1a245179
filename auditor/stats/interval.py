"""The interval type that all estimators return, and the normal quantile they share."""

from __future__ import annotations

from typing import NamedTuple

from scipy.special import ndtri

from auditor.stats.checks import require_open_unit


class Interval(NamedTuple):
    """Two bounds, lower ≤ upper, in the unit of the quantity that they bound."""

    lower: float
    upper: float


def two_sided_z(confidence: float) -> float:
    """The normal quantile of a two-sided interval: 1.96 for 0.95, 1.645 for 0.90."""
    return float(ndtri(0.5 + require_open_unit("the confidence level", confidence) / 2))


def one_sided_z(alpha: float) -> float:
    """The normal quantile of a one-sided test of level `alpha`: 1.645 for 0.05."""
    return float(-ndtri(require_open_unit("alpha", alpha)))
