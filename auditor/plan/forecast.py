"""What an audit can show, and what it costs, before it runs."""

from __future__ import annotations

from collections.abc import Mapping

from auditor.model.base import Model
from auditor.model.plan import AuditPlan, CorpusUse

ASSUMED_DISCORDANCE = (0.02, 0.05, 0.10)
"""Shares of problems that only one arm solves, for which power is given."""
_REQUESTS_A_LEVEL = 3
"""A level gets at least so many requests a request in flight, so that a steady phase exists."""


class PowerAt(Model, frozen=True, kw_only=True):
    """Power of the equivalence test when the arms are equally accurate."""

    discordance: float
    """Assumed share of problems that only one arm solves."""
    power: float
    """Probability that both one-sided score tests reject."""
    smallest_margin: float
    """The smallest margin that could be shown at this discordance, as a fraction."""


class AccuracyForecast(Model, frozen=True, kw_only=True):
    n: int
    margin: float
    alpha: float
    minimum_n: int
    """Below this n the verdict is inconclusive by design."""
    power: tuple[PowerAt, ...]


class AgreementForecast(Model, frozen=True, kw_only=True):
    corpus: str
    n: int
    at_most: float
    """Rate of disagreement that zero of n still allows, 3/n."""
    best_lower_bound: float
    """Lower 95% Clopper-Pearson bound of agreement when all n agree."""


class CertificationForecast(Model, frozen=True, kw_only=True):
    prompts: int
    fewest: int | None
    """Agreements without a miss that certify; None when the truncation comes first."""
    same_at_p0: float
    """Probability of certifying launches that agree on a share p0."""
    same_at_p1: float
    """Probability of certifying launches that agree on a share p1."""
    expected_at_p1: float
    """Expected prompts at p1."""


class Work(Model, frozen=True, kw_only=True):
    """Requests and the most tokens of one stage over all arms."""

    stage: str
    requests: int
    tokens_at_most: int
    """Generated tokens if every answer ran to its cap."""
    loaded: bool
    """Whether requests overlap; batch 1 otherwise."""


class Forecast(Model, frozen=True, kw_only=True):
    launches: int
    """Without repeated attempts."""
    controls: tuple[str, ...]
    """Launched besides, where a candidate diverges."""
    certification: CertificationForecast
    agreement: tuple[AgreementForecast, ...]
    accuracy: AccuracyForecast | None
    work: tuple[Work, ...]
    remarks: tuple[str, ...]
    """What the numbers mean for the verdict, one sentence each."""

    def seconds_at_most(self, alone: float, loaded: float, boot: float) -> float:
        """Upper bound of the time: launches of `boot` seconds, then all tokens at the given rates (tokens/s),
        one arm after the other."""
        tokens = sum(w.tokens_at_most / (loaded if w.loaded else alone) for w in self.work)
        return self.launches * boot + tokens


def forecast(plan: AuditPlan, sizes: Mapping[str, int]) -> Forecast:
    """`sizes`: problems in each corpus of the plan, by name, after its limit (see `corpus_sizes`)."""
    agreement = tuple(_agreement(use.name, sizes[use.name]) for use in _agreement_uses(plan))
    accuracy = _accuracy(plan, sizes)
    certification = _certification(plan)
    return Forecast(
        launches=len(plan.arms),
        controls=plan.forensics.controls if plan.forensics and not plan.attached else (),
        certification=certification,
        agreement=agreement,
        accuracy=accuracy,
        work=_work(plan, sizes),
        remarks=_remarks(plan, certification, agreement, accuracy),
    )


def corpus_sizes(plan: AuditPlan) -> dict[str, int]:
    """Problems that the plan uses of each corpus, from manifests where these know; files are read otherwise.

    A key a corpus of the agreement stage, and `accuracy` for the accuracy stage. Raises InvalidPlan.
    """
    sizes = {use.name: _size(use, plan.seed) for use in _agreement_uses(plan)}
    if plan.accuracy is not None:
        sizes["accuracy"] = _size(plan.accuracy.corpus, plan.seed)
    return sizes


def _size(use: CorpusUse, seed: int) -> int:
    from auditor.plan import corpora

    manifest = corpora.manifest(use.name)
    total = manifest.data.rows if manifest is not None else corpora.load(use, seed).total
    return total if use.limit is None else min(total, use.limit)


def _agreement_uses(plan: AuditPlan) -> tuple[CorpusUse, ...]:
    return plan.agreement.corpora if plan.agreement else ()


