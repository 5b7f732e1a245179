"""Stopping servers goes to its end although whoever asked for it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

STOPPING = "servers are being stopped, a moment"


async def through(work: Coroutine[Any, Any, object], note: Callable[[str], None]) -> bool:
    """Await `work` to its end whatever cancels the caller meanwhile: a second Ctrl-C leaves no server.

    Each cancellation is answered with `note(STOPPING)`. Returns whether there was one, for the caller to
    obey.
    """
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
            note(STOPPING)
    return cancelled
