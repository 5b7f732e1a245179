"""Engines by name. A second engine is one more file and one more line here."""

from __future__ import annotations

from auditor.engine.base import Engine
from auditor.engine.vllm import Vllm
from auditor.errors import InvalidPlan
from auditor.model.plan import AuditPlan

ENGINES: dict[str, Engine] = {"vllm": Vllm()}


def engine_for(plan: AuditPlan) -> Engine:
    """The adapter of the plan's engine. Raises InvalidPlan for a kind that has none."""
    try:
        return ENGINES[plan.engine.kind]
    except KeyError:
        raise InvalidPlan(
            f"the engine kind is {plan.engine.kind}",
            expected=f"one of {', '.join(sorted(ENGINES))}",
            todo="correct engine.kind in the plan",
        ) from None
