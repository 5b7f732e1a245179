"""Where each arm runs, and who may work on a device at the same time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from auditor.model.plan import Arm, AuditPlan

MEMORY_SHARE = 0.9
"""Part of a device's memory that the servers on it may take together (vLLM's own default is 0.9)."""


class Slots:
    """Room on one device for so many servers at work. Taken all at once or not at all, so that two who
    want more than is free cannot block each other."""

    def __init__(self, count: int) -> None:
        self.count = self._free = count
        self._released = asyncio.Event()

    @asynccontextmanager
    async def take(self, count: int) -> AsyncIterator[None]:
        """Hold `count` slots (at most all); waits until so many are free."""
        count = min(count, self.count)
        while self._free < count:
            await self._released.wait()
        self._free -= count
        try:
            yield
        finally:
            self._free += count
            released, self._released = self._released, asyncio.Event()
            released.set()


class Placement:
    """Arms on devices, one server a device (or tensor-parallel group `0+1`) as far as devices reach."""

    def __init__(self, plan: AuditPlan) -> None:
        self.one_at_a_time = plan.engine.one_at_a_time
        devices = plan.engine.devices or ("",)
        self._default = devices[0]
        self._device = {
            arm.name: devices[0] if self.one_at_a_time else devices[i % len(devices)]
            for i, arm in enumerate(plan.arms)
        }
        self._slots = {device: Slots(slots_of(device, plan)) for device in devices}
        self._starts = {device: self._start_slots(device, plan) for device in devices}

    def _start_slots(self, device: str, plan: AuditPlan) -> Slots:
        """How many servers may start at once on `device`.

        On an accelerator a start takes the device as measuring does: two servers that profile its memory at
        once can both fail, and a load beside an autotuner changes what it picks. Where the size of the cache
        is given there is nothing to profile.
        """
        if any(a.startswith("--kv-cache-memory-bytes") for a in plan.engine.args):
            return Slots(len(plan.arms))
        slots = self._slots[device]
        return Slots(slots.count) if slots.count > 1 else slots

    def device(self, arm: Arm) -> str:
        """A server of no arm (a control of stage 5) runs when no other does, on the first device."""
        return self._device.get(arm.name, self._default)

    def memory_fraction(self, arm: Arm) -> float | None:
        """Share of the device's memory for this arm's server; None where it has the device to itself."""
        if arm.name not in self._device:
            return None
        sharing = sum(d == self.device(arm) for d in self._device.values())
        return None if self.one_at_a_time or sharing == 1 else round(MEMORY_SHARE / sharing, 3)

    def slots(self, arm: Arm) -> Slots:
        """Taken while an arm measures: arms on one accelerator take turns, arms on others do not wait."""
        return self._slots[self.device(arm)]

    def start_slots(self, arm: Arm) -> Slots:
        """Taken while a server starts."""
        return self._starts[self.device(arm)]


def slots_of(device: str, plan: AuditPlan) -> int:
    """How many servers may measure at once on `device`: one on an accelerator or somebody else's host;
    on the CPU as many as have cores of their own, by OMP_NUM_THREADS of the plan."""
    if device or plan.attached:
        return 1
    threads = next((int(v.value) for v in plan.engine.env if v.name == "OMP_NUM_THREADS"), 0)
    return max(1, (os.cpu_count() or 1) // threads) if threads else 1
