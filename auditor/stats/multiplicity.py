"""Several tests, one claim: when all have to hold and when any may."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from auditor.stats.checks import require_open_unit, require_unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """'All of these hold', tested at level α."""

    passed: bool
    p: float
    """The largest p: the gate's own."""
    failed: tuple[str, ...]
    """Names of the tests with p ≥ α, in the order given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HolmTest:
    """One test of several, of which any may be claimed."""

    name: str
    p: float
    adjusted: float
    """Holm's adjusted p, ≥ p and ≤ 1."""
    rejected: bool


def intersection_union(p_values: Mapping[str, float], alpha: float = 0.05) -> Gate:
    """All gates must pass: each at α without correction, and the whole has level α.

    The union of the nulls is rejected only when every one is, so its error is at most the least of theirs. An
    empty mapping is a ValueError: no checks is not a pass. Source: Berger 1982, Technometrics 24:295.
    """
    alpha = require_open_unit("alpha", alpha)
    if not p_values:
        raise ValueError("No test in the gate: expected at least one.")
    p = {name: require_unit(f"the p value of {name}", value) for name, value in p_values.items()}
    failed = tuple(name for name, value in p.items() if value >= alpha)
    return Gate(passed=not failed, p=max(p.values()), failed=failed)


def holm(p_values: Mapping[str, float], alpha: float = 0.05) -> tuple[HolmTest, ...]:
    """Any arm may pass: Holm's step-down test, which holds the family-wise error at α under any dependence.

    Sorted p_(1) ≤ … ≤ p_(m); adjusted p_(i) = max over j ≤ i of min(1, (m − j + 1)p_(j)); rejected where < α.
    Results in the order given. Source: Holm 1979, Scand J Stat 6:65. An empty mapping is a ValueError.
    """
    alpha = require_open_unit("alpha", alpha)
    if not p_values:
        raise ValueError("No test in the family: expected at least one.")
    p = {name: require_unit(f"the p value of {name}", value) for name, value in p_values.items()}
    adjusted: dict[str, float] = {}
    largest = 0.0
    for rank, name in enumerate(sorted(p, key=lambda key: p[key])):
        largest = max(largest, min(1.0, (len(p) - rank) * p[name]))
        adjusted[name] = largest
    return tuple(
        HolmTest(name=name, p=value, adjusted=adjusted[name], rejected=adjusted[name] < alpha)
        for name, value in p.items()
    )
