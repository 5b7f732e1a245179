"""Did the head run? Speculation counters of each phase, from differences, and what they warn of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from auditor.judge.scene import Scene
from auditor.model.counters import (
    CounterDelta,
    Restarted,
    acceptance_by_position,
    acceptance_length,
    acceptance_rate,
    delta,
)
from auditor.model.judgement import Activity, Finding
from auditor.model.phase import Phase

Status = Literal["ran", "never ran", "unknown", "restarted", "not speculative"]
COLLAPSED = 0.5
"""Acceptance at a level, as a share of the lowest level's, below which it has collapsed."""
FALLING = 0.7
"""… and below which a level is named as where the collapse began."""
STICKY = 0.25
"""Acceptance after a drop, as a share of that before, that counts as dead."""
INERT = 0.01
"""Acceptance rate below which agreement says little of the head."""


def activity(phase: Phase, speculative: bool) -> Activity:
    """One phase. `speculative`: whether its arm has a draft."""
    window = delta(phase.before, phase.after)
    rise = window if isinstance(window, CounterDelta) else None
    seconds = phase.generating_s
    speed = rise.generation_tokens / seconds if rise and rise.generation_tokens and seconds else None
    return Activity(
        arm=phase.arm,
        launch=phase.launch,
        phase=phase.id,
        drafts=rise.drafts if rise else None,
        draft_tokens=rise.draft_tokens if rise else None,
        accepted=rise.accepted_tokens if rise else None,
        per_position=acceptance_by_position(rise) if rise else None,
        acceptance_length=acceptance_length(rise) if rise else None,
        tokens_per_s=speed,
        status=_status(window, speculative),
    )


def _status(window: CounterDelta | Restarted | None, speculative: bool) -> Status:
    if isinstance(window, Restarted):
        return "restarted"
    if not speculative:
        # A reference that drafts is no reference; its counters are kept and judged by the gate.
        return "ran" if window is not None and window.drafts else "not speculative"
    if window is None or window.drafts is None:
        return "unknown"
    return "ran" if window.drafts > 0 else "never ran"


def activities(scene: Scene) -> list[Activity]:
    """Every phase that ended, in order of start."""
    speculative = {arm.name: arm.role == "candidate" for arm in scene.plan.arms}
    return [activity(p, speculative.get(p.arm, False)) for p in scene.evidence.phases if p.state != "running"]


def pooled_length(found: Iterable[Activity]) -> float | None:
    """1 + accepted/drafts over several phases; None without drafts."""
    known = [a for a in found if a.drafts is not None and a.accepted is not None]
    drafts = sum(a.drafts or 0 for a in known)
    return 1.0 + sum(a.accepted or 0 for a in known) / drafts if drafts else None


def findings(scene: Scene, found: Sequence[Activity]) -> list[Finding]:
    """Warnings on acceptance, per candidate arm."""
    phases = {p.id: p for p in scene.evidence.phases}
    result = []
    for arm in scene.plan.candidates:
        mine = [a for a in found if a.arm == arm.name]
        result += _inert(arm.name, mine)
        sticky = _sticky(arm.name, mine, phases)
        # A collapse that lasts explains the levels after it as well.
        result += sticky or _by_level(arm.name, mine, phases)
    return result


def rate(found: Activity) -> float | None:
    """Accepted over proposed draft tokens of one phase."""
    return acceptance_rate(CounterDelta(draft_tokens=found.draft_tokens, accepted_tokens=found.accepted))


def _inert(arm: str, mine: Sequence[Activity]) -> list[Finding]:
    drafted = sum(a.draft_tokens or 0 for a in mine)
    accepted = sum(a.accepted or 0 for a in mine)
    if not drafted or accepted >= INERT * drafted:
        return []
    return [
        Finding(
            code="HEAD-INERT",
            severity="warning",
            subject=arm,
            seen=f"{accepted} of {drafted} draft tokens were accepted",
            expected=f"at least {INERT:.0%}",
            remedy="agreement stands but says little of this head: check that its weights and lm_head were "
            "loaded "
            "and that it belongs to this target",
        )
    ]


def _by_level(arm: str, mine: Sequence[Activity], phases: dict[str, Phase]) -> list[Finding]:
    pooled: dict[int, tuple[int, int]] = {}
    for found in mine:
        phase = phases[found.phase]
        if phase.stage == "load" and found.draft_tokens and found.accepted is not None:
            drafted, accepted = pooled.get(phase.concurrency, (0, 0))
            pooled[phase.concurrency] = drafted + found.draft_tokens, accepted + found.accepted
    rates = {level: accepted / drafted for level, (drafted, accepted) in sorted(pooled.items())}
    if len(rates) < 2:
        return []
    return level_collapse(arm, rates)


def level_collapse(arm: str, rates: dict[int, float]) -> list[Finding]:
    """`rates`: acceptance rate by level, lowest level first."""
    base = next(iter(rates.values()))
    if not base or min(rates.values()) >= COLLAPSED * base:
        return []
    first = next(level for level, value in rates.items() if value < FALLING * base)
    shown = ", ".join(f"{level}: {value:.2f}" for level, value in rates.items())
    return [
        Finding(
            code="ACCEPTANCE-FALLS-WITH-LOAD",
            severity="warning",
            subject=arm,
            seen=f"acceptance by requests in flight {{{shown}}}",
            expected="about the same acceptance at every level",
            remedy=f"draft state is probably mixed up between requests at {first} and more in flight: "
            "report it to the engine, and serve below that level until it is mended",
        )
    ]


def _sticky(arm: str, mine: Sequence[Activity], phases: dict[str, Phase]) -> list[Finding]:
    ordered = sorted(mine, key=lambda a: phases[a.phase].started_s)
    windows = [(phases[a.phase], r) for a in ordered for r in (rate(a),) if r is not None]
    start = dead_from([r for _, r in windows])
    # Low acceptance that ends with the load is a matter of levels: a later batch-1 phase must be dead too.
    if start is None or all(phase.concurrency > 1 for phase, _ in windows[start + 1 :]):
        return []
    return [
        Finding(
            code="ACCEPTANCE-COLLAPSED",
            severity="warning",
            subject=arm,
            seen=f"acceptance fell to {windows[start][1]:.2f} in {windows[start][0].id} and stayed low in "
            f"all "
            f"{len(windows) - start} windows from there",
            expected="acceptance that recovers after one hard phase",
            remedy="outputs may still be equal, the speed is gone until a restart: look for a sequence "
            "beyond the "
            "draft's position limit in that phase, and vary the order to confirm",
        )
    ]


def dead_from(rates: Sequence[float]) -> int | None:
    """Index of the first of two or more windows that stay below STICKY of the median before; else None."""
    for i in range(1, len(rates) - 1):
        before = sorted(rates[:i])[i // 2]
        if before > 0 and all(r < STICKY * before for r in rates[i:]):
            return i
    return None
