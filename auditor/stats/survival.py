"""Where completions first diverge: hazard per token, Kaplan–Meier, restricted mean, and two arms compared.

One observation per prompt: `times` is the 1-based position of the first divergence, or the number of tokens
compared without one; `events` says which. An observation of time t was exposed for t tokens. The mean
position among the diverged is never computed: it ignores the prompts that agreed to their end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincinv, gammaln, xlog1py, xlogy

from auditor.stats.checks import require_count, require_open_unit, require_positive
from auditor.stats.interval import Interval, two_sided_z
from auditor.stats.proportions import clopper_pearson

Floats = npt.NDArray[np.float64]

HAZARD_BINS: tuple[tuple[int, int | None], ...] = ((1, 1), (2, 16), (17, 64), (65, 256), (257, None))
"""Token positions, both ends included; None is open."""


@dataclass(frozen=True, slots=True)
class Observations:
    """First divergences of one pair of launches. ValueError unless every time is ≥ 1 and there is one."""

    times: tuple[int, ...]
    events: tuple[bool, ...]

    def __post_init__(self) -> None:
        if not self.times or len(self.times) != len(self.events):
            raise ValueError(
                f"{len(self.times)} times and {len(self.events)} events: "
                "expected as many of both, at least one."
            )
        for time in self.times:
            require_count("a time", time, least=1)

    @property
    def divergences(self) -> int:
        """D: observations that ended in a divergence."""
        return sum(map(bool, self.events))

    @property
    def exposure(self) -> int:
        """E: tokens compared, over all observations."""
        return sum(self.times)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hazard:
    """Divergences per token exposed, D/E, within positions `first` to `last`."""

    first: int
    last: int | None
    """None: no upper end."""
    divergences: int
    exposure: int
    rate: float | None
    """None where nothing was exposed."""
    interval: Interval | None
    """Garwood's exact interval; None as for `rate`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivalPoint:
    """The Kaplan–Meier curve just after one position at which divergences occurred."""

    time: int
    at_risk: int
    divergences: int
    survival: float
    se: float | None
    """Greenwood's standard error; None once the curve has reached 0."""
    interval: Interval | None
    """log(−log) interval; None as for `se`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestrictedMean:
    """Mean tokens until divergence, each prompt counted up to the horizon: the area under the curve."""

    horizon: int
    mean: float
    se: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRatio:
    """First rate over second, conditional on the total of events."""

    ratio: float | None
    """None where the second arm has no event: undefined, the interval says how large it may be."""
    interval: Interval
    """Exact; the upper bound is inf where the second arm has no event."""
    p: float
    """Two-sided exact p of equal rates; 1 without any event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmComparison:
    """Candidate minus reference on the same prompts, with percentile intervals of a prompt bootstrap."""

    horizon: int
    restricted_mean_difference: float
    """Tokens; negative where the candidate diverges sooner."""
    restricted_mean_interval: Interval
    rate_difference: float
    """Divergences per token; positive where the candidate diverges more often."""
    rate_interval: Interval
    rate_ratio: RateRatio
    """Exact under independent Poisson counts; it ignores that the prompts are the same."""
    resamples: int
    seed: int


def garwood(events: int, exposure: float, confidence: float = 0.95) -> Interval:
    """Exact interval of a Poisson rate: from χ²⁻¹(α/2; 2D)/2E to χ²⁻¹(1 − α/2; 2D + 2)/2E per unit.

    The lower bound is 0 at D = 0. Source: Garwood 1936, Biometrika 28:437. Exposure > 0, else ValueError.
    """
    half = (1.0 - require_open_unit("the confidence level", confidence)) / 2.0
    d, e = require_count("the number of events", events), require_positive("the exposure", exposure)
    return Interval(0.0 if d == 0 else float(gammaincinv(d, half)) / e, rate_upper_bound(d, e, 1.0 - half))


def rate_upper_bound(events: int, exposure: float, confidence: float = 0.95) -> float:
    """Exact one-sided upper bound of a Poisson rate; −ln(1 − confidence)/E at D = 0."""
    d, e = require_count("the number of events", events), require_positive("the exposure", exposure)
    return float(gammaincinv(d + 1, require_open_unit("the confidence level", confidence))) / e


def hazard(data: Observations, confidence: float = 0.95) -> Hazard:
    """The overall hazard D/E with Garwood's interval (constant-hazard summary)."""
    return _hazard(data, 1, None, confidence)


