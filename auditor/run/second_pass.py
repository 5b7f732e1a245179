"""Stage 5 as it runs: calibrate rescoring on the reference, then score every divergence on both servers."""

from __future__ import annotations

from collections.abc import Iterator

from auditor.engine.base import Server
from auditor.errors import EngineError
from auditor.judge.figures import divergences_to_score
from auditor.measure.phases import GRACE_S
from auditor.model.completion import Completion, Prompt, Score
from auditor.model.record import Event, Evidence
from auditor.run import stages
from auditor.run.context import Context
from auditor.run.controls import run_controls
from auditor.run.resume import earlier_launch, live

POSITIONS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Generated positions, 1-based, at which each calibration completion is rescored, its last token besides."""
CALIBRATION = "calibration"


async def second_pass(ctx: Context, reference: str) -> dict[str, str]:
    """Score what the first pass could not ask for without disturbing it. Nothing diverged: nothing to do.

    Returns why an arm could not be scored, by arm. Raises EngineError when the reference cannot be had.
    """
    plan = ctx.plan
    failures: dict[str, str] = {}
    if plan.forensics is None or plan.agreement is None:
        return failures
    evidence = ctx.evidence()
    todo = tuple(divergences_to_score(evidence))
    if not todo:
        return failures
    arms = {arm.name: arm for arm in plan.arms}
    started = ctx.clock.now()
    reference_arm = next(a for a in plan.arms if a.role == "reference")
    control_arm = next((a for a in plan.arms if a.role == "control"), None)
    forced = _forced(evidence, reference, todo)

    server = await live(ctx, reference_arm, reference)
    async with ctx.fleet.measuring(reference_arm):
        await ctx.measure(stages.calibration(plan, reference, reference_arm.name, ctx.prompts), server)
        calibration = tuple(_calibration(ctx.evidence(), f"calibrate/{reference}"))
        await _score(ctx, server, reference, calibration, "rescoring reference")
        await _score(ctx, server, reference, forced, "rescoring reference")
    if plan.engine.one_at_a_time:
        await ctx.fleet.stop(reference)

    for name in dict.fromkeys([*([control_arm.name] if control_arm else []), *(arm for arm, _, _ in todo)]):
        launch = earlier_launch(ctx, arms[name])
        if launch is None:
            continue
        work = tuple(item for item in forced if item[0] == name)
        if control_arm is not None and name == control_arm.name:
            work = calibration + work
        try:
            server = await live(ctx, arms[name], launch.id)
            async with ctx.fleet.measuring(arms[name]):
                await _score(ctx, server, launch.id, work, f"rescoring {name}")
        except EngineError as error:
            failures[name] = str(error)
            ctx.progress.note(f"{name}: {error}")
        if plan.engine.one_at_a_time:
            await ctx.fleet.stop(launch.id)
    ctx.note("second pass", "all", started)
    await run_controls(ctx, reference, [(arm, prompt) for arm, prompt, _ in todo])
    return failures


Forced = tuple[str, Prompt, tuple[int, ...], int | None, float | None]
"""Pair arm (or `calibration`), prompt, generated prefix, decoded token and its logprob (calibration only)."""


def _forced(evidence: Evidence, reference: str, todo: tuple[tuple[str, str, int], ...]) -> tuple[Forced, ...]:
    """The prefixes before each divergence: the reference's own ids up to it, which the other shares."""
    wanted: dict[str, list[tuple[str, int]]] = {}
    for arm, prompt_id, position in todo:
        wanted.setdefault(prompt_id, []).append((arm, position))
    prompts = {p.id: p for p in evidence.prompts() if p.id in wanted}
    forced: list[Forced] = []
    for phase in evidence.phases:
        if phase.stage != "batch1" or phase.launch != reference:
            continue
        for answer in evidence.answers(phase.id):
            if isinstance(answer, Completion):
                for arm, position in wanted.get(answer.prompt, ()):
                    ids = answer.token_ids[: position - 1]
                    forced.append((arm, prompts[answer.prompt], ids, None, None))
    return tuple(forced)


def _calibration(evidence: Evidence, phase: str) -> Iterator[Forced]:
    """Positions of the calibration completions with the token and logprob that decoding produced."""
    asked = {answer.prompt for answer in evidence.answers(phase)}
    prompts = {p.id: p for p in evidence.prompts() if p.id in asked}
    for answer in evidence.answers(phase):
        if not isinstance(answer, Completion) or answer.logprobs is None:
            continue
        length = min(len(answer.token_ids), len(answer.logprobs))
        for position in sorted({p for p in POSITIONS if p < length} | {length} - {0}):
            at = position - 1
            token, logprob = answer.token_ids[at], answer.logprobs[at]
            yield CALIBRATION, prompts[answer.prompt], answer.token_ids[:at], token, logprob


async def _score(ctx: Context, server: Server, launch: str, work: tuple[Forced, ...], label: str) -> None:
    """Score each forced prefix once, at batch 1, in the record; what was scored already is left out. Raises
    EngineError when the server died meanwhile."""
    scores = ctx.recorder.state.scores
    have = {(s.launch, s.pair_arm, s.prompt, s.position) for s in scores if s.error is None}
    work = tuple(w for w in work if (launch, w[0], w[1].id, len(w[2]) + 1) not in have)
    if not work:
        return
    assert ctx.plan.forensics is not None
    step = ctx.progress.start(label, len(work))
    waited = False
    client = ctx.fleet.client(server)
    try:
        for done, (pair_arm, prompt, prefix, expected, decoded) in enumerate(work, 1):
            score: Score = await client.score(
                prompt,
                prefix,
                launch=launch,
                pair_arm=pair_arm,
                top=ctx.plan.forensics.top_logprobs,
                expected=expected,
                decode_logprob=decoded,
            )
            ctx.recorder.event(Event(score=score))
            if score.error is not None:
                await _unless_dead(ctx, server, 0.0 if waited else GRACE_S)
                waited = True
            step.update(done, 1)
    finally:
        step.finish()
        await client.close()


async def _unless_dead(ctx: Context, server: Server, grace_s: float) -> None:
    """Raises EngineError when `server` is dead, or is seen to be within `grace_s`: a process that just died
    resets its connections first."""
    until = ctx.clock.now() + grace_s
    while (death := server.death()) is None and ctx.clock.now() < until:
        await ctx.clock.sleep(0.1)
    if death is not None:
        raise EngineError(f"{server.launch.id} died while it was scoring: {death}")
