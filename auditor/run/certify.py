"""Stage 3 as it runs: fingerprint, two passes, the decision, relaunches. The decision itself is judge's."""

from __future__ import annotations

import asyncio

from auditor.engine.base import Server
from auditor.errors import EngineError
from auditor.judge.certify import certificate, repeatability
from auditor.model.judgement import PairCertificate
from auditor.model.plan import Arm
from auditor.run import stages
from auditor.run.context import Context
from auditor.run.resume import go_on


class ReferenceState:
    """What other arms wait for. `launch` is the reference's id from `ready` on."""

    def __init__(self) -> None:
        self.launch: str | None = None
        self.ready = asyncio.Event()
        self.characterised = asyncio.Event()
        """Set when the reference has answered the certification prompts."""

    def is_ready(self, launch: str) -> None:
        self.launch = launch
        self.ready.set()


async def characterise(ctx: Context, arm: Arm, server: Server) -> None:
    """Fingerprint the launch and let it answer the certification prompts twice."""
    launch = server.launch.restart_of or server.launch.id
    async with ctx.fleet.measuring(arm):
        if server.launch.restart_of is None:
            await ctx.fingerprint(server)
        if "certification" not in ctx.plan.gates:
            return
        for spec in stages.certification(launch, arm.name, ctx.prompts):
            await ctx.measure(spec, server)


def repeats_itself(ctx: Context, launch: str) -> bool:
    """False only when measured and not repeated."""
    evidence = ctx.evidence()
    measured = repeatability(next(x for x in evidence.launches if x.id == launch), evidence)
    return measured.agreement.n == 0 or measured.agreement.k == measured.agreement.n


async def launch_certified(ctx: Context, arm: Arm, state: ReferenceState) -> tuple[Server | None, bool]:
    """Launch `arm` until its state is the reference's, at most `certification.attempts` times.

    Booting waits for the reference only where its caches are copied; comparing waits always. Returns the
    last server that came up (None if none did) and whether its byte agreement is to be measured. Every
    attempt stays in the record.
    """
    certifying = "certification" in ctx.plan.gates
    attempts = ctx.plan.certification.attempts if certifying and not arm.url else 1
    if ctx.plan.pin == "snapshot":
        await state.ready.wait()
    cache_from = state.launch if ctx.plan.pin == "snapshot" else None
    server = await go_on(ctx, arm)
    first = min(server.launch.attempt, attempts) if server is not None else 1
    for attempt in range(first, attempts + 1):
        server = server or await _launch(ctx, arm, cache_from, last=attempt == attempts)
        if server is None:
            continue
        await characterise(ctx, arm, server)
        if not certifying:
            return server, True
        await state.characterised.wait()
        reference = str(state.launch)
        launch = server.launch.restart_of or server.launch.id
        pair = _certify_pair(ctx, reference, launch)
        ctx.progress.note(f"{launch} against {reference}: {pair.state}: {pair.why}")
        if pair.state in ("SAME STATE", "INTERMEDIATE"):
            return server, True
        if pair.state != "OTHER STATE":
            # A candidate that is not comparable is measured all the same: how it differs is evidence, while
            # the verdict stays UNCERTIFIED. A control that is not comparable certifies nothing.
            return server, arm.role == "candidate" or pair.state == "UNVERIFIED"
        if not repeats_itself(ctx, launch) or attempt == attempts:
            return server, False
        await ctx.fleet.stop(launch)
        server = None
    return server, False


async def _launch(ctx: Context, arm: Arm, cache_from: str | None, *, last: bool) -> Server | None:
    """A launch, or None where it failed and another attempt is left (control only: a candidate that does
    not start is a finding about the candidate)."""
    try:
        return await ctx.fleet.launch(arm, cache_from=cache_from)
    except EngineError as error:
        if last or arm.role == "candidate":
            raise
        ctx.progress.note(f"{arm.name} did not start, another attempt follows: {error}")
        return None


def _certify_pair(ctx: Context, reference: str, other: str) -> PairCertificate:
    evidence = ctx.evidence()
    launches = {launch.id: launch for launch in evidence.launches}
    return certificate(launches[reference], launches[other], evidence)