def binned_hazard(
    data: Observations,
    bins: Sequence[tuple[int, int | None]] = HAZARD_BINS,
    confidence: float = 0.95,
) -> tuple[Hazard, ...]:
    """The hazard within bins of positions: D counts divergences in the bin, E the tokens compared in it."""
    return tuple(_hazard(data, first, last, confidence) for first, last in bins)


def _hazard(data: Observations, first: int, last: int | None, confidence: float) -> Hazard:
    end = math.inf if last is None else last
    exposure = sum(int(max(0, min(time, end) - first + 1)) for time in data.times)
    divergences = sum(
        1 for time, event in zip(data.times, data.events, strict=True) if event and first <= time <= end
    )
    return Hazard(
        first=first,
        last=last,
        divergences=divergences,
        exposure=exposure,
        rate=divergences / exposure if exposure else None,
        interval=garwood(divergences, exposure, confidence) if exposure else None,
    )


def kaplan_meier(data: Observations, confidence: float = 0.95) -> tuple[SurvivalPoint, ...]:
    """The product-limit curve at each position with divergences; empty without any.

    S(t) = Π(1 − d/r), Greenwood se = S√Σ d/(r(r − d)), interval S^exp(±z·se/(S|ln S|)). A prompt that agreed
    to its end at t is still at risk at t. Source: Kaplan & Meier 1958, JASA 53:457; Kalbfleisch & Prentice
    1980.
    """
    z = two_sided_z(confidence)
    points = []
    survival, greenwood = 1.0, 0.0
    for time, at_risk, divergences in _risk_table(data):
        survival *= 1.0 - divergences / at_risk
        if divergences == at_risk:
            se, interval = None, None
            survival = 0.0
        else:
            greenwood += divergences / (at_risk * (at_risk - divergences))
            se = survival * math.sqrt(greenwood)
            spread = math.exp(z * math.sqrt(greenwood) / abs(math.log(survival)))
            interval = Interval(survival**spread, survival ** (1.0 / spread))
        points.append(
            SurvivalPoint(
                time=time,
                at_risk=at_risk,
                divergences=divergences,
                survival=survival,
                se=se,
                interval=interval,
            )
        )
    return tuple(points)


def _risk_table(data: Observations) -> list[tuple[int, int, int]]:
    times, events = np.asarray(data.times), np.asarray(data.events, dtype=bool)
    return [
        (int(t), int(np.count_nonzero(times >= t)), int(np.count_nonzero(events & (times == t))))
        for t in np.unique(times[events])
    ]


def longest_horizon(*arms: Observations) -> int:
    """The largest horizon at which every arm's curve is defined; its largest observed time in each arm.

    The minimum over the arms, so that one and the same horizon serves all of them.
    """
    if not arms:
        raise ValueError("No arm: expected at least one.")
    return min(max(arm.times) for arm in arms)


def restricted_mean(data: Observations, horizon: int) -> RestrictedMean:
    """RMST(τ) = ∫₀^τ S(t) dt with se = √Σ A(t)² d/(r(r − d)), A(t) the area from t to τ.

    Arms are comparable at one and the same τ only: use `longest_horizon`. ValueError where τ lies beyond the
    last observation. Source: Irwin 1949; Klein & Moeschberger 2003, section 4.5.
    """
    horizon = require_count("the horizon", horizon, least=1)
    if horizon > max(data.times):
        raise ValueError(f"A horizon of {horizon}: expected at most {max(data.times)}, the last observation.")
    points = [point for point in kaplan_meier(data) if point.time <= horizon]
    steps = [1.0, *(point.survival for point in points)]
    edges = [0, *(point.time for point in points), horizon]
    areas = [s * (right - left) for s, left, right in zip(steps, edges, edges[1:], strict=False)]
    variance = 0.0
    for index, point in enumerate(points):
        if point.at_risk > point.divergences:
            remaining = math.fsum(areas[index + 1 :])
            variance += (
                remaining**2 * point.divergences / (point.at_risk * (point.at_risk - point.divergences))
            )
    return RestrictedMean(horizon=horizon, mean=math.fsum(areas), se=math.sqrt(variance))


