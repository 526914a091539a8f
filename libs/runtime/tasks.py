"""Several loops of one process that live and die together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from libs.runtime.exits import StopRequested


async def all_or_none(stop: asyncio.Event, *loops: Coroutine[Any, Any, None]) -> None:
    """Run the loops until all have ended; when one fails, the others are stopped and its error is raised.

    A loop that ends because it was asked to (StopRequested) has not failed.
    """
    tasks = [asyncio.create_task(loop) for loop in loops]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        stop.set()
        await asyncio.wait(tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    failures = [error for task in tasks if not task.cancelled() and (error := task.exception())]
    for error in failures:
        if not isinstance(error, StopRequested):
            raise error
