"""Walks over partitions of the log from one offset to another, batch by batch, through outages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator

from libs.bus.batches import BATCH, SILENCE_S
from libs.bus.port import Bus, BusError, BusUnavailable, Message, Partition
from libs.inspect.archive import whole_reader
from libs.runtime.exits import StopRequested
from libs.runtime.patience import Patience
from libs.runtime.stats import Stats


class Walk:
    """Reads what the log has already; never waits for what is still to come."""

    def __init__(self, bus: Bus, stats: Stats, stop: asyncio.Event) -> None:
        """Tell `stats` that the process is alive, and give up when `stop` is set."""
        self._bus, self._stats, self._stop = bus, stats, stop
        self.patience = Patience(stop)

    async def batches(self, partition: Partition, start: int, end: int) -> AsyncGenerator[list[Message], None]:
        """The messages of a partition from `start` up to `end`; no batch is empty.

        Raises:
            StopRequested: asked to stop meanwhile.
            BusError: records that the log says it has do not come.
        """
        if start >= end:
            return
        reader = await self.patience.outlast(lambda: whole_reader(self._bus, {partition: start}), "open a reader")
        try:
            while start < end:
                if self._stop.is_set():
                    raise StopRequested("fold the log")
                self._stats.beat = time.monotonic()
                try:
                    batch = await reader.next_batch(BATCH, SILENCE_S)
                except BusUnavailable as error:
                    await self.patience.wait("read", error)
                    continue
                self.patience.over()
                if not batch:
                    where = f"{partition.topic}/{partition.index}@{start}"
                    raise BusError(f"{where}: nothing came for {SILENCE_S:g} s, expected records up to {end}")
                start = batch[-1].offset + 1
                if start > end:
                    batch = [message for message in batch if message.offset < end]
                if batch:
                    yield batch
        finally:
            await reader.close()
