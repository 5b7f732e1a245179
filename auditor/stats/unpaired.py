"""Two independent proportions: the tests that published studies report, beside the paired ones.

Difference = first − second (candidate − reference), as a fraction. On paired items they ignore the pairing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.optimize import brentq
from scipy.special import ndtr

from auditor.stats.checks import require_alpha, require_count, require_successes, require_unit
from auditor.stats.interval import Interval, one_sided_z, two_sided_z


@dataclass(frozen=True, slots=True, kw_only=True)
class WaldTost:
    """Two one-sided Wald tests. With both arms at 0% or 100% the SE is 0; z and p are None, undefined."""

    difference: float
    se: float
    z_lower: float | None
    p_lower: float | None
    z_upper: float | None
    p_upper: float | None
    p: float | None
    smallest_margin: float | None
    """|difference| + z·SE: what the test would show with a symmetric margin."""
    floor_margin: float | None
    """z·SE: what it would show had the arms scored equally."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTost:
    """Two one-sided score tests of independent proportions."""

    z_lower: float
    p_lower: float
    z_upper: float
    p_upper: float
    p: float


def wald_tost(
    x1: int, n1: int, x2: int, n2: int, low: float = -0.05, high: float = 0.05, alpha: float = 0.05
) -> WaldTost:
    """TOST of low < p1 − p2 < high with SE = √(p1q1/n1 + p2q2/n2).

    The reproduction of the published figures: 905 against 912 of 1,319 gives SE 0.0180, p 0.0066, margin
    0.035, floor 0.030. ValueError for impossible counts or low ≥ high.
    """
    difference, se = _difference(x1, n1, x2, n2)
    _require_bounds(low, high)
    if se == 0.0:
        return WaldTost(
            difference=difference,
            se=0.0,
            z_lower=None,
            p_lower=None,
            z_upper=None,
            p_upper=None,
            p=None,
            smallest_margin=None,
            floor_margin=None,
        )
    z_lower, z_upper = (difference - low) / se, (difference - high) / se
    p_lower, p_upper = float(ndtr(-z_lower)), float(ndtr(z_upper))
    floor = one_sided_z(require_alpha(alpha)) * se
    return WaldTost(
        difference=difference,
        se=se,
        z_lower=z_lower,
        p_lower=p_lower,
        z_upper=z_upper,
        p_upper=p_upper,
        p=max(p_lower, p_upper),
        smallest_margin=abs(difference) + floor,
        floor_margin=floor,
    )


def wald_interval(x1: int, n1: int, x2: int, n2: int, confidence: float) -> Interval:
    """(p1 − p2) ± z·SE, not cut to [−1, 1]. Of width 0, and no evidence, with both arms at 0% or 100%."""
    difference, se = _difference(x1, n1, x2, n2)
    half = two_sided_z(confidence) * se
    return Interval(difference - half, difference + half)


def floor_margin_independent(proportion: float, n: int, alpha: float = 0.05) -> float:
    """z√(2p(1 − p)/n): the least margin that two independent samples of n at accuracy p can show by Wald."""
    p, n = require_unit("the proportion", proportion), require_count("n", n, least=1)
    return one_sided_z(require_alpha(alpha)) * math.sqrt(2.0 * p * (1.0 - p) / n)


def power_independent(proportion: float, n: int, margin: float, alpha: float = 0.05) -> float:
    """Power of the Wald TOST at equal true accuracies, max(0, 2Φ(Δ/SE − z) − 1); 1 where p is 0 or 1."""
    floor = floor_margin_independent(proportion, n, alpha)
    if floor == 0.0:
        return 1.0
    z = one_sided_z(alpha)
    return max(0.0, 2.0 * float(ndtr(margin * z / floor - z)) - 1.0)


