"""Going on with a launch of an earlier process, or of this one after it was stopped.

A launch that is needed again is restarted from its own caches and must show the same fingerprint first;
otherwise what it measured and what it would measure now were not one launch state.
"""

from __future__ import annotations

from auditor.engine.base import Server
from auditor.errors import EngineError
from auditor.model.launch import Launch
from auditor.model.plan import Arm
from auditor.run.context import Context


def earlier_launch(ctx: Context, arm: Arm) -> Launch | None:
    """The last launch of `arm` that came up, restarts aside; None if there was none."""
    came_up = [
        launch
        for launch in ctx.recorder.state.launches.values()
        if launch.arm == arm.name
        and launch.restart_of is None
        and (launch.ready_s is not None or launch.state == "attached")
    ]
    return came_up[-1] if came_up else None


async def go_on(ctx: Context, arm: Arm) -> Server | None:
    """The server of the arm's last launch, restarted where it is gone; None if there was no launch.

    Raises EngineError when it does not come back in the same state.
    """
    launch = earlier_launch(ctx, arm)
    return None if launch is None else await live(ctx, arm, launch.id)


async def live(ctx: Context, arm: Arm, launch: str) -> Server:
    """The server of `launch`, restarted from its caches where it is gone. Raises EngineError."""
    server = ctx.fleet.server(launch)
    if server is not None and server.death() is None:
        return server
    server = await ctx.fleet.restart(arm, launch)
    before = next((f for f in ctx.recorder.state.fingerprints if f.launch == launch), None)
    # An earlier process may have ended before its fingerprint: nothing was measured, so this is the first.
    fresh = before is None and not any(p.launch == launch for p in ctx.recorder.state.phases.values())
    async with ctx.fleet.measuring(arm):
        after = await ctx.fingerprint(server, launch if fresh else None)
    if before is not None and after is not None and before.digest != after.digest:
        how = "is another server now" if arm.url else "was restarted from its own caches"
        raise EngineError(
            f"{launch} {how} and shows another fingerprint",
            expected="the same launch state",
            todo="start a new audit; what was measured stays in the record",
        )
    return server
