"""Counts k of n with their intervals, as the record has them."""

from __future__ import annotations

from auditor.model.base import Interval
from auditor.model.judgement import Proportion
from auditor.stats import interval, proportions


def proportion(k: int, n: int) -> Proportion:
    """k of n with its 95% intervals; none at n = 0."""
    if n == 0:
        return Proportion(k=0, n=0, clopper_pearson95=None, wilson95=None)
    return Proportion(
        k=k,
        n=n,
        clopper_pearson95=as_interval(proportions.clopper_pearson(k, n)),
        wilson95=as_interval(proportions.wilson(k, n)),
    )


def as_interval(pair: interval.Interval) -> Interval:
    return Interval(low=pair.lower, high=pair.upper)


def of(share: Proportion) -> str:
    """`38 of 40`: counts first, no percentage that could round into a claim."""
    return f"{share.k} of {share.n}"