def _agreement(name: str, n: int) -> AgreementForecast:
    from auditor.stats.proportions import clopper_pearson

    return AgreementForecast(
        corpus=name, n=n, at_most=min(1.0, 3 / n), best_lower_bound=clopper_pearson(n, n).lower
    )


def _accuracy(plan: AuditPlan, sizes: Mapping[str, int]) -> AccuracyForecast | None:
    if plan.accuracy is None:
        return None
    from auditor.stats.paired import floor_margin, minimum_n
    from auditor.stats.power import equivalence_power

    n, margin, alpha = sizes["accuracy"], plan.accuracy.margin, plan.accuracy.alpha
    return AccuracyForecast(
        n=n,
        margin=margin,
        alpha=alpha,
        minimum_n=minimum_n(margin, alpha),
        power=tuple(
            PowerAt(
                discordance=share,
                power=equivalence_power(n, margin, share, alpha=alpha),
                smallest_margin=floor_margin(n * share, n, alpha),
            )
            for share in ASSUMED_DISCORDANCE
        ),
    )


def _certification(plan: AuditPlan) -> CertificationForecast:
    from auditor.stats.sprt import Decision, SequentialTest, decide, operating_characteristics

    given = plan.certification
    test = SequentialTest(
        p0=given.p0, p1=given.p1, alpha=given.alpha, beta=given.beta, truncate=given.prompts
    )
    straight = decide(test, (True for _ in range(given.prompts)))
    at_p0, at_p1 = (operating_characteristics(test, p) for p in (given.p0, given.p1))
    return CertificationForecast(
        prompts=given.prompts,
        fewest=straight.n if straight.decision is Decision.SAME else None,
        same_at_p0=at_p0.same,
        same_at_p1=at_p1.same,
        expected_at_p1=at_p1.expected_n,
    )


def _work(plan: AuditPlan, sizes: Mapping[str, int]) -> tuple[Work, ...]:
    arms, given = len(plan.arms), plan.certification
    work = [_stage("certify", 2 * given.prompts * arms, given.max_tokens)]
    uses = _agreement_uses(plan)
    for use in uses:
        work.append(_stage(f"batch 1, {use.name}", sizes[use.name] * arms, use.max_tokens))
    if plan.invariance is not None and uses:
        chosen = min(plan.invariance.prompts, sum(sizes[use.name] for use in uses))
        cap = max(use.max_tokens for use in uses)
        # The control is not loaded: the reference's own curve is what the candidate's is set against.
        loaded_arms = 1 + len(plan.candidates)
        for level in plan.invariance.levels:
            rounds = max(1, -(-_REQUESTS_A_LEVEL * level // chosen))
            work.append(
                _stage(f"load, {level} in flight", 2 * rounds * chosen * loaded_arms, cap, loaded=True)
            )
        work.append(_stage("replay", chosen * loaded_arms, cap))
    if plan.accuracy is not None:
        use = plan.accuracy.corpus
        work.append(_stage(f"accuracy, {use.name}", sizes["accuracy"] * arms, use.max_tokens, loaded=True))
    return tuple(work)


def _stage(name: str, requests: int, cap: int, *, loaded: bool = False) -> Work:
    return Work(stage=name, requests=requests, tokens_at_most=requests * cap, loaded=loaded)


def _remarks(
    plan: AuditPlan,
    certification: CertificationForecast,
    agreement: tuple[AgreementForecast, ...],
    accuracy: AccuracyForecast | None,
) -> tuple[str, ...]:
    remarks = []
    if certification.fewest is None:
        remarks.append(
            f"{certification.prompts} certification prompts cannot certify a launch even if all agree: "
            "raise certification.prompts"
        )
    bound = plan.agreement.min_agreement if plan.agreement else None
    for corpus in agreement:
        if bound is not None and corpus.best_lower_bound < bound:
            remarks.append(
                f"{corpus.corpus}: {corpus.n} of {corpus.n} would have a lower bound of "
                f"{corpus.best_lower_bound:.4f}, below agreement.min_agreement {bound:g}: this can only fail"
            )
    if accuracy is None:
        return tuple(remarks)
    if accuracy.n < accuracy.minimum_n:
        remarks.append(
            f"accuracy: {accuracy.n} problems are below {accuracy.minimum_n}, so a margin of "
            f"{accuracy.margin:g} is inconclusive by design"
        )
    elif accuracy.power[0].power < 0.8:
        at = accuracy.power[0]
        remarks.append(
            f"accuracy: even at {at.discordance:.0%} discordance, equal arms would be found equivalent with "
            f"probability {at.power:.2f} only"
        )
    return tuple(remarks)
