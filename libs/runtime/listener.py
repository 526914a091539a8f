"""Follows control for shells beside a core: what they have to know of jobs and nodes, and what they said before."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Generic, TypeVar, cast

from libs.bus.port import Bus
from libs.inspect.rules import rules_of
from libs.kernel.service import Service
from libs.runtime.clock import Clock
from libs.runtime.feeder import Feeder
from libs.runtime.log import fields
from libs.runtime.patience import Patience
from libs.runtime.recovery import CONTROL, Recovered, from_snapshot, log_id
from libs.runtime.saving import Saving
from libs.runtime.snapshots import Snapshots
from libs.runtime.stats import Phase, Stats
from libs.runtime.tail import Tail
from libs.runtime.timers import Note

log = logging.getLogger(__name__)

BATCH = 500
S = TypeVar("S")


class Listener(Generic[S]):
    """What is known at the end of control. It decides nothing, so no position of it is ever committed."""

    def __init__(
        self,
        service: Service[S],
        bus: Bus,
        snapshots: Snapshots | None,
        clock: Clock,
        stats: Stats,
        *,
        every_records: int,
        every_s: float,
    ) -> None:
        """Follow control.

        Args:
            service: a silent one; its state is what is known.
            bus: the cell's.
            snapshots: where the state is saved; None: each start reads control from its beginning.
            clock: of this process.
            stats: kept up to date.
            every_records: how often the state is saved.
            every_s: likewise.
        """
        self._service = service
        self._bus, self._snapshots, self._clock, self._stats = bus, snapshots, clock, stats
        self._every_records, self._every_s = every_records, every_s
        self._feeder: Feeder
        self._saving: Saving | None = None
        self._tail: Tail | None = None

    @property
    def state(self) -> S:
        """What is known now."""
        return cast(S, self._feeder.replica.state)

    @property
    def interruptions(self) -> int:
        """How often control could not be read."""
        return self._tail.interruptions if self._tail else 0

    async def catch_up(self, stop: asyncio.Event) -> None:
        """Start from the last snapshot and read to where control ends now: what was reported before is there.

        Raises:
            CoreFailed: a record could not be taken.
            StopRequested: asked to stop meanwhile.
        """
        patience = Patience(stop)
        end = await patience.outlast(lambda: self._bus.end_offset(CONTROL), "read where control ends")
        log_name = await patience.outlast(lambda: log_id(self._bus), "read the log's first record")
        rules = await asyncio.to_thread(rules_of, self._service.state_type.__module__)
        replica = await from_snapshot(self._service, self._snapshots, rules, log_name, end)
        recovered = Recovered(replica, Note(), rules, snapshot_offset=replica.next_offset)
        self._feeder = Feeder(recovered, self._stats, check_every=1_000_000, strict=False, traced=False)
        now_s = self._clock.now_s()
        if self._snapshots is not None:
            self._saving = Saving(
                self._snapshots,
                log_name,
                self._stats,
                every_records=self._every_records,
                every_s=self._every_s,
                since=replica.next_offset,
                now_s=now_s,
                rules=rules,
            )
        self._stats.phase = Phase.REPLAYING
        self._tail = Tail(self._bus, {CONTROL: replica.next_offset}, BATCH, self._clock, stop)
        while self._feeder.handled < end and not stop.is_set() and await self._read() != 0:
            continue
        log.info("caught up with control", extra=fields(next_offset=self._feeder.handled))

    async def follow(self, stop: asyncio.Event) -> None:
        """Read on until `stop` is set, then save the state."""
        while not stop.is_set():
            await self._read()
        if self._saving is not None:
            await self._saving.finish(self._feeder.replica, self._clock.now_s())

    async def _read(self) -> int | None:
        """Take the next batch; returns its size, None when there was none to be had."""
        assert self._tail is not None
        messages = await self._tail.next()
        self._stats.beat = time.monotonic()
        self._stats.log_away = messages is None
        if messages and self._saving is not None:
            self._saving.learn_log_id(messages[0])
        for message in messages or []:
            self._feeder.feed(message)
        self._stats.next_offset, now_s = self._feeder.handled, self._clock.now_s()
        if messages:
            self._stats.progress_at_s = now_s
        if self._saving is not None and self._saving.due(self._feeder.handled, now_s):
            self._saving.save(self._feeder.replica, now_s)
        return None if messages is None else len(messages)

    async def close(self) -> None:
        """Give the reader back."""
        if self._tail is not None:
            await self._tail.close()
