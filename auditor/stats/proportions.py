"""One proportion, K of N: fixed-sample intervals, one-sided bounds, and a sequence for optional stopping."""

from __future__ import annotations

import math

from scipy.optimize import brentq
from scipy.special import betaincinv, betaln, xlog1py, xlogy

from auditor.stats.checks import (
    require_count,
    require_open_unit,
    require_positive,
    require_successes,
    require_unit,
)
from auditor.stats.interval import Interval, two_sided_z


def clopper_pearson(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """Exact two-sided interval by inverting both binomial tails; coverage ≥ `confidence` always.

    L = Beta⁻¹(α/2; K, N−K+1), U = Beta⁻¹(1−α/2; K+1, N−K); exactly 0 at K = 0, exactly 1 at K = N.
    Source: Clopper & Pearson 1934, Biometrika 26:404. ValueError unless 0 ≤ K ≤ N, N ≥ 1.
    """
    half = (1.0 - require_open_unit("the confidence level", confidence)) / 2.0
    return Interval(lower_bound(successes, trials, 1.0 - half), upper_bound(successes, trials, 1.0 - half))


def lower_bound(successes: int, trials: int, confidence: float = 0.95) -> float:
    """Exact (Clopper–Pearson) one-sided lower bound; 0 at K = 0."""
    k, n = require_successes(successes, trials)
    alpha = 1.0 - require_open_unit("the confidence level", confidence)
    return 0.0 if k == 0 else float(betaincinv(k, n - k + 1, alpha))


def upper_bound(successes: int, trials: int, confidence: float = 0.95) -> float:
    """Exact (Clopper–Pearson) one-sided upper bound; 1 at K = N; 1 − α^(1/N) at K = 0, about 3/N for 95%."""
    k, n = require_successes(successes, trials)
    confidence = require_open_unit("the confidence level", confidence)
    return 1.0 if k == n else float(betaincinv(k + 1, n - k, confidence))


def wilson(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval (1927, JASA 22:209); nominal coverage on average, for plots. 0 and 1 exact."""
    k, n = require_successes(successes, trials)
    z = two_sided_z(confidence)
    p, z2 = k / n, z * z
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = z * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return Interval(0.0 if k == 0 else centre - half, 1.0 if k == n else centre + half)


def jeffreys(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """Equal-tailed quantiles of Beta(K + ½, N − K + ½), the bound set to 0 at K = 0 and to 1 at K = N.

    Source: Brown, Cai & DasGupta 2001, Stat Sci 16:101.
    """
    k, n = require_successes(successes, trials)
    half = (1.0 - require_open_unit("the confidence level", confidence)) / 2.0
    return Interval(
        0.0 if k == 0 else float(betaincinv(k + 0.5, n - k + 0.5, half)),
        1.0 if k == n else float(betaincinv(k + 0.5, n - k + 0.5, 1.0 - half)),
    )


def confidence_sequence(
    successes: int, trials: int, confidence: float = 0.95, prior: tuple[float, float] = (0.5, 0.5)
) -> Interval:
    """Interval for p that holds at every N at once, so also after stopping when the data looked good.

    The p with M_N(p) = B(K+u, N−K+v) / (B(u, v) p^K (1−p)^(N−K)) < 1/α, where (u, v) is the mixing Beta
    `prior`; M is a martingale of mean 1 under p, so Ville's inequality gives the coverage. Wider than
    Clopper–Pearson at each N. Exactly 0 at K = 0 and 1 at K = N.
    Source: Robbins 1970, Ann Math Stat 41:1397; Howard et al. 2021, Ann Stat 49:1055.
    """
    k, n = require_successes(successes, trials)
    threshold = -math.log(1.0 - require_open_unit("the confidence level", confidence))
    u, v = (require_positive("a parameter of the mixing prior", x) for x in prior)
    log_mixture = float(betaln(k + u, n - k + v) - betaln(u, v))

    def excess(p: float) -> float:
        return log_mixture - float(xlogy(k, p) + xlog1py(n - k, -p)) - threshold

    peak = k / n
    tiny = 1e-300
    lower = 0.0 if k == 0 else float(brentq(excess, tiny, peak, xtol=1e-14))
    if k == n:
        return Interval(lower, 1.0)
    top = math.nextafter(1.0, 0.0)
    # With N in the millions 1 − 2⁻⁵³ may still lie inside: then 1 is the bound that can be written down.
    upper = float(brentq(excess, peak, top, xtol=1e-14)) if excess(top) > 0.0 else 1.0
    return Interval(lower, upper)


def sample_standard_error(proportion: float, trials: int) -> float:
    """√(p(1 − p)/(N − 1)): the standard error that lm-evaluation-harness prints beside an accuracy.

    N ≥ 2, else ValueError. It is 0 at p = 0 and p = 1, which is why no verdict here rests on it.
    """
    n = require_count("the number of trials", trials, least=2)
    p = require_unit("the proportion", proportion)
    return math.sqrt(p * (1.0 - p) / (n - 1))
