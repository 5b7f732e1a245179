"""The live servers of a run: launch, relaunch, restart, stop. Knows no judgement."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from auditor.clock import Clock
from auditor.engine.attach import attach
from auditor.engine.base import LaunchRequest, Server
from auditor.engine.launcher import start
from auditor.measure.client import Client
from auditor.model.launch import Launch
from auditor.model.plan import Arm, AuditPlan
from auditor.model.record import Event
from auditor.record.store import Recorder
from auditor.report.progress import Progress
from auditor.run.devices import Placement


class Fleet:
    """Servers by the id of the launch they continue. `close()` stops all that is left, always."""

    def __init__(
        self, plan: AuditPlan, run_dir: Path, recorder: Recorder, clock: Clock, progress: Progress
    ) -> None:
        self.plan, self.run_dir, self.recorder, self.clock = plan, run_dir, recorder, clock
        self.progress = progress
        self.placement = Placement(plan)
        self._servers: dict[str, Server] = {}
        self._attempts: dict[str, int] = {}
        self._restarts: dict[str, int] = {}

    def _record(self, launch: Launch) -> None:
        self.recorder.event(Event(launch=launch))

    def seen(self, launch: Launch) -> None:
        """Count a launch of the record (resume), so that new ones get other ids."""
        if launch.restart_of is None:
            self._attempts[launch.arm] = max(self._attempts.get(launch.arm, 0), launch.attempt)
        else:
            self._restarts[launch.restart_of] = self._restarts.get(launch.restart_of, 0) + 1

    async def launch(self, arm: Arm, *, cache_from: str | None = None) -> Server:
        """A new launch of `arm`. Raises EngineError; the failed Launch is in the record then."""
        self._attempts[arm.name] = attempt = self._attempts.get(arm.name, 0) + 1
        return await self._start(arm, attempt, f"{arm.name}-{attempt}", cache_from, None)

    async def restart(self, arm: Arm, launch_id: str) -> Server:
        """The launch `launch_id` again, from its own caches. The caller checks the fingerprint."""
        self._restarts[launch_id] = n = self._restarts.get(launch_id, 0) + 1
        attempt = int(launch_id.rsplit("-", 1)[1])
        return await self._start(arm, attempt, f"{launch_id}r{n}", launch_id, launch_id)

    async def _start(
        self, arm: Arm, attempt: int, launch_id: str, cache_from: str | None, restart_of: str | None
    ) -> Server:
        if arm.url:
            server = await attach(self.plan, arm, self.clock, self._record)
        else:
            caches = self.run_dir / "launches" / cache_from if cache_from else None
            request = LaunchRequest(
                plan=self.plan,
                arm=arm,
                attempt=attempt,
                launch_id=launch_id,
                run_dir=self.run_dir,
                device=self.placement.device(arm),
                cache_from=caches,
                restart_of=restart_of,
                memory_fraction=self.placement.memory_fraction(arm),
                clock=self.clock,
                on_change=self._record,
                progress=self.progress.note,
            )
            async with self.placement.start_slots(arm).take(1):
                server = await start(request)
        self._servers[restart_of or server.launch.id] = server
        return server

    def server(self, launch_id: str) -> Server | None:
        return self._servers.get(launch_id)

    async def stop(self, launch_id: str) -> None:
        server = self._servers.pop(launch_id, None)
        if server is not None:
            self._record(await server.stop())

    async def close(self) -> None:
        """Stop every server, even while the run is being cancelled."""
        results = await asyncio.gather(*(self.stop(i) for i in list(self._servers)), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
                self.progress.note(f"a server did not stop cleanly: {result}")

    def client(self, server: Server) -> Client:
        return Client(
            server.base_url,
            server.model,
            self.clock,
            api_key=server.api_key,
            timeout_s=self.plan.engine.request_timeout_s,
            seed=self.plan.seed,
        )

    @asynccontextmanager
    async def measuring(self, arm: Arm, *, under_load: bool = False) -> AsyncIterator[None]:
        """While an arm measures. A load has the device to itself: beside another arm's work a level would
        not be held, and both would measure each other."""
        slots = self.placement.slots(arm)
        async with slots.take(slots.count if under_load else 1):
            yield
