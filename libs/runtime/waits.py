"""Waits that something else cuts short: mostly that the process is to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def within(event: asyncio.Event, seconds: float) -> bool:
    """Wait until the event is set, no longer than this; returns whether it was set in time."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


async def unless_set(event: asyncio.Event, reading: Coroutine[Any, Any, list[T]]) -> list[T]:
    """What is read; nothing when the event is set meanwhile, and the reading is given up."""
    read, was_set = asyncio.ensure_future(reading), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([read, was_set], return_when=asyncio.FIRST_COMPLETED)
        return read.result() if read.done() else []
    finally:
        read.cancel()
        was_set.cancel()
