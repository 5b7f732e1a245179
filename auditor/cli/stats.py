"""`audit stats`: the protocol's statistics as a calculator, from counts alone.

Every command prints a table that fits 80 columns, or with `--json` one object whose keys its help lists. The
exit code is 0 whatever the verdict says: a calculator has no gate. Impossible counts exit with 2.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from auditor.stats.equivalence import PairedEquivalence
    from auditor.stats.sprt import OperatingCharacteristics

_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object instead of the table.")
_ALPHA = click.option(
    "--alpha", type=float, default=0.05, show_default=True, help="Level of each one-sided test."
)
_MARGIN = click.option(
    "--margin", type=float, default=0.05, show_default=True, help="Δ, as a fraction: 0.05 is 5 points."
)


@click.group(name="stats")
def stats() -> None:
    """Statistics from counts: equivalence, agreement, sequential test, power."""


@stats.command()
@click.option("--both", type=int, required=True, help="Right in both arms.")
@click.option("--candidate-only", type=int, required=True, help="Right in the candidate alone.")
@click.option("--reference-only", type=int, required=True, help="Right in the reference alone.")
@click.option("--neither", type=int, required=True, help="Wrong in both arms.")
@_MARGIN
@_ALPHA
@click.option(
    "--missing-candidate",
    type=(int, int),
    default=(0, 0),
    metavar="RIGHT WRONG",
    help="Candidate's answer missing, where the reference is right, and where it is wrong.",
)
@click.option(
    "--missing-reference",
    type=(int, int),
    default=(0, 0),
    metavar="RIGHT WRONG",
    help="Reference's answer missing, where the candidate is right, and where it is wrong.",
)
@click.option("--missing-both", type=int, default=0, metavar="N", help="Both answers missing.")
@click.option(
    "--band",
    type=(float, float),
    default=(0.05, 0.99),
    show_default=True,
    metavar="LOW HIGH",
    help="Reference accuracies outside it are void. `--band 0 1` switches it off.",
)
@_JSON
def tost(
    both: int,
    candidate_only: int,
    reference_only: int,
    neither: int,
    margin: float,
    alpha: float,
    missing_candidate: tuple[int, int],
    missing_reference: tuple[int, int],
    missing_both: int,
    band: tuple[float, float],
    as_json: bool,
) -> None:
    """Are two arms equivalent within ±margin on paired items?

    Missing answers stay in n, and each direction is tested at its own worst case of them.

    \b
    JSON keys: n, missing, margin, alpha, estimate, estimate_range,
    reference_accuracy, score {z_lower, p_lower, z_upper, p_upper, p, ci90, ci95},
    exact {p_lower, p_upper, p}, mcnemar {exact, mid_p}, unpaired_wald {se,
    z_lower, z_upper, p}, farrington_manning {p}, newcombe10 {ci90, ci95},
    paired_wald {ci90, ci95}, smallest_margin, floor_margin, minimum_n, verdict,
    reason. Differences are candidate - reference; null means undefined.
    """
    from auditor.stats.equivalence import assess
    from auditor.stats.table import MissingAnswers, PairedTable

    with _impossible_is_usage_error():
        result = assess(
            PairedTable(
                both=both, candidate_only=candidate_only, reference_only=reference_only, neither=neither
            ),
            margin,
            alpha,
            missing=MissingAnswers(
                candidate_when_reference_right=missing_candidate[0],
                candidate_when_reference_wrong=missing_candidate[1],
                reference_when_candidate_right=missing_reference[0],
                reference_when_candidate_wrong=missing_reference[1],
                both=missing_both,
            ),
            band=band,
        )
    if as_json:
        _print_json(_tost_document(result))
    else:
        _print_tost(result, (both, candidate_only, reference_only, neither))


@stats.command()
@click.argument("successes", type=int, metavar="K")
@click.argument("trials", type=int, metavar="N")
@_JSON
def agreement(successes: int, trials: int, as_json: bool) -> None:
    """What K agreements in N say about the rate of agreement (95%).

    \b
    JSON keys: successes, trials, proportion, clopper_pearson, wilson, jeffreys,
    confidence_sequence, one_sided_95 {lower, upper}. Intervals are [lower, upper].
    """
    from auditor.stats import proportions

    with _impossible_is_usage_error():
        intervals = {
            "clopper_pearson": proportions.clopper_pearson(successes, trials),
            "wilson": proportions.wilson(successes, trials),
            "jeffreys": proportions.jeffreys(successes, trials),
            "confidence_sequence": proportions.confidence_sequence(successes, trials),
        }
        lower, upper = proportions.lower_bound(successes, trials), proportions.upper_bound(successes, trials)
    if as_json:
        counts = {"successes": successes, "trials": trials, "proportion": successes / trials}
        _print_json({**counts, **intervals, "one_sided_95": {"lower": lower, "upper": upper}})
        return
    _print_rows(
        f"{successes} of {trials} agree",
        (
            ("Clopper-Pearson 95%", _interval(intervals["clopper_pearson"])),
            ("Wilson 95%", _interval(intervals["wilson"])),
            ("Jeffreys 95%", _interval(intervals["jeffreys"])),
            ("one-sided 95%", f"at least {_figure(lower)}"),
            ("", f"at most {_figure(upper)}"),
            ("confidence sequence", f"{_interval(intervals['confidence_sequence'])}, valid at any stop"),
        ),
    )


@stats.command()
@click.option("--p0", type=float, default=0.5, show_default=True, help="Agreement rate of another state.")
@click.option("--p1", type=float, default=0.95, show_default=True, help="Agreement rate of the same state.")
@click.option("--alpha", type=float, default=0.001, show_default=True, help="Nominal P(SAME | p0).")
@click.option("--beta", type=float, default=0.001, show_default=True, help="Nominal P(OTHER | p1).")
@click.option("--truncate", type=int, default=64, show_default=True, help="Most outcomes used.")
@click.option("--outcomes", default=None, metavar="1101…", help="Outcomes in order, 1 = agreement.")
@click.option(
    "--at", "rates", type=float, multiple=True, help="More true rates to characterise (repeatable)."
)
@_JSON
def sprt(
    p0: float,
    p1: float,
    alpha: float,
    beta: float,
    truncate: int,
    outcomes: str | None,
    rates: tuple[float, ...],
    as_json: bool,
) -> None:
    """Wald's sequential test of two launches' states, truncated.

    \b
    JSON keys: p0, p1, alpha, beta, truncate, boundaries {upper, lower,
    agreement_step, disagreement_step, slope, intercept}, decision, n, agreements,
    score (these four null without --outcomes), operating_characteristics (list
    of {p, same, other, undecided, expected_n}, exact for the truncated test).
    Decisions: SAME STATE, OTHER STATE, INTERMEDIATE (truncated), CONTINUE.
    """
    from dataclasses import asdict

    from auditor.stats.sprt import SequentialTest, decide, operating_characteristics

    if outcomes is not None and not set(outcomes) <= {"0", "1"}:
        raise click.BadParameter(f"{outcomes!r}: expected only the digits 0 and 1.", param_hint="--outcomes")
    with _impossible_is_usage_error():
        test = SequentialTest(p0=p0, p1=p1, alpha=alpha, beta=beta, truncate=truncate)
        characteristics = [operating_characteristics(test, p) for p in sorted({p0, p1, *rates})]
    outcome = None if outcomes is None else decide(test, (digit == "1" for digit in outcomes))
    if as_json:
        _print_json(
            {
                **asdict(test),
                "boundaries": {
                    "upper": test.upper,
                    "lower": test.lower,
                    "agreement_step": test.agreement_step,
                    "disagreement_step": test.disagreement_step,
                    "slope": test.slope,
                    "intercept": test.intercept,
                },
                "decision": outcome.decision if outcome else None,
                "n": outcome.n if outcome else None,
                "agreements": outcome.agreements if outcome else None,
                "score": outcome.score if outcome else None,
                "operating_characteristics": [asdict(row) for row in characteristics],
            }
        )
        return
    rows = [
        ("per agreement", f"{test.agreement_step:+.6f}"),
        ("per disagreement", f"{test.disagreement_step:+.6f}"),
        ("SAME STATE at", f"{test.upper:+.6f} (at the earliest after {test.least_n_for_same(0)})"),
        ("OTHER STATE at", f"{test.lower:+.6f} (after {test.least_disagreements_for_other(0)})"),
        ("INTERMEDIATE", f"between them after {truncate}"),
    ]
    if outcome is not None:
        counts = f"{outcome.agreements} of {outcome.n} agree, score {outcome.score:+.6f}"
        rows.append(("decision", f"{outcome.decision} ({counts})"))
    _print_rows(f"sequential test, p {p0:g} against {p1:g}", rows)
    _print_characteristics(characteristics)


@stats.command()
@click.option("--n", "n", type=int, required=True, help="Paired items.")
@_MARGIN
@click.option(
    "--discordance", type=float, required=True, help="Expected share of items that one arm alone gets right."
)
@click.option("--difference", type=float, default=0.0, show_default=True, help="True candidate - reference.")
@_ALPHA
@_JSON
def power(n: int, margin: float, discordance: float, difference: float, alpha: float, as_json: bool) -> None:
    """What n paired items can show, and how many are needed.

    \b
    JSON keys: n, margin, alpha, discordance, difference, power (both score tests,
    exact trinomial), power_both_tests (the exact test as well: the verdict's
    rule), floor_margin, minimum_n, n80, n90 (null: none up to 200000).
    """
    from dataclasses import asdict

    from auditor.stats.power import analyse_power

    with _impossible_is_usage_error():
        result = analyse_power(n, margin, discordance, difference, alpha)
    if as_json:
        _print_json(asdict(result))
        return
    _print_rows(
        f"{n} paired items, margin {margin:g}, discordance {discordance:g}, difference {difference:g}",
        (
            ("power, score test", _figure(result.power)),
            ("power, with exact test", _figure(result.power_both_tests)),
            ("floor margin", f"{result.floor_margin:.4f}, the smallest that n can show"),
            ("n for 80% power", "none up to 200000" if result.n80 is None else str(result.n80)),
            ("n for 90% power", "none up to 200000" if result.n90 is None else str(result.n90)),
            ("least n", f"{result.minimum_n}: below it inconclusive by design"),
        ),
    )


@contextlib.contextmanager
def _impossible_is_usage_error() -> Iterator[None]:
    """Impossible counts and rates are the caller's mistake: exit 2, with the sentence that says which."""
    try:
        yield
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _print_json(document: Mapping[str, Any]) -> None:
    click.echo(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False))


