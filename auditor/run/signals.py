"""A signal ends a run once, and the run cleans up."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine


async def until_signal(work: Coroutine[None, None, None]) -> None:
    """Run `work`; SIGINT, SIGTERM and SIGHUP cancel it once, and it cleans up."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    caught = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in caught:
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
