"""Launching fakes: a plan, a request, and a guard that no test leaves a process behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from auditor.clock import Clock, RealClock
from auditor.engine.base import LaunchRequest
from auditor.engine.launcher import start
from auditor.model.launch import Launch
from auditor.model.plan import Arm, AuditPlan, Draft, EnginePlan
from tests.fakes.fake_vllm import install, write_target


class FastClock:
    """A real clock whose seconds pass `factor` times as fast, so that long waits are short to test."""

    def __init__(self, factor: float) -> None:
        self._factor, self._origin = factor, time.monotonic()

    def now(self) -> float:
        return (time.monotonic() - self._origin) * self._factor

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._factor)


REFERENCE = Arm(name="reference", role="reference")
CONTROL = Arm(name="control", role="control")
NGRAM = Arm(
    name="ngram",
    role="candidate",
    draft=Draft(
        name="ngram", method="ngram", speculative_config='{"method": "ngram", "num_speculative_tokens": 3}'
    ),
)


@dataclass
class Bench:
    """One run folder with a scripted engine."""

    folder: Path
    script: dict[str, Any] = field(default_factory=dict)
    plan: AuditPlan = field(init=False)
    states: list[Launch] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    clock: Clock = field(default_factory=RealClock)

    def __post_init__(self) -> None:
        python = install(self.folder / "engine", self.script)
        target = write_target(self.folder / "target")
        self.run_dir = self.folder / "run"
        self.run_dir.mkdir()
        engine = EnginePlan(python=str(python))
        arms = (REFERENCE, CONTROL, NGRAM)
        self.plan = AuditPlan(name="t", target=str(target), arms=arms, engine=engine)

    def engine(self, **changes: Any) -> None:
        self.plan = msgspec.structs.replace(
            self.plan, engine=msgspec.structs.replace(self.plan.engine, **changes)
        )

    def request(self, arm: Arm = REFERENCE, attempt: int = 1, **changes: Any) -> LaunchRequest:
        fields: dict[str, Any] = {
            "plan": self.plan,
            "arm": arm,
            "attempt": attempt,
            "launch_id": f"{arm.name}-{attempt}",
            "run_dir": self.run_dir,
            "clock": self.clock,
            "on_change": self.states.append,
            "progress": self.notes.append,
        }
        return LaunchRequest(**(fields | changes))

    def launched(self, arm: Arm = REFERENCE, **changes: Any) -> Launch:
        """Starts and stops a server; returns its state when it was ready."""

        async def once() -> Launch:
            server = await start(self.request(arm, **changes))
            ready = server.launch
            await server.stop()
            return ready

        return asyncio.run(once())


@pytest.fixture
def bench(tmp_path: Path) -> Callable[..., Bench]:
    def make(script: dict[str, Any] | None = None, **faults: Any) -> Bench:
        return Bench(tmp_path, script if script is not None else {"all": faults})

    return make


def family() -> list[str]:
    """Processes below this one, by command line."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if child.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{child.pid} {' '.join(child.cmdline())[:120]}")
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.fixture(autouse=True, scope="module")
def nothing_is_left_behind() -> Iterator[None]:
    yield
    assert family() == []


@pytest.fixture(autouse=True)
def nothing_new_is_left_behind() -> Iterator[None]:
    """Beside the servers that a module's tests share."""
    before = family()
    yield
    assert set(family()) <= set(before)
