"""Stage 5's controls that separate head from engine: servers of no arm, started when all else is measured.

`width`: the target without a drafter at k + 1 tokens a forward pass, forced along the reference's own
completions. `self-draft`: the target drafting for itself, on the prompts where a candidate diverged. One that
does not start is a finding, never an error of the audit.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Collection, Sequence

from auditor.engine.registry import engine_for
from auditor.errors import EngineError, InvalidPlan
from auditor.model.completion import Completion, Prompt
from auditor.model.judgement import Finding
from auditor.model.plan import Arm, Draft
from auditor.model.record import Event
from auditor.run import stages
from auditor.run.context import Context

SELF_DRAFT = "self-draft"


async def run_controls(ctx: Context, reference: str, diverged: Collection[tuple[str, str]]) -> None:
    """`diverged`: (arm, prompt id) of every divergence with two tokens to compare; `reference`: its launch.

    Stops all other servers first: nothing else is left to be measured, and a self-draft takes twice the
    memory.
    """
    plan = ctx.plan
    prompts = {arm.name: [p for name, p in diverged if name == arm.name] for arm in plan.candidates}
    drafting = {
        arm.name: arm.draft.tokens for arm in plan.candidates if prompts[arm.name] and arm.draft is not None
    }
    lengths = sorted({tokens for tokens in drafting.values() if tokens})
    wanted = plan.forensics.controls if plan.forensics else ()
    if not lengths or not wanted or plan.attached:
        return
    await ctx.fleet.close()
    if "width" in wanted:
        for tokens in lengths:
            there = {p for arm, k in drafting.items() if k == tokens for p in prompts[arm]}
            await _optional(ctx, f"width-{tokens + 1}", _width(ctx, reference, tokens + 1, there))
    if "self-draft" in wanted:
        there = {p for mine in prompts.values() for p in mine}
        await _optional(ctx, SELF_DRAFT, _self_draft(ctx, reference, lengths[0], there))


async def _optional(ctx: Context, name: str, work: Awaitable[None]) -> None:
    try:
        await work
    except (EngineError, InvalidPlan) as error:
        ctx.progress.note(f"{name}: {error}")
        if not any(f.code == "CONTROL-NOT-RUN" and f.subject == name for f in ctx.recorder.state.findings):
            ctx.recorder.event(Event(finding=_not_run(name, error)))
    finally:
        await ctx.fleet.close()


def _not_run(name: str, error: Exception) -> Finding:
    return Finding(
        code="CONTROL-NOT-RUN",
        severity="note",
        subject=name,
        seen=f"the control was not measured: {error}",
        expected="a server of the same flags without the head",
        remedy="the measured noise floor stands in for it; --controls none leaves it out",
    )


async def _width(ctx: Context, reference: str, width: int, there: set[str]) -> None:
    """Force the reference's completions at `width`: a sample of all, and those in `there`."""
    assert ctx.plan.forensics is not None
    sample = {p.id for p in stages.in_turn(ctx.plan, ctx.prompts)[: ctx.plan.forensics.control_prompts]}
    have = {f.prompt for f in ctx.recorder.state.forced.values() if f.width == width and f.error is None}
    paths = _paths(ctx, reference, (sample | there) - have)
    if not paths:
        return
    engine = engine_for(ctx.plan)
    arm = Arm(name=f"width-{width}", role="control", extra_args=engine.width_args(width))
    server = await ctx.fleet.launch(arm, cache_from=_caches(ctx, reference))
    if (real := engine.width_of(server.launch)) not in (None, width):
        raise EngineError(f"{server.launch.id} computes {real} tokens a pass", expected=str(width))
    step = ctx.progress.start(f"forcing at width {width}", len(paths))
    started, client = ctx.clock.now(), ctx.fleet.client(server)
    failed = 0
    try:
        async with ctx.fleet.measuring(arm):
            for done, (prompt, ids) in enumerate(paths, 1):
                forced = await client.force(
                    prompt, ids, launch=server.launch.id, width=width, sampled=prompt.id in sample
                )
                ctx.recorder.event(Event(forced=forced))
                if (death := server.death()) is not None:
                    raise EngineError(f"{server.launch.id} died: {death}")
                failed += forced.error is not None
                if failed == len(paths):
                    raise EngineError(f"{server.launch.id} scored no path: {forced.error}")
                step.update(done, 1)
    finally:
        step.finish()
        await client.close()
        ctx.note("width control", server.launch.id, started)


def _paths(ctx: Context, reference: str, wanted: set[str]) -> list[tuple[Prompt, Sequence[int]]]:
    prompts = {p.id: p for p in ctx.prompts.all() if p.id in wanted}
    evidence = ctx.evidence()
    return [
        (prompts[answer.prompt], answer.token_ids)
        for phase in evidence.phases
        if phase.stage == "batch1" and phase.launch == reference
        for answer in evidence.answers(phase.id)
        if isinstance(answer, Completion) and answer.prompt in prompts and answer.token_ids
    ]


async def _self_draft(ctx: Context, reference: str, tokens: int, there: set[str]) -> None:
    """The prompts in `there` on the target with itself as the draft model."""
    if any(p.stage == "self-draft" and p.state == "done" for p in ctx.recorder.state.phases.values()):
        return
    config = engine_for(ctx.plan).self_draft(ctx.plan.target, tokens)
    draft = Draft(
        name=SELF_DRAFT,
        method=str(config["method"]),
        path=ctx.plan.target,
        speculative_config=json.dumps(config, sort_keys=True),
    )
    arm = Arm(name=SELF_DRAFT, role="candidate", draft=draft)
    prompts = [p for p in ctx.prompts.all() if p.id in there]
    server = await ctx.fleet.launch(arm, cache_from=_caches(ctx, reference))
    async with ctx.fleet.measuring(arm):
        await ctx.measure(stages.self_draft(server.launch.id, arm.name, prompts), server)


def _caches(ctx: Context, reference: str) -> str | None:
    return reference if ctx.plan.pin == "snapshot" else None
