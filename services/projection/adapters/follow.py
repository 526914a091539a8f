"""The projection's loop: read control, fold, store, from wherever the read models are."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import sqlalchemy.exc

from libs.bus import codec
from libs.bus.naming import log_id
from libs.bus.port import Bus, BusUnavailable, Message, Partition, Reader
from libs.contracts.base import Topic
from libs.inspect.archive import whole_reader
from libs.runtime.exits import StopRequested
from libs.runtime.log import fields
from libs.runtime.patience import Patience
from services.projection.adapters.engine import waiting_helps
from services.projection.adapters.stats import Stats
from services.projection.adapters.store import AnotherWriter, Checkpoint, Store
from services.projection.core import FOLD_VERSION, Rows, apply, prefetch

log = logging.getLogger(__name__)

T = TypeVar("T")

CONTROL = Partition(Topic.CONTROL, 0)
_WAIT_S = 1.0


class DatabaseUnusable(Exception):
    """The database refuses what no waiting mends; the message says which database, what it said, what was expected."""


class Projection:
    """Keeps one database of read models up to date with one cell's log.

    Args:
        bus: the cell's log.
        store: the database; no other process may write its tables.
        stop: set it to end; what was read is stored or will be read again.
        batch: most records per transaction.
        stats: where the projection's numbers go.
        now: the time in seconds since the epoch, for the lag.
    """

    def __init__(
        self,
        bus: Bus,
        store: Store,
        stop: asyncio.Event,
        *,
        batch: int = 1000,
        stats: Stats | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._bus, self._store, self._stop, self._batch, self._now = bus, store, stop, batch, now
        self._stats = stats or Stats()
        self._patience = Patience(stop)
        self._at = Checkpoint(0, "")

    async def run(self, *, rebuild: bool = False) -> None:
        """Follow the log until told to stop.

        When another process moves the position (a rebuild by hand), go on from wherever it is then.

        Raises:
            Undecodable: a control record cannot be read; skipping it would make the rows wrong.
            WrongCell: the database belongs to another cell.
            DatabaseUnusable: its tables are not those of this version, or it is damaged.
        """
        while not self._stop.is_set():
            try:
                await self._open(rebuild)
                rebuild = False
                await self._follow(end=None)
            except StopRequested:
                return
            except AnotherWriter as error:
                log.warning("another process writes the read models", extra=fields(cell=self._store.cell, error=error))
                await _stopped_within(self._stop, _WAIT_S)

    async def catch_up(self, *, rebuild: bool = False) -> int:
        """Follow the log up to its present end.

        Returns:
            The position reached.

        Raises:
            Undecodable, WrongCell, DatabaseUnusable: as `run`.
            AnotherWriter: another process moves the position too.
            StopRequested: told to stop meanwhile.
        """
        await self._open(rebuild)
        await self._follow(end=await self._end_offset())
        return self._at.next_offset

    async def _open(self, rebuild: bool) -> None:
        await self._outlast_sql(self._store.migrate)
        self._at = await self._outlast_sql(self._store.checkpoint)
        why = "asked for" if rebuild else await self._stale()
        if why:
            log.warning("the read models are made anew", extra=fields(cell=self._store.cell, why=why))
            await self._outlast_sql(self._store.reset)
            self._at = Checkpoint(0, "")
        self._stats.next_offset = self._at.next_offset

    async def _stale(self) -> str:
        """Why the rows cannot be continued; empty when they can."""
        if self._at.next_offset == 0:
            return ""
        if self._at.fold_version != FOLD_VERSION:
            return f"they were made by fold {self._at.fold_version}, this one is {FOLD_VERSION}"
        if await self._end_offset() < self._at.next_offset:
            return f"the log ends before their position {self._at.next_offset}"
        first = await self._first_id()
        if first != self._at.log_id:
            return f"they belong to another log, which began with event {self._at.log_id}; this one with {first}"
        return ""

    async def _end_offset(self) -> int:
        return await self._patience.outlast(lambda: self._bus.end_offset(CONTROL), "ask for the log's end")

    async def _reader(self, offset: int) -> Reader:
        return await self._patience.outlast(lambda: whole_reader(self._bus, {CONTROL: offset}), "read control")

    async def _first_id(self) -> str:
        return await self._patience.outlast(lambda: log_id(self._bus), "read the log's first record")

    async def _follow(self, end: int | None) -> None:
        """Store batch after batch, until told to stop or until `end` is reached."""
        reader = await self._reader(self._at.next_offset)
        try:
            while not self._stop.is_set() and (end is None or self._at.next_offset < end):
                try:
                    messages = await self._unless_stopped(reader.next_batch(self._batch, _WAIT_S))
                except BusUnavailable as error:
                    await self._patience.wait("read control", error)
                    continue
                self._patience.over()
                if messages:
                    await self._store_batch(messages)
                elif end is not None:  # nothing but transaction markers before the end
                    return
                else:
                    self._stats.idle()
        finally:
            await reader.close()

    async def _unless_stopped(self, reading: Coroutine[Any, Any, list[Message]]) -> list[Message]:
        """What is read; nothing when told to stop meanwhile."""
        read, stopped = asyncio.ensure_future(reading), asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait([read, stopped], return_when=asyncio.FIRST_COMPLETED)
            return read.result() if read.done() else []
        finally:
            read.cancel()
            stopped.cancel()

    async def _store_batch(self, messages: list[Message]) -> None:
        started = time.perf_counter()
        self._at = await self._outlast_sql(lambda: self._fold_and_save(messages))
        took_s = time.perf_counter() - started
        lag_s = self._now() - messages[-1].appended_at_s
        self._stats.stored(self._at.next_offset, len(messages), took_s, lag_s)

    def _fold_and_save(self, messages: list[Message]) -> Checkpoint:
        """Safe to repeat: a batch whose commit was not answered but happened is not folded twice."""
        stored = self._store.checkpoint()
        if stored.next_offset < self._at.next_offset:
            raise AnotherWriter(
                f"the read models went back from offset {self._at.next_offset} to {stored.next_offset}: "
                "another process makes them anew"
            )
        records = [codec.record(m) for m in messages if m.offset >= stored.next_offset]
        if not records:
            return stored
        rows = Rows(self._store.load)
        prefetch(rows, records)
        for record in records:
            apply(rows, record)
        after = Checkpoint(records[-1].offset + 1, stored.log_id or records[0].envelope.id)
        self._store.save(rows, stored, after, self._now())
        return after

    async def _outlast_sql(self, call: Callable[[], T]) -> T:
        """Do `call` in a thread, again and again while the database is away.

        Raises:
            DatabaseUnusable: waiting does not help.
        """
        while True:
            try:
                return await asyncio.to_thread(call)
            except sqlalchemy.exc.DatabaseError as error:
                if not waiting_helps(error):
                    where, what = self._store.engine.url.render_as_string(), str(error.orig).partition("\n")[0]
                    raise DatabaseUnusable(
                        f"the read models in {where} cannot be used: {what}; expected the tables of this version, or "
                        "a database without any (`alembic_version` included), in which they are made anew from the log"
                    ) from error
                log.warning("the database cannot be used, trying again", extra=fields(error=error.orig))
                if await _stopped_within(self._stop, 0.5):
                    raise StopRequested("the database is away") from None


async def _stopped_within(stop: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await stop.wait()
    except TimeoutError:
        return False
