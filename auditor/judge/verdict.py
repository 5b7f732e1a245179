"""One verdict from all gates. All must pass (intersection-union), so their number needs no correction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from auditor.judge.figures import Figures
from auditor.judge.shares import of
from auditor.model.judgement import EXIT_CODES, Gate, Status, Verdict, VerdictName

PRECEDENCE: tuple[tuple[Status, VerdictName], ...] = (
    ("ERROR", "ERROR"),
    ("UNCERTIFIED", "UNCERTIFIED"),
    ("FAIL", "FAIL"),
    ("INCONCLUSIVE", "INCONCLUSIVE"),
    ("NOT RUN", "INCONCLUSIVE"),
)
"""After INVALID, which is refused before any server starts; PASS is what remains."""


def conclude(figures: Figures, gates: Sequence[Gate]) -> Verdict:
    """The first status in order of precedence that any gate has; INVALID without any gate."""
    limits = tuple(_limits(figures, gates))
    if not gates:
        return _verdict(
            "INVALID",
            "The plan asks for no gate, and no checks is not a pass: name at least one with --gates.",
            limits,
        )
    for status, name in PRECEDENCE:
        hit = [g for g in gates if g.status == status]
        if hit:
            return _verdict(name, _reason(hit), limits)
    return _verdict("PASS", _passed(gates), limits)


def _verdict(name: VerdictName, reason: str, limits: tuple[str, ...]) -> Verdict:
    return Verdict(name=name, exit_code=EXIT_CODES[name], reason=reason, limits=limits)


def _reason(hit: Sequence[Gate]) -> str:
    first = hit[0]
    more = f" ({len(hit) - 1} more: {', '.join(g.name for g in hit[1:4])})" if len(hit) > 1 else ""
    seen = f"{first.name}: {first.figure.rstrip('.')}; bound: {first.bound}{more}."
    return f"{seen} {_sentence(first.remedy)}".strip()


def _sentence(text: str) -> str:
    return "" if not text else text[0].upper() + text[1:].rstrip(".") + "."


def _passed(gates: Sequence[Gate]) -> str:
    shown = "; ".join(f"{g.name}: {g.figure}" for g in gates if g.name.startswith(("agreement", "accuracy")))
    return f"All {len(gates)} gates passed" + (f": {shown.rstrip('.')}." if shown else ".")


def _limits(figures: Figures, gates: Sequence[Gate]) -> Iterator[str]:
    plan = figures.scene.plan
    names = {g.name.partition("/")[0] for g in gates}
    if plan.target_kind != "trained":
        yield f"The target is a {plan.target_kind} model: figures do not carry over to a trained one."
    if all(len(figures.scene.served(a.name)) <= 1 for a in plan.arms):
        yield "One launch an arm: this launch is judged, not the configuration."
    else:
        yield (
            "Arms were relaunched until they matched (see every attempt): this launch is judged, not the "
            "configuration."
        )
    yield from _byte_exact_limits(figures, names)
    yield from _load_limits(figures)
    for launch in figures.chosen.values():
        if launch.state == "attached":
            what = ", ".join(launch.unverified) or "its configuration"
            yield f"{launch.arm} was started by somebody else: {what} could not be verified."
    if plan.pin != "none" and not plan.attached:
        yield f"Launches were pinned ({plan.pin}): stock launches may be in other states."
    if not any(a.draft for a in plan.arms):
        yield "No arm speculates."


def _byte_exact_limits(figures: Figures, names: set[str]) -> Iterator[str]:
    if "agreement" not in names:
        yield "Byte-exact agreement was not asked for and is not claimed."
    elif "certification" not in names:
        yield "Launch states were not certified: a divergence may be the launch's, not the head's."
    if "certification" not in names or "accuracy" not in names:
        uncertified = [c.other for c in figures.certificates if c.state != "SAME STATE"]
        if uncertified:
            yield f"Not certified as the reference's state: {', '.join(uncertified)}."
    elif any(g in names for g in ("agreement", "certification")):
        missing = [c.other for c in figures.certificates if c.fingerprints == "missing"]
        if missing:
            yield f"No fingerprint was compared for {', '.join(missing)}."
    candidates = {a.name for a in figures.scene.plan.candidates}
    for found in figures.agreement:
        if found.arm in candidates and found.zero_bound is not None and found.corpus != "all":
            yield (
                f"{found.arm} on {found.corpus}: no disagreement in {found.agreement.n} prompts means at "
                f"most "
                f"{found.zero_bound:.4f} (3/n), not identical."
            )
    if "accuracy" not in names:
        yield "Task accuracy was not asked for and is not claimed."


def _load_limits(figures: Figures) -> Iterator[str]:
    varying = [x for x in figures.invariance if x.self_agreement.k < x.self_agreement.n]
    if varying:
        worst = min(varying, key=lambda x: x.self_agreement.k / x.self_agreement.n)
        yield (
            f"Batch invariance is not claimed: {worst.arm} equals its own batch-1 completions in "
            f"{of(worst.self_agreement)} requests at {worst.level} in flight."
        )
    else:
        yield "Batch invariance is not claimed beyond the levels, prompts and two runs that were measured."
