"""The exact unconditional test of a paired margin: the guard beside the score test.

The score statistic orders the tables; the p value is the largest probability, over every null that the margin
allows, of a table at least as extreme as the one seen. Nothing is asymptotic, so zero discordance, small n
and one-sided splits need no special case.

With b, c the discordant counts, the lower null on its boundary is p12 = s, p21 = s + Δ, 0 ≤ s ≤ (1 − Δ)/2.
T rises in b, so the extreme tables are {b ≥ k(c)} and the probability is a sum over c alone:
Σ_c Bin(c; n, p21) · P(Bin(n − c, p12/(1 − p21)) ≥ k(c)). The upper null is the lower with b and c exchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq, minimize_scalar
from scipy.special import betainc, gammaln, xlog1py, xlogy

from auditor.stats.checks import require_alpha, require_count, require_open_unit
from auditor.stats.interval import one_sided_z
from auditor.stats.paired import Floats, score_statistic, score_statistics, smallest_margin

# Tables with mathematically equal statistics differ by rounding; this much apart counts as a tie.
_TIE = 1e-9
# Terms below e⁻⁴⁵ of the largest bound cannot change a p value in its 14th digit.
_NEGLIGIBLE = 45.0
_GRID = 160
_PEAKS_REFINED = 4
_LARGEST_MARGIN = 1.0 - 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactTost:
    """Exact unconditional p values of both nulls; each in [0, 1]."""

    p_lower: float
    """Of H: δ ≤ −margin."""
    p_upper: float
    """Of H: δ ≥ +margin."""
    p: float
    """The larger: equivalence needs both nulls rejected."""


def exact_tost(candidate_only: int, reference_only: int, n: int, margin: float) -> ExactTost:
    """Both exact unconditional p values (see `exact_p_lower`); about 0.1 s at n = 1,319."""
    lower = exact_p_lower(candidate_only, reference_only, n, margin)
    upper = exact_p_lower(reference_only, candidate_only, n, margin)
    return ExactTost(p_lower=lower, p_upper=upper, p=max(lower, upper))


def exact_p_lower(candidate_only: int, reference_only: int, n: int, margin: float) -> float:
    """Exact unconditional p of H: δ ≤ −margin, sup over s of P(T(−Δ) ≥ t_observed).

    Counts are pairs, margin a fraction in (0, 1). The supremum is sought on a grid that is dense at both ends
    and refined at its highest peaks (relative accuracy about 1e-6). For the upper null, exchange the counts.
    Source: Hsueh, Liu & Chen 2001, Biometrics 57:478. ValueError for impossible counts or margins.
    """
    margin = require_open_unit("margin", margin)
    return _worst_tail(n, margin, score_statistic(candidate_only, reference_only, n, -margin))


def score_test_size(n: int, margin: float, alpha: float = 0.05) -> float:
    """The one-sided score test's true largest type-I error at n: sup over s of P(T(−Δ) ≥ z_α)."""
    n = require_count("n", n, least=1)
    return _worst_tail(n, require_open_unit("margin", margin), one_sided_z(require_alpha(alpha)))


def exact_critical_value(n: int, margin: float, alpha: float = 0.05) -> float:
    """The smallest t (to 1e-6) whose exact p is below α: exact p < α just where T ≥ t. inf if nowhere."""
    n = require_count("n", n, least=1)
    margin, alpha = require_open_unit("margin", margin), require_alpha(alpha)
    most_extreme = score_statistic(n, 0, n, -margin)
    if _worst_tail(n, margin, most_extreme) >= alpha:
        return float("inf")
    # It lies near the score test's own critical value: bracket it from there.
    low = high = one_sided_z(alpha)
    step = 0.02
    while high < most_extreme and _worst_tail(n, margin, high) >= alpha:
        low, high, step = high, min(high + step, most_extreme), 2.0 * step
    while low == high or _worst_tail(n, margin, low) < alpha:
        low, high, step = low - step, low, 2.0 * step
    while high - low > 1e-6:
        middle = (low + high) / 2.0
        if _worst_tail(n, margin, middle) < alpha:
            high = middle
        else:
            low = middle
    return high


def exact_smallest_margin(
    candidate_only: int, reference_only: int, n: int, alpha: float = 0.05
) -> float | None:
    """The margin (to 1e-6) down to which both exact p values stay below α; None where no margin below 1 does.

    The exact p can jump with the margin (the order of tables changes) and so cross α several times within a
    hundredth of it; the largest crossing is given. About a second at n = 1,319.
    """
    alpha = require_alpha(alpha)
    if n in (candidate_only, reference_only):
        return None
    guess = smallest_margin(candidate_only, reference_only, n, alpha)

    def excess(margin: float) -> float:
        return exact_tost(candidate_only, reference_only, n, margin).p - alpha

    high = guess
    while excess(high) >= 0.0:
        if high >= _LARGEST_MARGIN:
            return None
        high = min(high * 1.06, _LARGEST_MARGIN)
    high = min(high * 1.03, _LARGEST_MARGIN)
    low = high
    while excess(low) < 0.0:
        low, high = low * 0.995, low
    return float(brentq(excess, low, high, xtol=1e-6)) if low < high else None