def _tost_document(result: PairedEquivalence) -> dict[str, Any]:
    from dataclasses import asdict

    document = asdict(result)
    document["farrington_manning"] = {"p": document.pop("farrington_manning_p")}
    for name in ("newcombe10", "paired_wald"):
        document[name] = {level: document.pop(f"{name}_{level}") for level in ("ci90", "ci95")}
    for name in ("smallest_margin", "floor_margin", "minimum_n", "verdict", "reason"):
        document[name] = document.pop(name)
    # The statistic is infinite where a null leaves no variance; JSON has no infinity, and p says as much.
    for key in ("z_lower", "z_upper"):
        if not math.isfinite(document["score"][key]):
            document["score"][key] = None
    return document


def _print_tost(result: PairedEquivalence, counts: tuple[int, int, int, int]) -> None:
    both, candidate_only, reference_only, neither = counts
    score, exact, wald = result.score, result.exact, result.unpaired_wald
    points = f"±{result.margin:g} at {result.alpha:g}"
    rows = [
        ("pairs", f"{result.n}, of them {result.missing} with a missing answer"),
        ("right in", f"both {both}, candidate only {candidate_only}"),
        ("", f"reference only {reference_only}, neither {neither}"),
        ("difference", "unknown" if result.estimate is None else f"{result.estimate:+.4f}"),
        ("score p", f"{_p(score.p)} (worse {_p(score.p_lower)}, better {_p(score.p_upper)})"),
        ("exact p", f"{_p(exact.p)} (worse {_p(exact.p_lower)}, better {_p(exact.p_upper)})"),
        ("score 90%, 95%", f"{_signed(score.ci90)}, {_signed(score.ci95)}"),
        ("McNemar", f"exact {_p(result.mcnemar.exact)}, mid-p {_p(result.mcnemar.mid_p)}"),
        ("smallest margin", f"{result.smallest_margin:.4f} shown, {result.floor_margin:.4f} the floor"),
        ("unpaired Wald p", f"{_p(wald.p)} (SE {wald.se:.4f})"),
        ("Farrington-Manning p", _p(result.farrington_manning_p)),
        ("Newcombe 10 95%", _signed(result.newcombe10_ci95)),
        ("paired Wald 90%", _signed(result.paired_wald_ci90)),
    ]
    _print_rows(f"paired equivalence within {points}", rows)
    click.echo(f"\n{result.verdict.upper()}")
    click.echo(click.wrap_text(result.reason, width=80))


