"""Paired difference of two proportions: score test and interval, McNemar, and intervals to compare with.

Convention throughout: b = right in the candidate alone, c = right in the reference alone, n = pairs,
δ = p_candidate − p_reference, estimated by (b − c)/n. Differences and margins are fractions, not points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import bdtr, ndtr

from auditor.stats.checks import require_alpha, require_count, require_open_unit
from auditor.stats.interval import Interval, one_sided_z, two_sided_z
from auditor.stats.proportions import wilson
from auditor.stats.table import PairedTable

Floats = npt.NDArray[np.float64]

# The statistic diverges at δ0 = ±1 unless every pair is discordant that way; a root closer to it is given
# as ±1.
_EDGE = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class McNemar:
    """Two-sided p values of 'the discordant pairs fall either way equally often'; both 1 without any."""

    exact: float
    mid_p: float


def score_statistics(candidate_only: Floats, reference_only: Floats, n: int, delta0: float) -> Floats:
    """Tango's score statistic T(δ0) for arrays of counts (no checks; see `score_statistic`)."""
    b, c = candidate_only, reference_only
    a_ = 2.0 * n
    b_ = -(b + c) + (2.0 * n - b + c) * delta0
    c_ = -c * delta0 * (1.0 - delta0)
    root = np.sqrt(np.maximum(b_ * b_ - 4.0 * a_ * c_, 0.0))
    # (root − B) cancels when B > 0; the other form of the same root does not.
    with np.errstate(divide="ignore", invalid="ignore"):
        q = np.where(b_ > 0.0, -2.0 * c_ / (b_ + root), (root - b_) / (2.0 * a_))
    q = np.clip(q, max(0.0, -delta0), (1.0 - delta0) / 2.0)
    numerator = b - c - n * delta0
    variance = np.maximum(n * (2.0 * q + delta0 * (1.0 - delta0)), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = numerator / np.sqrt(variance)
    result: Floats = np.where(numerator == 0.0, 0.0, statistic)
    return result


def score_statistic(candidate_only: int, reference_only: int, n: int, delta0: float) -> float:
    """Tango's score statistic of H: δ = δ0, standard normal under it for large n.

    T(δ0) = (b − c − nδ0)/√(n(2q + δ0(1 − δ0))), q the restricted maximum-likelihood estimate of the
    probability 'reference alone'. Equals (b − c)/√(b + c), McNemar's z, at δ0 = 0. Rises with b and falls
    with c and δ0. ±inf where the null leaves no variance and the data differ from it; 0 where they do not.
    ValueError for negative counts, b + c > n, or δ0 outside [−1, 1].
    Source: Tango 1998, Stat Med 17:891; Nam 1997, Biometrics 53:1422.
    """
    b, c = _require_discordant(candidate_only, reference_only, n)
    if not -1.0 <= delta0 <= 1.0:
        raise ValueError(f"The difference under test is {delta0:g}: expected a number from −1 to 1.")
    return float(score_statistics(np.asarray(float(b)), np.asarray(float(c)), n, float(delta0)))


def score_interval(candidate_only: int, reference_only: int, n: int, confidence: float) -> Interval:
    """Two-sided interval for δ by inverting the score test: T(L) = z, T(U) = −z.

    Always contains (b − c)/n. L = −1 where c = n and U = 1 where b = n; ±z²/(n + z²) without discordance.
    Source: Tango 1998. The 90% interval is the one that belongs to two one-sided tests at 5%.
    """
    b, c = _require_discordant(candidate_only, reference_only, n)
    z = two_sided_z(confidence)
    # U(b, c) = −L(c, b): one root finder serves both bounds.
    return Interval(_lower_limit(b, c, n, z), -_lower_limit(c, b, n, z))


def _lower_limit(b: int, c: int, n: int, z: float) -> float:
    if c == n:
        return -1.0
    start = -1.0 + _EDGE
    estimate = (b - c) / n
    if estimate <= start or score_statistic(b, c, n, start) <= z:
        return -1.0
    return float(brentq(lambda d: score_statistic(b, c, n, d) - z, start, estimate, xtol=1e-15, rtol=1e-15))


def score_p_lower(candidate_only: int, reference_only: int, n: int, margin: float) -> float:
    """One-sided score p of H: δ ≤ −margin (the candidate is worse), 1 − Φ(T(−margin))."""
    return float(
        ndtr(-score_statistic(candidate_only, reference_only, n, -require_open_unit("margin", margin)))
    )


def score_p_upper(candidate_only: int, reference_only: int, n: int, margin: float) -> float:
    """One-sided score p of H: δ ≥ +margin (the candidate is better), Φ(T(margin))."""
    return float(
        ndtr(score_statistic(candidate_only, reference_only, n, require_open_unit("margin", margin)))
    )


def smallest_margin(candidate_only: int, reference_only: int, n: int, alpha: float = 0.05) -> float:
    """Δ* = max(−L, U) of the 1 − 2α score interval: margins above it are shown by the score test."""
    lower, upper = score_interval(candidate_only, reference_only, n, 1.0 - 2.0 * require_alpha(alpha))
    return max(-lower, upper)


def floor_margin(discordant: float, n: int, alpha: float = 0.05) -> float:
    """The smallest margin that n pairs with m discordant ones could show, z√(m + z²)/(n + z²).

    It is the score interval's limit when the m pairs split evenly. `discordant` may be an expected,
    fractional number (planning); 0 ≤ m ≤ n, else ValueError.
    """
    n = require_count("n", n, least=1)
    if not 0.0 <= discordant <= n:
        raise ValueError(f"{discordant:g} discordant pairs among {n}: expected from 0 to n.")
    z = one_sided_z(require_alpha(alpha))
    return z * math.sqrt(discordant + z * z) / (n + z * z)


def minimum_n(margin: float, alpha: float = 0.05) -> int:
    """⌈ln α / ln(1 − Δ)⌉: with fewer pairs not even perfect concordance can show the margin (59 for 0.05)."""
    return math.ceil(math.log(require_alpha(alpha)) / math.log1p(-require_open_unit("margin", margin)))


def mcnemar(candidate_only: int, reference_only: int) -> McNemar:
    """McNemar's exact and mid-p tests of b against c ~ Bin(b + c, 1/2), two-sided.

    exact = min(1, 2 P(X ≤ min(b, c))); mid_p = exact − P(X = min(b, c)), and 1 − P(X = b)/2 where b = c.
    Source: Fagerland, Lydersen & Laake 2013, BMC Med Res Methodol 13:91. b = c = 0 gives 1.
    """
    b = require_count("the count 'candidate only'", candidate_only)
    c = require_count("the count 'reference only'", reference_only)
    m, k = b + c, min(b, c)
    if m == 0:
        return McNemar(exact=1.0, mid_p=1.0)
    tail = float(bdtr(k, m, 0.5))
    below = float(bdtr(k - 1, m, 0.5)) if k > 0 else 0.0
    if b == c:
        return McNemar(exact=1.0, mid_p=1.0 - (tail - below) / 2.0)
    return McNemar(exact=min(1.0, 2.0 * tail), mid_p=tail + below)


def mcnemar_lower(candidate_only: int, reference_only: int) -> float:
    """One-sided exact McNemar p of 'the candidate is not lower': P(X ≤ b), X ~ Bin(b + c, 1/2).

    1 without a discordant pair; for b < c half of `mcnemar`'s exact p.
    """
    b = require_count("the count 'candidate only'", candidate_only)
    c = require_count("the count 'reference only'", reference_only)
    return float(bdtr(b, b + c, 0.5)) if b + c else 1.0


def newcombe10(table: PairedTable, confidence: float) -> Interval:
    """Newcombe's method 10: Wilson limits of either arm, squared and added with the φ correlation.

    φ's numerator ad − bc is reduced by n/2 where positive (not below 0); φ = 0 where a margin is empty.
    Source: Newcombe 1998, Stat Med 17:2635. Bounds lie in [−1, 1] and contain the estimate.
    """
    a, b, c, d, n = table.both, table.candidate_only, table.reference_only, table.neither, table.n
    p1, p2 = table.candidate_right / n, table.reference_right / n
    low1, high1 = wilson(table.candidate_right, n, confidence)
    low2, high2 = wilson(table.reference_right, n, confidence)
    product = math.sqrt((a + b) * (c + d)) * math.sqrt((a + c) * (b + d))
    numerator = float(a * d - b * c)
    if numerator > 0:
        numerator = max(numerator - n / 2, 0.0)
    phi = numerator / product if product > 0 else 0.0

    def spread(left: float, right: float) -> float:
        return math.sqrt(max(left * left - 2.0 * phi * left * right + right * right, 0.0))

    delta = table.difference
    return Interval(
        max(-1.0, delta - spread(p1 - low1, high2 - p2)), min(1.0, delta + spread(high1 - p1, p2 - low2))
    )


def wald(candidate_only: int, reference_only: int, n: int, confidence: float) -> Interval:
    """(b − c)/n ± z√(b + c − (b − c)²/n)/n, the paired interval that most reports print; not cut to [−1, 1].

    Of width 0 where b = c = 0 (it would certify anything) and too short for few discordant pairs: beside the
    score interval for comparison, never for a verdict.
    """
    b, c = _require_discordant(candidate_only, reference_only, n)
    half = two_sided_z(confidence) * math.sqrt(b + c - (b - c) ** 2 / n) / n
    return Interval((b - c) / n - half, (b - c) / n + half)


def agresti_min(candidate_only: int, reference_only: int, n: int, confidence: float) -> Interval:
    """Wald interval after adding ½ to each of the four cells, cut to [−1, 1].

    Source: Agresti & Min 2005, Stat Med 24:729. A closed form to compare with; no verdict rests on it.
    """
    b, c = _require_discordant(candidate_only, reference_only, n)
    size = n + 2.0
    estimate = (b - c) / size
    variance = ((b + c + 1.0) - (b - c) ** 2 / size) / size**2
    half = two_sided_z(confidence) * math.sqrt(variance)
    return Interval(max(-1.0, estimate - half), min(1.0, estimate + half))


def _require_discordant(candidate_only: int, reference_only: int, n: int) -> tuple[int, int]:
    n = require_count("n", n, least=1)
    b = require_count("the count 'candidate only'", candidate_only)
    c = require_count("the count 'reference only'", reference_only)
    if b + c > n:
        raise ValueError(f"{b} + {c} discordant pairs among {n}: expected at most n.")
    return b, c