def least_candidate_only(n: int, margin: float, statistic: float) -> npt.NDArray[np.int64]:
    """For c = 0 … n, the least b with T(b, c; −margin) ≥ statistic and b + c ≤ n; n + 1 where none has."""
    c = np.arange(n + 1)
    low = np.zeros(n + 1, dtype=np.int64)
    high = n - c + 1
    reference_only = c.astype(np.float64)
    bound = statistic - _TIE * max(1.0, abs(statistic))
    while np.any(low < high):
        middle = (low + high) // 2
        reached = score_statistics(middle.astype(np.float64), reference_only, n, -margin) >= bound
        open_ = low < high
        high = np.where(open_ & reached, middle, high)
        low = np.where(open_ & ~reached, middle + 1, low)
    least: npt.NDArray[np.int64] = np.where(low > n - c, n + 1, low)
    return least


def _worst_tail(n: int, margin: float, statistic: float) -> float:
    """sup over s of P(T(−margin) ≥ statistic) on the lower null's boundary."""
    tail = _NullTail(n, margin, least_candidate_only(n, margin, statistic))
    top = (1.0 - margin) / 2.0
    # The probability ripples on the scale √(s(top − s)/n), which a grid of squared sines follows.
    grid = top * np.sin(np.linspace(0.0, np.pi / 2.0, _GRID + 1)) ** 2
    values = np.array([tail(s) for s in grid])
    padded = np.concatenate(([-1.0], values, [-1.0]))
    peaks = np.flatnonzero((padded[1:-1] >= padded[:-2]) & (padded[1:-1] >= padded[2:]))
    best = float(values.max())
    for peak in peaks[np.argsort(values[peaks])[::-1][:_PEAKS_REFINED]]:
        left, right = grid[max(peak - 1, 0)], grid[min(peak + 1, _GRID)]
        found = minimize_scalar(
            lambda s: -tail(s),
            bounds=(left, right),
            method="bounded",
            options={"xatol": 1e-4 * (right - left)},
        )
        best = max(best, -float(found.fun))
    return min(1.0, best)


class _NullTail:
    """P(b ≥ least(c)) as a function of s; holds what does not depend on s."""

    def __init__(self, n: int, margin: float, least: npt.NDArray[np.int64]) -> None:
        reachable = np.flatnonzero(least <= n)
        self._margin = margin
        self._c: Floats = reachable.astype(np.float64)
        self._rest: Floats = n - self._c
        self._least: Floats = least[reachable].astype(np.float64)
        self._log_choose = gammaln(n + 1.0) - gammaln(self._c + 1.0) - gammaln(self._rest + 1.0)
        # The part of the Chernoff exponent N·KL(k/N ‖ r) that does not depend on r.
        k, rest = self._least, self._rest
        with np.errstate(divide="ignore", invalid="ignore"):
            self._entropy = np.where(
                rest > 0,
                xlogy(k, k / np.maximum(rest, 1)) + xlogy(rest - k, (rest - k) / np.maximum(rest, 1)),
                0.0,
            )

    def __call__(self, s: float) -> float:
        reference_only = s + self._margin
        log_pmf = self._log_choose + xlogy(self._c, reference_only) + xlog1py(self._rest, -reference_only)
        rate = min(1.0, s / (1.0 - reference_only))
        with np.errstate(divide="ignore", invalid="ignore"):
            exponent = xlogy(self._least, rate) + xlog1py(self._rest - self._least, -rate) - self._entropy
        # Chernoff: P(X ≥ k) ≤ exp(−N·KL) above the mean, and trivially ≤ 1 below it.
        bound = log_pmf + np.where(self._least > self._rest * rate, np.minimum(exponent, 0.0), 0.0)
        largest = bound.max(initial=-np.inf)
        if largest == -np.inf:
            return 0.0
        keep = bound > largest - _NEGLIGIBLE
        k, rest = self._least[keep], self._rest[keep]
        upper_tail = np.where(k > 0, betainc(np.maximum(k, 1.0), rest - np.minimum(k, rest) + 1.0, rate), 1.0)
        return float(np.exp(log_pmf[keep]) @ upper_tail)
