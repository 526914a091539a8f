"""The windows shell where there is no Kafka: telemetry in, closed windows out, through the bus port alone."""

from __future__ import annotations

import asyncio
import logging

from libs.bus.port import Bus, Message, Outgoing, Partition
from libs.contracts.base import Topic
from libs.contracts.introspection import OWNER
from libs.runtime.clock import Clock
from libs.runtime.committer import Committer
from libs.runtime.log import fields
from libs.runtime.resuming import resumed
from libs.runtime.tail import Tail, all_partitions
from services.introspection.adapters.telemetry import TelemetryFold
from services.introspection.core.windows import Rules

log = logging.getLogger(__name__)

SESSION = f"{OWNER}/windows"
BATCH = 1000
COMMIT_EVERY_S = 2.0
TICK_EVERY_S = 0.5


class EmbeddedWindows:
    """Folds telemetry with `core.windows` and appends WindowClosed to profiles.

    The committed position is that of the first record which an open window still needs: after a crash the
    open windows are built again. A window that was closed already may then come once more; its reader knows.
    Without a position, only what is recent is folded.
    """

    def __init__(self, bus: Bus, rules: Rules, clock: Clock) -> None:
        self._bus, self._clock = bus, clock
        self._fold = TelemetryFold(rules)
        self._committer: Committer
        self._next: dict[int, int] = {}
        self._committed_at_s = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set.

        Raises:
            StopRequested: asked to stop while the log could not be reached.
            Fenced: a newer instance has taken over.
        """
        partitions = await all_partitions(self._bus, Topic.TELEMETRY, stop)
        self._committer = await Committer.open(self._bus, SESSION, partitions, stop)
        starts = await resumed(self._bus, self._committer.committed, self._committer.patience)
        self._next = {partition.index: offset for partition, offset in starts.items()}
        tail = Tail(self._bus, starts, BATCH, self._clock, stop)
        log.info("windows started", extra=fields(positions=list(self._next.values())))
        try:
            while not stop.is_set():
                messages = await tail.next(self._clock.now_s() + TICK_EVERY_S)
                await self._take(messages or [])
        finally:
            await tail.close()
            await self._committer.close()

    async def _take(self, messages: list[Message]) -> None:
        outputs: list[Outgoing] = []
        now_s = self._clock.now_s()
        for message in messages:
            outputs += self._fold.take(message, now_s)
            self._next[message.partition.index] = message.offset + 1
        outputs += self._fold.tick(now_s)
        if outputs or now_s - self._committed_at_s >= COMMIT_EVERY_S:
            await self._commit(outputs, now_s)

    async def _commit(self, outputs: list[Outgoing], now_s: float) -> None:
        moved: dict[Partition, int] = {}
        for partition, committed in self._committer.committed.items():
            next_offset = self._fold.folding.position(partition.index, self._next[partition.index])
            if next_offset > committed.next_offset:
                moved[partition] = next_offset
        if outputs or moved:
            await self._committer.commit_numbered(outputs, moved)
        self._committed_at_s = now_s
