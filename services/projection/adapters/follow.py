"""The projection's loop: read control, fold, store, from wherever the read models are."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable
from typing import TypeVar

import sqlalchemy.exc

from libs.bus import codec
from libs.bus.naming import log_id
from libs.bus.port import Bus, BusUnavailable, Fenced, Message, Partition, Reader
from libs.contracts.base import Topic
from libs.inspect.archive import whole_reader
from libs.runtime.exits import StopRequested
from libs.runtime.log import fields
from libs.runtime.patience import Patience
from libs.runtime.waits import unless_set, within
from services.projection.adapters.engine import waiting_helps
from services.projection.adapters.read_model import AnotherWriter, Checkpoint, ReadModel
from services.projection.adapters.stats import Stats
from services.projection.adapters.store import Found, Store
from services.projection.core import Rows, apply, prefetch

log = logging.getLogger(__name__)

T = TypeVar("T")

CONTROL = Partition(Topic.CONTROL, 0)
_WAIT_S = 1.0
_SWAP_AGAIN_S = 0.05
GATHER_S = 0.05
"""Records gather for so long before the next batch: a batch costs a few milliseconds, however small it is."""
KNOWN_ROWS = 10_000
"""Most rows that are kept in memory, so that they need not be loaded for what comes next."""


class DatabaseUnusable(Exception):
    """The database refuses what no waiting mends; the message says which database, what it said, what was expected."""


class Projection:
    """Keeps one database of read models up to date with one cell's log.

    Args:
        bus: the cell's log.
        store: the database.
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
        self._model: ReadModel = store.live
        self._at = Checkpoint(0, "", store.digest)
        self._rows: Rows | None = None
        """The rows that are known as of `_at`; None: none are."""
        self._was_open = False

    async def run(self, *, rebuild: bool = False) -> None:
        """Follow the log until told to stop.

        When another process moves the position (a rebuild by hand), go on from wherever it is then.

        Raises:
            Undecodable: a control record cannot be read; skipping it would make the rows wrong.
            WrongCell: the database belongs to another cell.
            DatabaseUnusable: its tables are not those of this version, or it is damaged.
            Fenced: a projection of another version has been started since.
        """
        while not self._stop.is_set():
            try:
                asked, rebuild = rebuild, False
                await self._open(asked)
                await self._follow(end=None)
            except StopRequested:
                return
            except AnotherWriter as error:
                log.warning("another process writes the read models", extra=fields(cell=self._store.cell, error=error))
                await within(self._stop, _WAIT_S)

    async def catch_up(self, *, rebuild: bool = False) -> int:
        """Follow the log up to its present end.

        Returns:
            The position reached.

        Raises:
            Undecodable, WrongCell, DatabaseUnusable, Fenced: as `run`.
            AnotherWriter: another process moves the position too.
            StopRequested: told to stop meanwhile.
        """
        await self._open(rebuild)
        await self._follow(end=await self._end_offset())
        return self._at.next_offset

    async def _open(self, rebuild: bool) -> None:
        """Find the read model that can be continued, or build one.

        What is outdated is read until another one is ready to take its place; what is wrong is not: where the rows
        are of another log, empty tables take their place at once, as in a database without any, and are filled there.
        """
        was_open, self._was_open = self._was_open, True
        found = await self._outlast_sql(self._store.found)
        live, begun = found.live, self._is_mine(found.building)
        why_wrong = "" if live is None else await self._why_wrong(live)
        if was_open and live is not None and not self._is_mine(live) and not begun:
            raise Fenced(
                f"the read models of cell {self._store.cell} are kept by a projection of another version, which was "
                f"started later: their digest is {live.digest!r}, this projection's is {self._store.digest!r}"
            )
        if live is None or why_wrong:
            if why_wrong:
                self._say(why_wrong)
            await self._outlast_sql(lambda: self._store.build(anew=True))
            await self._swap(instead_of=found)
        elif rebuild or begun or not self._is_mine(live):
            self._say("asked for" if rebuild else "begun before" if begun else "their tables or their fold are others")
            anew = rebuild or bool(found.building and await self._why_wrong(found.building))
            await self._outlast_sql(lambda: self._store.build(anew=anew))
            await self._use(self._store.building)
            await self._fill()
        else:
            # What another version has begun is dropped by one that is started later, not by one that was there before.
            await self._outlast_sql(functools.partial(self._store.tidy, building=not was_open))
            await self._use(self._store.live)

    def _is_mine(self, at: Checkpoint | None) -> bool:
        return at is not None and at.digest == self._store.digest

    def _say(self, why: str) -> None:
        log.warning("the read models are made anew", extra=fields(cell=self._store.cell, why=why))

    async def _use(self, model: ReadModel) -> None:
        self._model, self._rows = model, None
        self._at = await self._outlast_sql(lambda: self._unless_gone(model.checkpoint))
        self._stats.next_offset, self._stats.building = self._at.next_offset, model is self._store.building

    async def _fill(self) -> None:
        """Fold the log into what is built, up to its end; then swap it in."""
        while not self._stop.is_set():
            await self._follow(end=await self._end_offset())
            if self._stop.is_set() or await self._swap():
                return

    async def _swap(self, instead_of: Found | None = None) -> bool:
        """Swap what was built in, and drop what was there. False: not yet; read on, and try again."""
        while not await self._outlast_sql(lambda: self._store.swap(instead_of)):
            if await within(self._stop, _SWAP_AGAIN_S):
                raise StopRequested("the read model is built and not swapped in")
            if instead_of is None:
                return False
        await self._use(self._store.live)
        log.info(
            "the read models are swapped in", extra=fields(cell=self._store.cell, next_offset=self._at.next_offset)
        )
        await self._outlast_sql(self._store.tidy)
        return True

    async def _why_wrong(self, at: Checkpoint) -> str:
        """Why rows with this position are not of this log; empty when they are."""
        if at.next_offset == 0:
            return ""
        if await self._end_offset() < at.next_offset:
            return f"the log ends before their position {at.next_offset}"
        first = await self._first_id()
        if first != at.log_id:
            return f"they belong to another log, which began with event {at.log_id}; this one with {first}"
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
                    messages = await unless_set(self._stop, reader.next_batch(self._batch, _WAIT_S))
                except BusUnavailable as error:
                    await self._patience.wait("read control", error)
                    continue
                self._patience.over()
                if messages:
                    await self._store_batch(messages)
                    if end is None and len(messages) < self._batch:
                        await within(self._stop, GATHER_S)
                elif end is not None:  # nothing but transaction markers before the end
                    return
                else:
                    self._stats.idle()
        finally:
            await reader.close()

    async def _store_batch(self, messages: list[Message]) -> None:
        started = time.perf_counter()
        self._at = await self._outlast_sql(lambda: self._unless_gone(lambda: self._fold_and_save(messages)))
        took_s = time.perf_counter() - started
        lag_s = self._now() - messages[-1].appended_at_s
        self._stats.stored(self._at.next_offset, len(messages), took_s, lag_s)

    def _unless_gone(self, call: Callable[[], T]) -> T:
        """Do `call`, which needs the tables that are written to.

        Raises:
            AnotherWriter: they have gone.
        """
        try:
            return call()
        except sqlalchemy.exc.DatabaseError as error:
            if waiting_helps(error) or self._model.is_there():
                raise
            raise AnotherWriter("the tables have gone: another process has taken them away") from error

    def _fold_and_save(self, messages: list[Message]) -> Checkpoint:
        """Safe to repeat: a batch that was committed without an answer is not folded twice."""
        stored = self._model.checkpoint()
        if stored.next_offset < self._at.next_offset:
            raise AnotherWriter(
                f"the read models went back from offset {self._at.next_offset} to {stored.next_offset}: "
                "another process makes them anew"
            )
        # Rows are loaded anew where another writer was faster, or anything fails from here on, also after the commit.
        known, self._rows = self._rows, None
        records = [codec.record(m) for m in messages if m.offset >= stored.next_offset]
        if not records:
            return stored
        rows = known if known is not None and stored == self._at else Rows(self._model.load)
        prefetch(rows, records)
        for record in records:
            apply(rows, record)
        after = Checkpoint(records[-1].offset + 1, stored.log_id or records[0].envelope.id, stored.digest)
        self._model.save(rows, stored, after, self._now())
        rows.stored(KNOWN_ROWS)
        self._rows = rows
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
                        f"the read models in {where} cannot be used: {what}; expected tables that this "
                        "projection has made, or a database in which it can make them"
                    ) from error
                log.warning("the database cannot be used, trying again", extra=fields(error=error.orig))
                if await within(self._stop, 0.5):
                    raise StopRequested("the database is away") from None