def farrington_manning_tost(
    x1: int,
    n1: int,
    x2: int,
    n2: int,
    low: float = -0.05,
    high: float = 0.05,
    *,
    miettinen_nurminen: bool = False,
) -> ScoreTost:
    """TOST with the variance taken at the maximum-likelihood proportions under each null.

    `miettinen_nurminen` multiplies the variance by N/(N − 1), N = n1 + n2. Source: Farrington & Manning 1990,
    Stat Med 9:1447; Miettinen & Nurminen 1985, Stat Med 4:213. Defined for every count.
    """
    require_successes(x1, n1)
    require_successes(x2, n2)
    _require_bounds(low, high)
    z_lower = _score_z(x1, n1, x2, n2, low, miettinen_nurminen)
    z_upper = _score_z(x1, n1, x2, n2, high, miettinen_nurminen)
    p_lower, p_upper = float(ndtr(-z_lower)), float(ndtr(z_upper))
    return ScoreTost(
        z_lower=z_lower, p_lower=p_lower, z_upper=z_upper, p_upper=p_upper, p=max(p_lower, p_upper)
    )


def score_interval_independent(
    x1: int, n1: int, x2: int, n2: int, confidence: float, *, miettinen_nurminen: bool = False
) -> Interval:
    """Interval for p1 − p2 by inverting the score test (Mee's without the N/(N − 1) factor); in [−1, 1]."""
    difference, _ = _difference(x1, n1, x2, n2)
    z = two_sided_z(confidence)
    edge = 1.0 - 1e-12

    def above(d: float) -> float:
        return _score_z(x1, n1, x2, n2, d, miettinen_nurminen) - z

    def below(d: float) -> float:
        return _score_z(x1, n1, x2, n2, d, miettinen_nurminen) + z

    lower = -1.0 if difference <= -edge or above(-edge) <= 0 else float(brentq(above, -edge, difference))
    upper = 1.0 if difference >= edge or below(edge) >= 0 else float(brentq(below, difference, edge))
    return Interval(lower, upper)


def _score_z(x1: int, n1: int, x2: int, n2: int, delta0: float, miettinen_nurminen: bool) -> float:
    numerator = x1 / n1 - x2 / n2 - delta0
    if numerator == 0.0:
        return 0.0
    r1, r2 = _restricted_proportions(x1, n1, x2, n2, delta0)
    variance = r1 * (1.0 - r1) / n1 + r2 * (1.0 - r2) / n2
    if miettinen_nurminen:
        variance *= (n1 + n2) / (n1 + n2 - 1.0)
    return numerator / math.sqrt(variance) if variance > 0.0 else math.copysign(math.inf, numerator)


def _restricted_proportions(x1: int, n1: int, x2: int, n2: int, delta0: float) -> tuple[float, float]:
    """Maximum-likelihood (p1, p2) subject to p1 − p2 = δ0: the root of a cubic, in its trigonometric form."""
    theta = n2 / n1
    p1, p2 = x1 / n1, x2 / n2
    a = 1.0 + theta
    b = -(1.0 + theta + p1 + theta * p2 + delta0 * (theta + 2.0))
    c = delta0 * delta0 + delta0 * (2.0 * p1 + theta + 1.0) + p1 + theta * p2
    d = -p1 * delta0 * (1.0 + delta0)
    v = b**3 / (3.0 * a) ** 3 - b * c / (6.0 * a * a) + d / (2.0 * a)
    u = math.copysign(math.sqrt(max(b * b / (3.0 * a) ** 2 - c / (3.0 * a), 0.0)), v)
    # v/u³ is a cosine; rounding can carry it just past ±1, and u = 0 means a triple root.
    ratio = max(-1.0, min(1.0, v / u**3)) if u != 0.0 else 1.0
    w = (math.pi + math.acos(ratio)) / 3.0
    r1 = 2.0 * u * math.cos(w) - b / (3.0 * a)
    r1 = min(max(r1, 0.0, delta0), 1.0, 1.0 + delta0)
    return r1, min(max(r1 - delta0, 0.0), 1.0)


def _difference(x1: int, n1: int, x2: int, n2: int) -> tuple[float, float]:
    require_successes(x1, n1)
    require_successes(x2, n2)
    p1, p2 = x1 / n1, x2 / n2
    return p1 - p2, math.sqrt(p1 * (1.0 - p1) / n1 + p2 * (1.0 - p2) / n2)


def _require_bounds(low: float, high: float) -> None:
    if not -1.0 <= low < high <= 1.0:
        raise ValueError(f"Equivalence bounds {low:g} and {high:g}: expected −1 ≤ low < high ≤ 1.")
