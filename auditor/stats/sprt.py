"""Wald's sequential test of two launches' states, truncated, with its operating characteristics computed.

Each certification prompt is a Bernoulli outcome: 1 = both launches returned the same completion. H0: p = p0
(another launch state), H1: p = p1 (the same one). Source: Wald 1945, Ann Math Stat 16:117.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from auditor.stats.checks import require_alpha, require_count, require_open_unit, require_unit


class Decision(enum.StrEnum):
    """What the sequential test says after some outcomes."""

    SAME = "SAME STATE"
    OTHER = "OTHER STATE"
    INTERMEDIATE = "INTERMEDIATE"
    """The truncation point was reached between the boundaries."""
    CONTINUE = "CONTINUE"
    """Neither boundary nor truncation reached: more outcomes are needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialTest:
    """A truncated SPRT. p0 < p1 in (0, 1), error rates in (0, 0.5), truncation ≥ 1, else ValueError."""

    p0: float = 0.5
    p1: float = 0.95
    alpha: float = 0.001
    """Wald's nominal P(SAME | p0)."""
    beta: float = 0.001
    """Wald's nominal P(OTHER | p1)."""
    truncate: int = 64

    def __post_init__(self) -> None:
        require_open_unit("p0", self.p0)
        require_open_unit("p1", self.p1)
        require_alpha(self.alpha)
        require_alpha(self.beta)
        require_count("the truncation point", self.truncate, least=1)
        if not self.p0 < self.p1:
            raise ValueError(f"p0 is {self.p0:g} and p1 is {self.p1:g}: expected p0 < p1.")

    @property
    def agreement_step(self) -> float:
        """ln(p1/p0) > 0, added per agreement."""
        return math.log(self.p1 / self.p0)

    @property
    def disagreement_step(self) -> float:
        """ln((1 − p1)/(1 − p0)) < 0, added per disagreement."""
        return math.log1p(-self.p1) - math.log1p(-self.p0)

    @property
    def upper(self) -> float:
        """ln((1 − β)/α): SAME at or above it."""
        return math.log((1.0 - self.beta) / self.alpha)

    @property
    def lower(self) -> float:
        """ln(β/(1 − α)): OTHER at or below it."""
        return math.log(self.beta / (1.0 - self.alpha))

    @property
    def slope(self) -> float:
        """Slope of both boundary lines, in agreements per outcome."""
        return -self.disagreement_step / (self.agreement_step - self.disagreement_step)

    @property
    def intercept(self) -> float:
        """Intercept of the SAME line, in agreements: SAME at agreements ≥ intercept + slope·n."""
        return self.upper / (self.agreement_step - self.disagreement_step)

    def score(self, agreements: int, disagreements: int) -> float:
        """The log-likelihood ratio after these outcomes; a sum of two products, so no error accumulates."""
        return agreements * self.agreement_step + disagreements * self.disagreement_step

    def state(self, agreements: int, disagreements: int) -> Decision:
        """The decision at exactly these counts, boundaries before truncation."""
        score = self.score(agreements, disagreements)
        if score >= self.upper:
            return Decision.SAME
        if score <= self.lower:
            return Decision.OTHER
        return Decision.INTERMEDIATE if agreements + disagreements >= self.truncate else Decision.CONTINUE

    def least_n_for_same(self, disagreements: int) -> int:
        """Fewest outcomes that end in SAME with this many disagreements (ignores truncation)."""
        return disagreements + math.ceil(
            (self.upper - disagreements * self.disagreement_step) / self.agreement_step
        )

    def least_disagreements_for_other(self, agreements: int) -> int:
        """Fewest disagreements that end in OTHER with this many agreements (ignores truncation)."""
        return math.ceil((self.lower - agreements * self.agreement_step) / self.disagreement_step)


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialOutcome:
    """Where the test stopped. Outcomes after the stop are not counted."""

    decision: Decision
    n: int
    """Outcomes used."""
    agreements: int
    score: float
    """Log-likelihood ratio at the stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatingCharacteristics:
    """The truncated test's exact behaviour at one true agreement rate; the three probabilities sum to 1."""

    p: float
    same: float
    other: float
    undecided: float
    """P(INTERMEDIATE)."""
    expected_n: float
    """Mean number of outcomes used."""


def decide(test: SequentialTest, outcomes: Iterable[bool]) -> SequentialOutcome:
    """Run the test over outcomes in their order and stop at the first boundary or at truncation."""
    agreements = disagreements = 0
    decision = test.state(0, 0)
    for outcome in outcomes:
        if outcome:
            agreements += 1
        else:
            disagreements += 1
        decision = test.state(agreements, disagreements)
        if decision is not Decision.CONTINUE:
            break
    return SequentialOutcome(
        decision=decision,
        n=agreements + disagreements,
        agreements=agreements,
        score=test.score(agreements, disagreements),
    )


def operating_characteristics(test: SequentialTest, p: float) -> OperatingCharacteristics:
    """Exact by dynamic programming over (n, agreements): no approximation of Wald's overshoot, no simulation.

    p in [0, 1] is the true agreement rate. P(SAME) at p0 is the type-I error, P(OTHER) at p1 the type II.
    """
    p = require_unit("the true agreement rate", p)
    alive = np.array([1.0])
    same = other = expected = 0.0
    for n in range(1, test.truncate + 1):
        expected += float(alive.sum())
        moved = np.concatenate((alive * (1.0 - p), [0.0])) + np.concatenate(([0.0], alive * p))
        agreements = np.arange(n + 1)
        score = agreements * test.agreement_step + (n - agreements) * test.disagreement_step
        reached_same, reached_other = score >= test.upper, score <= test.lower
        same += float(moved[reached_same].sum())
        other += float(moved[reached_other].sum())
        alive = np.where(reached_same | reached_other, 0.0, moved)
    return OperatingCharacteristics(
        p=p, same=same, other=other, undecided=min(1.0, float(alive.sum())), expected_n=expected
    )
