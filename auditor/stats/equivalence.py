"""The paired equivalence assessment: every figure that stands beside the verdict, and the verdict's rule."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass

from auditor.stats.checks import require_alpha, require_open_unit
from auditor.stats.exact import ExactTost, exact_p_lower
from auditor.stats.interval import Interval
from auditor.stats.paired import (
    McNemar,
    floor_margin,
    mcnemar,
    minimum_n,
    newcombe10,
    score_interval,
    score_p_lower,
    score_p_upper,
    score_statistic,
    wald,
)
from auditor.stats.power import equivalence_power
from auditor.stats.table import (
    NONE_MISSING,
    MissingAnswers,
    PairedTable,
    least_favourable_to_candidate,
    most_favourable_to_candidate,
)
from auditor.stats.unpaired import farrington_manning_tost, wald_tost

DEFAULT_BAND = (0.05, 0.99)
"""Reference accuracies outside it say that the benchmark, or its grading, cannot tell arms apart."""


class EquivalenceVerdict(enum.StrEnum):
    """The outcomes of a paired equivalence test (see `assess` for the rule)."""

    EQUIVALENT = "equivalent"
    DIFFERENT = "equivalent but different"
    NOT_EQUIVALENT = "not equivalent"
    INCONCLUSIVE = "inconclusive"
    VOID = "void"

    @property
    def within_margin(self) -> bool:
        """True for both equivalent outcomes."""
        return self in (EquivalenceVerdict.EQUIVALENT, EquivalenceVerdict.DIFFERENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedScore:
    """The primary test: two one-sided score tests, and the score intervals of δ."""

    z_lower: float
    p_lower: float
    z_upper: float
    p_upper: float
    p: float
    ci90: Interval
    ci95: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpairedWald:
    """The unpaired reproduction; z and p are None (undefined) where the SE is 0, both arms at 0% or 100%."""

    se: float
    z_lower: float | None
    z_upper: float | None
    p: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedEquivalence:
    """One assessment. With missing answers the two nulls are tested at their own worst imputations."""

    n: int
    """Pairs as planned, missing ones included."""
    missing: int
    """Pairs with a missing answer."""
    margin: float
    alpha: float
    estimate: float | None
    """(b − c)/pairs that both arms answered; None where every pair misses an answer."""
    estimate_range: Interval
    """The least and the most that the estimate over all n could be, whatever the missing answers were."""
    reference_accuracy: float | None
    """Over the reference's answers that arrived; None without any."""
    score: PairedScore
    exact: ExactTost
    mcnemar: McNemar
    """Over the pairs that both arms answered."""
    unpaired_wald: UnpairedWald
    farrington_manning_p: float
    newcombe10_ci90: Interval
    newcombe10_ci95: Interval
    paired_wald_ci90: Interval
    """What most reports print; of width 0 without discordance. No verdict rests on it."""
    paired_wald_ci95: Interval
    smallest_margin: float
    """Δ* = max(−L, U) of the 1 − 2α score interval."""
    floor_margin: float
    """The smallest margin these n could show with as many discordant pairs as were seen, evenly split."""
    minimum_n: int
    verdict: EquivalenceVerdict
    reason: str
    """One sentence: why this verdict."""


