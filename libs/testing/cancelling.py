"""Work that is cancelled after a number of turns of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest


async def cancelled_after(turns: int, work: Coroutine[Any, Any, object]) -> None:
    """Begin the work, cancel it, and wait until it has ended of that."""
    task = asyncio.create_task(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
