"""The read models' database: connections in threads, and how far the projection is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from services.gateway.adapters.tables import HOLD_TABLES, checkpoint

T = TypeVar("T")

_POLL_S = 0.01


class ReadModelsAway(Exception):
    """The database cannot be reached, or the projection has not made its tables yet."""


class TooFarBehind(Exception):
    """The read models have not come as far as was asked for, in the time that was given."""

    def __init__(self, wanted: int, position: int) -> None:
        super().__init__(f"the read models are at offset {position}, {wanted} was asked for")
        self.position = position


class Database:
    """Reads only; the projection alone writes.

    Args:
        url: SQLAlchemy URL of the read models.
    """

    def __init__(self, url: str) -> None:
        is_sqlite = make_url(url).get_backend_name() == "sqlite"
        self._engine = sa.create_engine(
            url,
            json_deserializer=msgspec.json.decode,
            pool_size=8,
            max_overflow=8,
            pool_pre_ping=not is_sqlite,
            # The projection swaps tables: a prepared statement fails once a column behind its name has another type.
            connect_args={} if is_sqlite else {"prepare_threshold": None},
        )
        if is_sqlite:
            sa.event.listen(self._engine, "connect", _read_only)
        self._followers = 0
        self._moved = asyncio.Event()
        self._poller: asyncio.Task[None] | None = None
        self._position = 0

    async def read(self, query: Callable[[sa.Connection], T]) -> T:
        """Run a query in a thread.

        Raises:
            ReadModelsAway: the database or its tables are not there.
        """
        return await asyncio.to_thread(self._read, query)

    def _read(self, query: Callable[[sa.Connection], T], *, one_moment: bool = False) -> T:
        try:
            with self._engine.connect() as connection:
                if one_moment and self._engine.dialect.name == "sqlite":
                    connection.exec_driver_sql("BEGIN")
                elif one_moment:
                    connection = connection.execution_options(isolation_level="REPEATABLE READ")
                    connection.execute(HOLD_TABLES)
                return query(connection)
        except DBAPIError as error:
            raise ReadModelsAway(str(error.orig)) from error

    async def snapshot(self, query: Callable[[sa.Connection], T]) -> T:
        """As `read`, and all selects of the query see the same moment.

        Raises:
            ReadModelsAway: the database or its tables are not there.
        """
        return await asyncio.to_thread(self._read, query, one_moment=True)

    async def position(self) -> int:
        """Everything before this control offset is in the read models."""
        return await self.read(position_of)

    async def wait_for(self, next_offset: int, timeout_s: float) -> int:
        """Wait until everything before `next_offset` is in the read models.

        Returns:
            The position reached.

        Raises:
            TooFarBehind: it was not reached in time.
            ReadModelsAway: the database or its tables are not there.
        """
        position = await self.position()
        if position >= next_offset:
            return position
        self._followers += 1
        if self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(self._poll())
        try:
            async with asyncio.timeout(timeout_s):
                while self._position < next_offset:
                    await self._moved.wait()
        except TimeoutError:
            raise TooFarBehind(next_offset - 1, max(position, self._position) - 1) from None
        finally:
            self._followers -= 1
        return self._position

    async def _poll(self) -> None:
        """One task asks for all requests that wait, as long as there are any."""
        while self._followers:
            try:
                position = await self.position()
            except ReadModelsAway:
                position = self._position
            if position != self._position:
                self._position = position
                moved, self._moved = self._moved, asyncio.Event()
                moved.set()
            await asyncio.sleep(_POLL_S)

    async def close(self) -> None:
        """Give back the connections."""
        if self._poller is not None:
            self._poller.cancel()
        await asyncio.to_thread(self._engine.dispose)


def position_of(connection: sa.Connection) -> int:
    """The projection's position; 0 before its first record."""
    return connection.execute(sa.select(checkpoint.c.next_offset)).scalar() or 0


def _read_only(connection: Any, _record: object) -> None:
    for pragma in ("busy_timeout=5000", "query_only=ON"):
        connection.execute(f"PRAGMA {pragma}")