def rate_ratio(
    events1: int, exposure1: float, events2: int, exposure2: float, confidence: float = 0.95
) -> RateRatio:
    """Ratio of two Poisson rates: D1 given D1 + D2 is binomial with odds ratio·E1/E2; Clopper–Pearson.

    p sums the outcomes that are no likelier than the one seen under equal rates; the interval is
    equal-tailed, so near α the two may differ. Source: Przyborowski & Wilenski 1940, Biometrika 31:313.
    """
    d1, d2 = require_count("the events of arm 1", events1), require_count("the events of arm 2", events2)
    e1 = require_positive("the exposure of arm 1", exposure1)
    e2 = require_positive("the exposure of arm 2", exposure2)
    require_open_unit("the confidence level", confidence)
    if d1 + d2 == 0:
        return RateRatio(ratio=None, interval=Interval(0.0, math.inf), p=1.0)
    low, high = clopper_pearson(d1, d1 + d2, confidence)

    def as_ratio(share: float) -> float:
        return math.inf if share == 1.0 else share / (1.0 - share) * e2 / e1

    return RateRatio(
        ratio=(d1 / e1) / (d2 / e2) if d2 else None,
        interval=Interval(as_ratio(low), as_ratio(high)),
        p=_binomial_p(d1, d1 + d2, e1 / (e1 + e2)),
    )


def _binomial_p(k: int, n: int, share: float) -> float:
    outcomes = np.arange(n + 1)
    log_pmf = (
        gammaln(n + 1.0)
        - gammaln(outcomes + 1.0)
        - gammaln(n - outcomes + 1.0)
        + xlogy(outcomes, share)
        + xlog1py(n - outcomes, -share)
    )
    # Equally likely outcomes differ by rounding; the allowance keeps both.
    return min(1.0, float(np.exp(log_pmf[log_pmf <= log_pmf[k] + 1e-7]).sum()))


def compare_arms(
    candidate: Observations,
    reference: Observations,
    *,
    seed: int,
    horizon: int | None = None,
    resamples: int = 2000,
    confidence: float = 0.95,
) -> ArmComparison:
    """Compare two arms observed on the same prompts in the same order, at a common horizon.

    Prompts are resampled with replacement and both arms follow them, so that what the arms share cancels.
    `horizon` None takes `longest_horizon`. A resample that ends before the horizon keeps its last curve
    value. The same seed gives the same intervals. ValueError for arms of unequal length or fewer than 100
    resamples. Source of the percentile interval: Efron & Tibshirani 1993, chapter 13.
    """
    n = len(candidate.times)
    if len(reference.times) != n:
        raise ValueError(
            f"{n} prompts against {len(reference.times)}: expected the same prompts in both arms."
        )
    resamples = require_count("the number of resamples", resamples, least=100)
    half = (1.0 - require_open_unit("the confidence level", confidence)) / 2.0
    tau = longest_horizon(candidate, reference) if horizon is None else horizon
    means = [restricted_mean(arm, tau).mean for arm in (candidate, reference)]
    weights = (
        np.random.default_rng(seed).multinomial(n, np.full(n, 1.0 / n), size=resamples).astype(np.float64)
    )
    mean_differences = _weighted_means(candidate, tau, weights) - _weighted_means(reference, tau, weights)
    rate_differences = _weighted_rates(candidate, weights) - _weighted_rates(reference, weights)
    return ArmComparison(
        horizon=tau,
        restricted_mean_difference=means[0] - means[1],
        restricted_mean_interval=_percentiles(mean_differences, half),
        rate_difference=candidate.divergences / candidate.exposure
        - reference.divergences / reference.exposure,
        rate_interval=_percentiles(rate_differences, half),
        rate_ratio=rate_ratio(
            candidate.divergences, candidate.exposure, reference.divergences, reference.exposure, confidence
        ),
        resamples=resamples,
        seed=seed,
    )


def _weighted_means(data: Observations, horizon: int, weights: Floats) -> Floats:
    """RMST of each resample: `weights` is (resamples, prompts), how often a resample drew a prompt."""
    times, events = np.asarray(data.times), np.asarray(data.events, dtype=bool)
    steps = np.unique(times[events & (times <= horizon)])
    at_risk = weights @ (times[:, None] >= steps).astype(np.float64)
    divergences = weights @ (events[:, None] & (times[:, None] == steps)).astype(np.float64)
    factors = 1.0 - divergences / np.maximum(at_risk, 1.0)
    curve = np.hstack((np.ones((len(weights), 1)), np.cumprod(factors, axis=1)))
    means: Floats = curve @ np.diff(np.concatenate(([0], steps, [horizon]))).astype(np.float64)
    return means


def _weighted_rates(data: Observations, weights: Floats) -> Floats:
    rates: Floats = (weights @ np.asarray(data.events, dtype=np.float64)) / (
        weights @ np.asarray(data.times, dtype=np.float64)
    )
    return rates


def _percentiles(values: Floats, half: float) -> Interval:
    low, high = np.quantile(values, (half, 1.0 - half))
    return Interval(float(low), float(high))
