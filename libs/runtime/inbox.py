"""The next messages of a reader, asked for ahead: one batch is read while the last one is handled."""

from __future__ import annotations

import asyncio

from libs.bus.port import Message, Reader
from libs.runtime.clock import Clock

READ_TIMEOUT_S = 1.0
"""A quiet log wakes the loop this often, for its housekeeping."""
PATIENT_AFTER = 20
"""After so many batches without a decision, a core is in no hurry to read on, …"""
GATHER_S = 0.01
"""… and lets records gather for so long: else each record of others would wake it."""


class Inbox:
    """At most one batch is in flight, so a slow core holds back its own reading and no other's."""

    def __init__(self, reader: Reader, max_messages: int, clock: Clock, stop: asyncio.Event) -> None:
        self._reader, self._max_messages, self._clock = reader, max_messages, clock
        self._reading: asyncio.Task[list[Message]] | None = None
        self._stopping = asyncio.create_task(stop.wait())
        self._without_decision = 0
        """Batches since the last one that led to a decision."""

    async def next(self, wake_at_s: float | None) -> list[Message] | None:
        """The next batch (empty after a quiet second); None when woken before it came, by time or by a stop.

        Raises:
            BusError: what the reader raised; the next call reads again.
        """
        if self._reading is None:
            self._ask()
        assert self._reading is not None
        if not self._reading.done():
            await self._wait(self._reading, wake_at_s)
        if not self._reading.done():
            return None
        done, self._reading = self._reading, None
        messages = done.result()
        all_read = 0 < len(messages) < self._max_messages
        self._ask(GATHER_S if all_read and self._without_decision >= PATIENT_AFTER else 0.0)
        return messages

    def handled(self, *, decided: bool) -> None:
        """A batch has been handled, and something was decided or not."""
        self._without_decision = 0 if decided else self._without_decision + 1

    def _ask(self, gather_s: float = 0.0) -> None:
        self._reading = asyncio.create_task(self._read(gather_s))

    async def _read(self, gather_s: float) -> list[Message]:
        if gather_s:
            await asyncio.sleep(gather_s)
        return await self._reader.next_batch(self._max_messages, READ_TIMEOUT_S)

    async def _wait(self, reading: asyncio.Task[list[Message]], wake_at_s: float | None) -> None:
        if wake_at_s is None:
            await asyncio.wait((reading, self._stopping), return_when=asyncio.FIRST_COMPLETED)
            return
        sleeping = asyncio.create_task(self._clock.sleep_until(wake_at_s))
        try:
            await asyncio.wait((reading, self._stopping, sleeping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()

    async def close(self) -> None:
        """Stop reading and give the reader back."""
        tasks = [task for task in (self._reading, self._stopping) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._reader.close()