def _print_characteristics(characteristics: Sequence[OperatingCharacteristics]) -> None:
    click.echo(f"\n{'true rate':>9}  {'SAME':>9}  {'OTHER':>9}  {'undecided':>9}  {'mean n':>7}")
    for row in characteristics:
        click.echo(
            f"{row.p:>9g}  {_rate(row.same):>9}  {_rate(row.other):>9}  {_rate(row.undecided):>9}"
            f"  {row.expected_n:>7.2f}"
        )


def _print_rows(title: str, rows: Sequence[tuple[str, str]]) -> None:
    click.echo(title)
    for name, value in rows:
        click.echo(f"  {name:<23}{value}")


def _p(value: float | None) -> str:
    """A p value. One that underflowed is not 0."""
    if value is None:
        return "undefined"
    return "<1e-300" if value == 0.0 else _rate(value)


def _rate(value: float) -> str:
    """A probability: four decimals, or two digits where those would leave too few."""
    return _figure(value) if value >= 0.001 or value == 0.0 else f"{value:.1e}"


def _figure(value: float) -> str:
    """A share to four decimals, never rounded to a 0 or 1 that it is not."""
    if value in (0.0, 1.0):
        return f"{value:g}"
    text = f"{value:.4f}"
    if text == "1.0000":
        return ">0.9999"
    return f"{value:.1e}" if text == "0.0000" else text


def _interval(bounds: tuple[float, float]) -> str:
    return f"{_figure(bounds[0])} to {_figure(bounds[1])}"


def _signed(bounds: tuple[float, float]) -> str:
    return f"{bounds[0]:+.4f} to {bounds[1]:+.4f}"