def assess(
    table: PairedTable,
    margin: float = 0.05,
    alpha: float = 0.05,
    *,
    missing: MissingAnswers = NONE_MISSING,
    band: tuple[float, float] | None = DEFAULT_BAND,
) -> PairedEquivalence:
    """Assess equivalence of two arms within ±margin on paired items.

    Order of the rule, first match wins:

    1. void: the reference's accuracy lies outside `band` (None: no band, as for agreement indicators).
    2. inconclusive: n < ⌈ln α / ln(1 − Δ)⌉; not even perfect concordance could show the margin.
    3. equivalent: score p < α and exact p < α. "equivalent but different" where McNemar's exact p < α too.
    4. inconclusive: some imputation of the missing answers would be equivalent.
    5. not equivalent: the 1 − 2α interval lies wholly beyond the margin; or the arms differ (McNemar's exact
       p < α); or n was sufficient: at this share of discordant pairs arms without a difference would have
       shown equivalence with a probability of at least 1 − α. Arms without a difference end here with a
       probability of about α at most, which a rule that asked only whether an even split would have shown
       the margin does not give (0.6 at 200 pairs, 10% discordant).
    6. inconclusive: anything else.

    Margin in (0, 1), α in (0, 0.5), band 0 ≤ low < high ≤ 1, at least one pair (missing ones count), else
    ValueError. Source: Tango 1998; Hsueh, Liu & Chen 2001; two one-sided tests, Schuirmann 1987.
    """
    margin, alpha = require_open_unit("margin", margin), require_alpha(alpha)
    if band is not None and not 0.0 <= band[0] < band[1] <= 1.0:
        raise ValueError(f"Accuracy band {band[0]:g} to {band[1]:g}: expected 0 ≤ low < high ≤ 1.")
    bounds = _Bounds(
        least_favourable_to_candidate(table, missing), most_favourable_to_candidate(table, missing)
    )
    # Differences first: without any pair nothing below is defined, and this says so.
    estimate_range = Interval(bounds.worst.difference, bounds.best.difference)
    score, exact = _score(bounds, margin), _exact(bounds, margin)
    interval = bounds.discordance_interval(score_interval, 1.0 - 2.0 * alpha)
    discordance = mcnemar(table.candidate_only, table.reference_only)
    accuracy = _reference_accuracy(table, missing)
    floor = floor_margin(table.discordant, bounds.worst.n, alpha)
    verdict, reason = _void(accuracy, band) or _too_few(bounds.worst.n, margin, alpha) or (None, "")
    if verdict is None and max(score.p, exact.p) < alpha:
        verdict, reason = _within(margin, alpha, discordance.exact)
    if verdict is None:
        verdict, reason = _not_within(bounds, margin, alpha, interval, table, missing.total > 0)
    return PairedEquivalence(
        n=bounds.worst.n,
        missing=missing.total,
        margin=margin,
        alpha=alpha,
        estimate=table.difference if table.n else None,
        estimate_range=estimate_range,
        reference_accuracy=accuracy,
        score=score,
        exact=exact,
        mcnemar=discordance,
        unpaired_wald=_unpaired(bounds, margin),
        farrington_manning_p=_farrington_manning_p(bounds, margin),
        newcombe10_ci90=bounds.newcombe_interval(0.90),
        newcombe10_ci95=bounds.newcombe_interval(0.95),
        paired_wald_ci90=bounds.discordance_interval(wald, 0.90),
        paired_wald_ci95=bounds.discordance_interval(wald, 0.95),
        smallest_margin=max(-interval.lower, interval.upper),
        floor_margin=floor,
        minimum_n=minimum_n(margin, alpha),
        verdict=verdict,
        reason=reason,
    )


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The two extreme imputations; one and the same table when nothing is missing."""

    worst: PairedTable
    """Against the candidate: here the lower null is tested, and lower limits are taken."""
    best: PairedTable
    """For the candidate: here the upper null is tested, and upper limits are taken."""

    def discordance_interval(
        self, method: Callable[[int, int, int, float], Interval], confidence: float
    ) -> Interval:
        low, high = (
            method(t.candidate_only, t.reference_only, t.n, confidence) for t in (self.worst, self.best)
        )
        return Interval(low.lower, high.upper)

    def newcombe_interval(self, confidence: float) -> Interval:
        return Interval(newcombe10(self.worst, confidence).lower, newcombe10(self.best, confidence).upper)


_Ruling = tuple[EquivalenceVerdict, str]


def _void(accuracy: float | None, band: tuple[float, float] | None) -> _Ruling | None:
    if band is None or (accuracy is not None and band[0] <= accuracy <= band[1]):
        return None
    seen = "unknown" if accuracy is None else f"{accuracy:.4f}"
    return EquivalenceVerdict.VOID, (
        f"The reference's accuracy is {seen}, outside the band {band[0]:g} to {band[1]:g}: "
        "the items cannot tell the arms apart."
    )


def _too_few(n: int, margin: float, alpha: float) -> _Ruling | None:
    least = minimum_n(margin, alpha)
    if n >= least:
        return None
    return EquivalenceVerdict.INCONCLUSIVE, (
        f"{n} pairs cannot show a margin of {margin:g} even without a discordant pair: "
        f"at least {least} are needed."
    )


def _within(margin: float, alpha: float, mcnemar_p: float) -> _Ruling:
    if mcnemar_p < alpha:
        return EquivalenceVerdict.DIFFERENT, (
            f"Within ±{margin:g}, but the arms do differ (exact McNemar p {mcnemar_p:.1e})."
        )
    return EquivalenceVerdict.EQUIVALENT, (
        f"The score test and the exact test reject a difference of {margin:g} in either direction."
    )


def _not_within(
    bounds: _Bounds, margin: float, alpha: float, interval: Interval, seen: PairedTable, missing: bool
) -> _Ruling:
    if missing and _some_imputation_passes(bounds, margin, alpha):
        return EquivalenceVerdict.INCONCLUSIVE, (
            f"The missing answers decide: at their worst case not within ±{margin:g}, at another within."
        )
    # With missing answers `interval` covers every imputation's, so "beyond" holds for each of them.
    if interval.upper < -margin or interval.lower > margin:
        return EquivalenceVerdict.NOT_EQUIVALENT, f"The interval lies wholly beyond ±{margin:g}."
    differ = mcnemar(seen.candidate_only, seen.reference_only).exact
    if differ < alpha:
        return EquivalenceVerdict.NOT_EQUIVALENT, (
            f"Equivalence within ±{margin:g} was not shown, and the arms do differ "
            f"(exact McNemar p {differ:.1e})."
        )
    n = bounds.worst.n
    power = equivalence_power(n, margin, seen.discordant / n, 0.0, alpha)
    shown = math.floor(1000.0 * power) / 1000.0
    if power >= 1.0 - alpha:
        return EquivalenceVerdict.NOT_EQUIVALENT, (
            f"Equivalence within ±{margin:g} was not shown, although arms without a difference show it with "
            f"probability {shown:.3f} at this many discordant pairs."
        )
    return EquivalenceVerdict.INCONCLUSIVE, (
        f"With this many discordant pairs {n} items show ±{margin:g} with probability {shown:.3f} "
        f"even for arms without a difference: too few for {margin:g}."
    )


def _some_imputation_passes(bounds: _Bounds, margin: float, alpha: float) -> bool:
    """False only if none can pass: each null is tested where the missing answers help to reject it most.

    T rises in b and falls in c, so these p values bound those of every imputation from below.
    """
    kindest = _Bounds(worst=bounds.best, best=bounds.worst)
    return _score(kindest, margin).p < alpha and _exact(kindest, margin).p < alpha


def _score(bounds: _Bounds, margin: float) -> PairedScore:
    low, high = bounds.worst, bounds.best
    p_lower = score_p_lower(low.candidate_only, low.reference_only, low.n, margin)
    p_upper = score_p_upper(high.candidate_only, high.reference_only, high.n, margin)
    return PairedScore(
        z_lower=score_statistic(low.candidate_only, low.reference_only, low.n, -margin),
        p_lower=p_lower,
        z_upper=score_statistic(high.candidate_only, high.reference_only, high.n, margin),
        p_upper=p_upper,
        p=max(p_lower, p_upper),
        ci90=bounds.discordance_interval(score_interval, 0.90),
        ci95=bounds.discordance_interval(score_interval, 0.95),
    )


def _exact(bounds: _Bounds, margin: float) -> ExactTost:
    low, high = bounds.worst, bounds.best
    p_lower = exact_p_lower(low.candidate_only, low.reference_only, low.n, margin)
    p_upper = exact_p_lower(high.reference_only, high.candidate_only, high.n, margin)
    return ExactTost(p_lower=p_lower, p_upper=p_upper, p=max(p_lower, p_upper))


def _unpaired(bounds: _Bounds, margin: float) -> UnpairedWald:
    low, high = (
        wald_tost(t.candidate_right, t.n, t.reference_right, t.n, -margin, margin)
        for t in (bounds.worst, bounds.best)
    )
    p = None if low.p_lower is None or high.p_upper is None else max(low.p_lower, high.p_upper)
    return UnpairedWald(se=max(low.se, high.se), z_lower=low.z_lower, z_upper=high.z_upper, p=p)


def _farrington_manning_p(bounds: _Bounds, margin: float) -> float:
    low, high = (
        farrington_manning_tost(t.candidate_right, t.n, t.reference_right, t.n, -margin, margin)
        for t in (bounds.worst, bounds.best)
    )
    return max(low.p_lower, high.p_upper)


def _reference_accuracy(table: PairedTable, missing: MissingAnswers) -> float | None:
    right = table.reference_right + missing.candidate_when_reference_right
    answered = table.n + missing.candidate_when_reference_right + missing.candidate_when_reference_wrong
    return right / answered if answered else None
