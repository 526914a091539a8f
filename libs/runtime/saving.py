"""When a core's state is saved, and how that stays off the hot path."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from libs.bus.port import Message
from libs.kernel.replica import Replica, Snapshot
from libs.runtime.log import fields
from libs.runtime.messages import message_id
from libs.runtime.snapshots import Snapshots
from libs.runtime.stats import Stats

log = logging.getLogger(__name__)


class Saving:
    """Takes a snapshot every so many records or seconds and writes it in a thread, one at a time."""

    def __init__(
        self,
        snapshots: Snapshots,
        log_id: str,
        stats: Stats,
        *,
        every_records: int,
        every_s: float,
        since: int,
        now_s: float,
        rules: str,
    ) -> None:
        """`since`: offset of the snapshot that the core was restored from, 0 if none; `rules`: those at hand."""
        self.log_id, self._rules = log_id, rules
        self._snapshots, self._stats = snapshots, stats
        self._every_records, self._every_s = every_records, every_s
        self._last_offset, self._last_s = since, now_s
        self._writing: asyncio.Task[None] | None = None

    def learn_log_id(self, first: Message) -> None:
        """`first` is the first of the records read next. It names the log if that was empty at the start."""
        if not self.log_id and self._last_offset == 0:
            self.log_id = message_id(first)

    def due(self, next_offset: int, now_s: float) -> bool:
        """Whether it is time for one."""
        behind = next_offset - self._last_offset
        if behind <= 0 or not self.log_id or (self._writing is not None and not self._writing.done()):
            return False
        return behind >= self._every_records or now_s - self._last_s >= self._every_s

    def save(self, replica: Replica[Any], now_s: float) -> None:
        """Take a snapshot now, at a committed position, and start to write it."""
        if self._writing is not None:
            self._writing.result()
        self._last_offset, self._last_s = replica.next_offset, now_s
        self._writing = asyncio.create_task(self._write(replica.snapshot(self._rules), now_s))

    async def finish(self, replica: Replica[Any], now_s: float) -> None:
        """At a graceful stop: wait for the snapshot in the making and save the last state too."""
        if self._writing is not None:
            await self._writing
        if self.log_id and replica.next_offset > self._last_offset:
            await self._write(replica.snapshot(self._rules), now_s)

    async def _write(self, snapshot: Snapshot, now_s: float) -> None:
        try:
            await asyncio.to_thread(self._snapshots.save, snapshot, self.log_id, now_s)
        except SQLAlchemyError as error:
            self._stats.snapshot_failures += 1
            log.warning("snapshot not saved: a restart will replay more", extra=fields(error=error))
            return
        self._stats.snapshots += 1
        self._stats.snapshot_at_s = now_s
        log.debug("snapshot saved", extra=fields(next_offset=snapshot.next_offset, bytes=len(snapshot.state)))
