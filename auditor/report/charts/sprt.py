"""The path of the sequential test: log likelihood ratio after each certification prompt."""

from __future__ import annotations

import math

from markupsafe import Markup

from auditor.model.plan import CertificationPlan
from auditor.report import numbers
from auditor.report.svg import Canvas, Scale, x_axis, y_axis

WIDTH = 400


def totals(outcomes: str, plan: CertificationPlan) -> list[float]:
    """Log likelihood ratio before the first prompt and after each (Wald 1945): log p1/p0 an agreement,
    log (1 - p1)/(1 - p0) a disagreement."""
    up = math.log(plan.p1 / plan.p0)
    down = math.log((1 - plan.p1) / (1 - plan.p0))
    out = [0.0]
    for outcome in outcomes:
        out.append(out[-1] + (up if outcome == "1" else down))
    return out


def path(key: str, title: str, outcomes: str, plan: CertificationPlan, style: int) -> Markup:
    """`outcomes`: 1 agreement, 0 disagreement. The bounds are Wald's for the plan's error rates."""
    path_of = totals(outcomes, plan)
    upper, lower = math.log((1 - plan.beta) / plan.alpha), math.log(plan.beta / (1 - plan.alpha))
    agreed = outcomes.count("1")
    canvas = Canvas(
        WIDTH,
        210,
        id=f"sprt-{key}",
        title=title,
        desc=f"{numbers.counts(agreed, len(outcomes))} agreed up to the stop; the log likelihood ratio "
        f"ended at {numbers.number(path_of[-1])}; bounds {numbers.signed(lower)}, {numbers.signed(upper)}.",
    )
    x = Scale(0, max(8, len(outcomes)), 46, WIDTH - 14)
    reach = max(upper, -lower, max(map(abs, path_of))) * 1.12
    y = Scale(-reach, reach, 160, 8)
    y_axis(canvas, y, [(0.0, "0")], x.start, x.end)
    for bound, name in ((upper, "same state"), (lower, "other state")):
        canvas.line(x.start, y(bound), x.end, y(bound), "edge")
        canvas.text(x.start + 4, y(bound) + (13 if bound > 0 else -5), name, "tick")
        canvas.text(x.start - 6, y(bound) + 4, numbers.signed(bound, 1), "tick", "end")
    canvas.polyline([(x(i), y(v)) for i, v in enumerate(path_of)], f"l solid s{style}")
    canvas.mark(style, x(len(outcomes)), y(path_of[-1]))
    step = max(1, math.ceil(x.high / 8))
    x_axis(
        canvas, x, [(float(k), str(k)) for k in range(0, int(x.high) + 1, step)], 160, "certification prompt"
    )
    return canvas.markup()
