"""audit plan"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from auditor.plan.flags import click_options, resolve_options

if TYPE_CHECKING:
    from auditor.plan.config import Resolved
    from auditor.plan.forecast import Forecast


@click.command()
@click_options()
@click.option(
    "--speed",
    metavar="ALONE,LOADED",
    default="26,142",
    help="Tokens a second of one server at batch 1 and under load, for the estimate of time.  "
    "[default: 26,142, SmolLM2-135M on two CPU cores]",
)
@click.option(
    "--boot",
    metavar="SECONDS",
    type=float,
    default=45.0,
    help="Seconds that a server needs to start.  [default: 45]",
)
@click.option("--json", "as_json", is_flag=True, help="Print plan, origins and forecast as JSON.")
def plan(speed: str, boot: float, as_json: bool, **options: object) -> int:
    """Print the resolved plan, where each value comes from, and what the audit can show.

    Takes the options of `audit equivalence`. Nothing is started. A value's origin is its flag, its AUDITOR_*
    variable, audit.toml, a preset, `derived` (from other values) or `default`.
    """
    import msgspec

    from auditor.plan.forecast import corpus_sizes, forecast

    resolved = resolve_options(options)
    rates = _rates(speed)
    found = forecast(resolved.plan, corpus_sizes(resolved.plan))
    if as_json:
        document = {
            "plan": resolved.plan,
            "origins": [{"option": o.option, "value": o.value, "source": o.source} for o in resolved.origins],
            "forecast": found,
            "seconds_at_most": found.seconds_at_most(*rates, boot),
        }
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=1))
        return 0
    click.echo(_plan_text(resolved))
    click.echo(_forecast_text(found, rates, boot))
    return 0


def _rates(speed: str) -> tuple[float, float]:
    try:
        alone, loaded = (float(part) for part in speed.split(","))
    except ValueError:
        raise click.BadParameter("expected two numbers, for example 26,142", param_hint="--speed") from None
    if min(alone, loaded) <= 0:
        raise click.BadParameter("expected numbers above 0", param_hint="--speed")
    return alone, loaded


def _plan_text(resolved: Resolved) -> str:
    width = max(len(o.option) for o in resolved.origins)
    lines = [f"{'option':<{width}}  {'value':<40}  origin"]
    lines += [f"{o.option:<{width}}  {o.value:<40}  {o.source}" for o in resolved.origins]
    lines += ["", "arms"]
    for arm in resolved.plan.arms:
        what = arm.draft.speculative_config if arm.draft else "no speculation"
        lines.append(f"  {arm.name} ({arm.role}): {arm.url or 'launched'}; {what}")
    return "\n".join(lines)


def _forecast_text(found: Forecast, rates: tuple[float, float], boot: float) -> str:
    sprt = found.certification
    fewest = f"{sprt.fewest} agreements in a row certify" if sprt.fewest else "no outcome certifies"
    lines = [
        "",
        "What this can show",
        f"  certification: at most {sprt.prompts} prompts; {fewest}; the same state is certified with "
        f"probability {sprt.same_at_p1:.4f}, another one with {sprt.same_at_p0:.4f}",
    ]
    for corpus in found.agreement:
        lines.append(
            f"  agreement, {corpus.corpus}: n = {corpus.n}; without a disagreement at most "
            f"{corpus.at_most:.4f} disagree, lower bound {corpus.best_lower_bound:.4f}"
        )
    if found.accuracy is not None:
        test = found.accuracy
        lines.append(f"  accuracy: n = {test.n}, margin {test.margin:g}, least n {test.minimum_n}")
        for at in test.power:
            lines.append(
                f"    if one arm alone solves {at.discordance:.0%}: power {at.power:.3f}, "
                f"smallest margin {at.smallest_margin:.4f}"
            )
    lines += [f"  note: {remark}" for remark in found.remarks]
    lines += ["", "What this costs at most (every answer at its cap)"]
    for work in found.work:
        lines.append(f"  {work.stage:<28} {work.requests:>8,} requests {work.tokens_at_most:>14,} tokens")
    minutes = found.seconds_at_most(*rates, boot) / 60
    lines.append(
        f"  {found.launches} launches of {boot:g} s; at {rates[0]:g} tokens/s alone and {rates[1]:g} under "
        f"load at most {minutes:,.0f} minutes, one arm after the other"
    )
    if found.controls:
        lines.append(f"  where a candidate diverges, one more launch each for: {', '.join(found.controls)}")
    return "\n".join(lines)
