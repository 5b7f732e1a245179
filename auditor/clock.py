"""Time as the record knows it: seconds since the start of the audit, from a monotonic clock."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the audit's origin; never falls."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class RealClock:
    """A monotonic clock. `offset_s` continues the clock of a record that is resumed."""

    def __init__(self, offset_s: float = 0.0) -> None:
        self._origin = time.monotonic() - offset_s

    def now(self) -> float:
        return time.monotonic() - self._origin

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
