"""Stages 2 to 7 of the protocol, in order, over all arms.

Every arm is one coroutine: bring its server up, certify it, measure. What they wait for:
  - where caches are copied, others start when the reference is ready; they are certified when it has answered
    the certification prompts;
  - byte-exact stages wait until a control is certified; accuracy does not;
  - servers on one accelerator take turns (run/devices.py).
Where the servers do not fit together, the arms follow one another and each launch does all of its phases.
"""

from __future__ import annotations

import asyncio

from auditor.engine.base import Server
from auditor.errors import EngineError
from auditor.measure.phases import PhaseSpec
from auditor.model.plan import Arm
from auditor.run import stages
from auditor.run.certify import ReferenceState, characterise, launch_certified, repeats_itself
from auditor.run.context import Context
from auditor.run.resume import earlier_launch, go_on
from auditor.run.second_pass import second_pass


class Sequence:
    """One run over all arms. `failures` holds, per arm, why its work ended early."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.failures: dict[str, str] = {}
        self.reference = next(a for a in ctx.plan.arms if a.role == "reference")
        self.others = tuple(a for a in ctx.plan.arms if a.role != "reference")
        self.reference_state = ReferenceState()
        self._control_decided = asyncio.Event()
        self._byte_exact = True
        """False once no control could be certified: stages 4 to 6 end."""

    async def run(self) -> None:
        """All stages. Raises EngineError when the reference cannot be had; other arms' failures are kept in
        `failures` and in the record."""
        if not any(a.role == "control" for a in self.others):
            self._control_decided.set()
        if self.ctx.plan.engine.one_at_a_time:
            for arm in (self.reference, *self.others):
                await self._arm(arm)
                await self._stop(arm)
        else:
            await self._together()
        if self._byte_exact and self.reference_state.launch is not None:
            self.failures = await second_pass(self.ctx, self.reference_state.launch) | self.failures

    async def _together(self) -> None:
        """All arms at once; the first failure of the reference ends the others."""
        tasks = {arm.name: asyncio.create_task(self._arm(arm)) for arm in (self.reference, *self.others)}
        try:
            await asyncio.gather(*tasks.values())
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    async def _arm(self, arm: Arm) -> None:
        try:
            if arm.role == "reference":
                await self._reference()
            else:
                await self._other(arm)
        except EngineError as error:
            self.failures[arm.name] = str(error)
            self.ctx.progress.note(f"{arm.name}: {error}")
            if arm.role == "reference":
                raise
            if arm.role == "control":
                self._decide(False)

    async def _reference(self) -> None:
        arm = self.reference
        server = await go_on(self.ctx, arm) or await self.ctx.fleet.launch(arm)
        launch = root_id(server)
        self.reference_state.is_ready(launch)
        await characterise(self.ctx, arm, server)
        self.reference_state.characterised.set()
        if "certification" in self.ctx.plan.gates and not repeats_itself(self.ctx, launch):
            self.ctx.progress.note(f"{launch} does not repeat itself: byte-exact stages end")
            self._decide(False)
        if not self.ctx.plan.engine.one_at_a_time:
            await self._control_decided.wait()
        await self._measure(arm, server, byte_exact=self._byte_exact)

    async def _other(self, arm: Arm) -> None:
        server, comparable = await launch_certified(self.ctx, arm, self.reference_state)
        if arm.role == "control":
            self._decide(comparable)
        await self._control_decided.wait()
        if server is not None:
            await self._measure(arm, server, byte_exact=self._byte_exact and comparable)

    def _decide(self, certified: bool) -> None:
        """Whether the reference pair is certified. A first no is final (the reference may not repeat)."""
        self._byte_exact = self._byte_exact and certified
        self._control_decided.set()

    async def _measure(self, arm: Arm, server: Server, *, byte_exact: bool) -> None:
        """Stages 4, 6 and 7 of one launch; one phase at a time, so that others on the device get turns."""
        plan, launch = self.ctx.plan, root_id(server)
        work: list[PhaseSpec] = []
        if byte_exact:
            work += stages.batch1(plan, launch, arm.name, self.ctx.prompts)
            if plan.invariance is not None and arm.role != "control":
                work += stages.load(plan, plan.invariance, launch, arm.name, self.ctx.prompts)
        work += stages.accuracy(plan, launch, arm.name, self.ctx.prompts)
        for spec in work:
            async with self.ctx.fleet.measuring(arm, under_load=spec.concurrency > 1):
                await self.ctx.measure(spec, server)

    async def _stop(self, arm: Arm) -> None:
        launch = earlier_launch(self.ctx, arm)
        if launch is not None:
            await self.ctx.fleet.stop(launch.id)


def root_id(server: Server) -> str:
    """The launch that phases are kept under: a restart goes on with its original's."""
    return server.launch.restart_of or server.launch.id
