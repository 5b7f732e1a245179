"""Arms on devices, and turns on one device."""

from __future__ import annotations

import asyncio

import pytest

from auditor.model.base import EnvVar
from auditor.model.plan import Arm, AuditPlan, EnginePlan
from auditor.run.devices import Placement, Slots, slots_of

ARMS = (
    Arm(name="reference", role="reference"),
    Arm(name="control", role="control"),
    Arm(name="eagle3", role="candidate"),
)


def plan(**engine: object) -> AuditPlan:
    return AuditPlan(name="t", target="t", arms=ARMS, engine=EnginePlan(**engine))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("engine", "devices", "shares"),
    [
        ({}, ["", "", ""], [0.3, 0.3, 0.3]),
        ({"devices": ("0", "1", "2")}, ["0", "1", "2"], [None, None, None]),
        ({"devices": ("0", "1")}, ["0", "1", "0"], [0.45, None, 0.45]),
        ({"devices": ("0+1", "2+3"), "one_at_a_time": True}, ["0+1"] * 3, [None] * 3),
    ],
)
def test_placement(engine: dict[str, object], devices: list[str], shares: list[float | None]) -> None:
    placement = Placement(plan(**engine))
    assert [placement.device(arm) for arm in ARMS] == devices
    assert [placement.memory_fraction(arm) for arm in ARMS] == shares


def test_slots_on_the_cpu_follow_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    threads = (EnvVar(name="OMP_NUM_THREADS", value="3"),)
    assert slots_of("", plan(env=threads)) == 2
    assert slots_of("", plan()) == 1
    assert slots_of("0", plan(env=threads)) == 1


def test_a_load_waits_for_the_whole_device_and_nobody_starts_beside_it() -> None:
    log: list[str] = []

    async def work(slots: Slots, name: str, count: int, ticks: int) -> None:
        async with slots.take(count):
            log.append(f"+{name}")
            for _ in range(ticks):
                await asyncio.sleep(0)
            log.append(f"-{name}")

    async def all_of() -> None:
        slots = Slots(2)
        await asyncio.gather(
            work(slots, "a", 1, 9), work(slots, "b", 1, 3), work(slots, "load", 99, 3), work(slots, "c", 1, 3)
        )

    asyncio.run(all_of())
    at = log.index("+load")
    assert log[at + 1] == "-load"
    assert {"-a", "-b"} <= set(log[:at])


def test_slots_come_back_from_a_cancelled_holder() -> None:
    async def all_of() -> None:
        slots = Slots(1)

        async def hold() -> None:
            async with slots.take(1):
                await asyncio.Event().wait()

        holder = asyncio.create_task(hold())
        await asyncio.sleep(0)
        holder.cancel()
        async with slots.take(1):
            assert holder.done() or holder.cancelling()

    asyncio.run(asyncio.wait_for(all_of(), 5))
