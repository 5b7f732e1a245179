"""A signal ends a run once, and the run cleans up."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine


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


async def through(work: Coroutine[None, None, None], told: str, note: Callable[[str], None]) -> bool:
    """Await `work` to its end whatever cancels the caller meanwhile: a second Ctrl-C leaves no server.

    Each cancellation is answered with `note(told)`; returns whether there was one, for the caller to obey.
    """
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
            note(told)
    return cancelled
