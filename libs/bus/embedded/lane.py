"""A thread with one connection of its own, so that the event loop never waits for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar

from libs.bus.port import BusError


class Closeable(Protocol):
    """What a lane works with."""

    def close(self) -> None:
        """Give back the connection."""


C = TypeVar("C", bound=Closeable)
T = TypeVar("T")


class Lane(Generic[C]):
    """Runs work on one thing, one after the other, in one thread."""

    def __init__(self, name: str, thing: C, executor: ThreadPoolExecutor | None = None) -> None:
        self._name, self._thing = name, thing
        self._executor = executor or ThreadPoolExecutor(1, thread_name_prefix=name)
        self._closing: asyncio.Future[None] | None = None

    @classmethod
    async def open(cls, name: str, make: Callable[[], C]) -> Lane[C]:
        """Start the thread and make the thing in it. Raises what `make` raises."""
        executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        try:
            thing = await asyncio.get_running_loop().run_in_executor(executor, make)
        except BaseException:
            executor.shutdown(wait=False)
            raise
        return cls(name, thing, executor)

    async def run(self, work: Callable[[C], T]) -> T:
        """Do `work` when all that was asked for before is done. Raises what it raises.

        Once begun, work is done to its end, also when the caller is cancelled.
        """
        if self._closing is not None:
            raise BusError(f"{self._name} is closed")
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, self._thing)

    def begin(self, work: Callable[[C], None]) -> None:
        """Have `work` done, from any thread and without waiting. It must not raise; once closed nothing is done."""
        if self._closing is None:
            self._executor.submit(work, self._thing)

    async def close(self) -> None:
        """Let the work in hand end and close the thing. Idempotent."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().run_in_executor(self._executor, self._thing.close)
            self._executor.shutdown(wait=False)
        await asyncio.shield(self._closing)
