"""What n pairs can show: exact power of the paired equivalence test, and the n for a wanted power."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import betainc, gammaln, ndtri, xlog1py, xlogy

from auditor.stats.checks import require_alpha, require_count, require_open_unit, require_unit
from auditor.stats.exact import exact_critical_value, least_candidate_only
from auditor.stats.interval import one_sided_z
from auditor.stats.paired import floor_margin, minimum_n

LARGEST_N = 200_000
"""Sample sizes above this are reported as not found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerAnalysis:
    """What a paired audit of n items can show at a margin."""

    n: int
    margin: float
    alpha: float
    discordance: float
    """ψ: assumed share of discordant pairs, in [|difference|, 1]."""
    difference: float
    """δ: assumed true difference, candidate − reference."""
    power: float
    """Probability that both score tests reject, by the exact trinomial sum."""
    power_both_tests: float
    """The same when the exact test has to reject too, which is the verdict's rule."""
    floor_margin: float
    """The smallest margin n could show at the expected discordance nψ."""
    minimum_n: int
    """Below this n the verdict is inconclusive by design."""
    n80: int | None
    """n for 80% power; None where no n up to `LARGEST_N` has it."""
    n90: int | None
    """n for 90% power; None as for n80."""


def analyse_power(
    n: int, margin: float, discordance: float, difference: float = 0.0, alpha: float = 0.05
) -> PowerAnalysis:
    """All of `PowerAnalysis` for one plan; about a second at n = 1,319. ValueError for impossible inputs."""
    return PowerAnalysis(
        n=n,
        margin=margin,
        alpha=alpha,
        discordance=discordance,
        difference=difference,
        power=equivalence_power(n, margin, discordance, difference, alpha),
        power_both_tests=equivalence_power(n, margin, discordance, difference, alpha, with_exact_test=True),
        floor_margin=floor_margin(n * discordance, n, alpha),
        minimum_n=minimum_n(margin, alpha),
        n80=sample_size(0.8, margin, discordance, difference, alpha),
        n90=sample_size(0.9, margin, discordance, difference, alpha),
    )


def equivalence_power(
    n: int,
    margin: float,
    discordance: float,
    difference: float = 0.0,
    alpha: float = 0.05,
    *,
    with_exact_test: bool = False,
) -> float:
    """P(T(−Δ) ≥ z and T(Δ) ≤ −z) for (b, c) trinomial, p12 = (ψ + δ)/2, p21 = (ψ − δ)/2; no normality.

    `with_exact_test` asks that the exact unconditional test rejects as well (about a second at n = 1,319).
    ψ in [|δ|, 1], margin in (0, 1), else ValueError.
    """
    n = require_count("n", n, least=1)
    margin, alpha = require_open_unit("margin", margin), require_alpha(alpha)
    p12, p21 = _discordant_rates(discordance, difference)
    critical = one_sided_z(alpha)
    if with_exact_test:
        critical = max(critical, exact_critical_value(n, margin, alpha))
        if math.isinf(critical):
            return 0.0
    least = least_candidate_only(n, margin, critical)
    c = np.arange(n + 1)
    # T(b, c; Δ) = −T(c, b; −Δ): the upper test rejects where c ≥ least(b), so for b up to the last such b.
    most = np.minimum(np.searchsorted(least, c, side="right") - 1, n - c)
    log_pmf = (
        gammaln(n + 1.0) - gammaln(c + 1.0) - gammaln(n - c + 1.0) + xlogy(c, p21) + xlog1py(n - c, -p21)
    )
    keep = (least <= most) & (log_pmf > -60.0)
    if not keep.any():
        return 0.0
    rest = (n - c[keep]).astype(np.float64)
    rate = min(1.0, p12 / (1.0 - p21)) if p21 < 1.0 else 0.0
    inside = _upper_tail(least[keep].astype(np.float64), rest, rate) - _upper_tail(
        most[keep] + 1.0, rest, rate
    )
    return float(min(1.0, np.exp(log_pmf[keep]) @ inside))


def _upper_tail(k: np.ndarray, trials: np.ndarray, rate: float) -> np.ndarray:
    """P(Bin(trials, rate) ≥ k), elementwise; 1 for k ≤ 0 and 0 for k > trials."""
    inner = np.clip(k, 1.0, np.maximum(trials, 1.0))
    tail = betainc(inner, np.maximum(trials, 1.0) - inner + 1.0, rate)
    result: np.ndarray = np.where(k <= 0, 1.0, np.where(k > trials, 0.0, tail))
    return result


def sample_size(
    target: float, margin: float, discordance: float, difference: float = 0.0, alpha: float = 0.05
) -> int | None:
    """The n from which on the score tests' exact power stays at or above `target`.

    Exact power is a saw tooth in n: a crossing is found by bisection, then followed upwards until no dip
    occurs within the next 5% of n (at least 30). None where |δ| ≥ Δ, or no n up to `LARGEST_N` suffices.
    """
    target, margin = require_open_unit("the wanted power", target), require_open_unit("margin", margin)
    _discordant_rates(discordance, difference)
    gap = margin - abs(difference)
    if gap <= 0.0:
        return None

    def enough(n: int) -> bool:
        return equivalence_power(n, margin, discordance, difference, alpha) >= target

    z = one_sided_z(alpha) + float(ndtri((1.0 + target) / 2.0 if difference == 0.0 else target))
    low = 1
    high = max(minimum_n(margin, alpha), math.ceil(z * z * max(discordance - difference**2, 0.0) / gap**2))
    while high <= LARGEST_N and not enough(high):
        low, high = high, math.ceil(high * 1.25) + 1
    if high > LARGEST_N:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    last_dip = high - 1
    n = high
    while n - last_dip <= max(30, last_dip // 20):
        n += 1
        if not enough(n):
            last_dip = n
    return last_dip + 1


def _discordant_rates(discordance: float, difference: float) -> tuple[float, float]:
    """(p12, p21) = ((ψ + δ)/2, (ψ − δ)/2); ValueError unless |δ| ≤ ψ ≤ 1."""
    psi = require_unit("the discordance", discordance)
    if not abs(difference) <= psi:
        raise ValueError(
            f"A difference of {difference:g} with a discordance of {psi:g}: "
            "expected a discordance at least as large as the difference."
        )
    return (psi + difference) / 2.0, (psi - difference) / 2.0
