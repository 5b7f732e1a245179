"""A signal ends a run once, and the run cleans up."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager

CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def until_signal(work: Coroutine[None, None, None]) -> None:
    """Run `work`; SIGINT, SIGTERM and SIGHUP cancel it once, and it cleans up."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in CAUGHT:
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    finally:
        for number in CAUGHT:
            loop.remove_signal_handler(number)


@contextmanager
def obeyed(interrupted: bool) -> Iterator[None]:
    """Where a signal has ended a run, another one may not keep its record from being written. From the main
    thread only."""
    if not interrupted:
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in CAUGHT}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
