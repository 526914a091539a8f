"""One cell's log in one file."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qsl, urlsplit

from libs.bus.embedded import store
from libs.bus.embedded.schema import open_file
from libs.bus.embedded.wakeup import Listener, wake_all
from libs.bus.port import BusError, BusUnavailable, Message, Outgoing, Partition, Position, TopicLayout
from libs.contracts.base import Topic

T = TypeVar("T")

LOOK_ANYWAY_S = 0.5
"""How long a reader trusts that it would have been woken."""


class EmbeddedBus:
    """See the port's `Bus`.

    SQLite's calls run in two threads, one that writes and one that reads, so that neither the event loop
    nor a reader waits while a writer waits for its turn.
    """

    def __init__(self, path: Path, cell: str, *, read_only: bool) -> None:
        self.cell = cell
        self.path = path
        self._wake_directory = path.with_name(path.name + ".wake")
        self._durable = open_file(path, read_only=read_only, synchronous="FULL")
        self._quick = open_file(path, read_only=read_only, synchronous="NORMAL")
        self._reading = open_file(path, read_only=read_only, synchronous="NORMAL")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="log-writer")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="log-reader")
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._read_only = read_only
        self._listener: Listener | None = None
        self._counts: dict[Topic, int] = {}
        self._closed = False

    @classmethod
    async def connect(cls, url: str, cell: str) -> EmbeddedBus:
        """Open `sqlite:///relative/log.db` or `sqlite:////absolute/log.db`, with `?mode=ro` for reading only.

        Raises:
            BusError: the URL cannot be understood, or the file is no log.
            BusUnavailable: the file cannot be opened.
        """
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        if parts.scheme != "sqlite" or parts.netloc or len(parts.path) < 2 or set(options) - {"mode"}:
            raise BusError(f"bus url {url!r}: expected sqlite:///path/to/log.db, optionally with ?mode=ro")
        return cls(Path(parts.path[1:]), cell, read_only=options.get("mode") == "ro")

    async def create_topics(self, layout: TopicLayout) -> None:
        """See the port."""
        await self._write(lambda: store.create_topics(self._durable, layout))

    async def partitions(self, topic: Topic) -> list[Partition]:
        """See the port."""
        return [Partition(topic, index) for index in range((await self._partition_counts())[topic])]

    async def open_session(self, name: str) -> EmbeddedSession:
        """See the port."""
        counts = await self._partition_counts()
        epoch = await self._write(lambda: store.take_over(self._durable, name))
        return EmbeddedSession(self, name, epoch, counts)

    async def reader(self, starts: Mapping[Partition, int]) -> EmbeddedReader:
        """See the port."""
        await self._partition_counts()
        if self._listener is None and not self._read_only:
            self._listener = Listener(self._wake_directory)
        return EmbeddedReader(self, dict(starts), self._listener)

    async def append(self, outputs: Sequence[Outgoing]) -> None:
        """See the port."""
        store.check_sizes(outputs)
        counts = await self._partition_counts()
        await self._write(lambda: store.append(self._quick, outputs, counts))
        wake_all(self._wake_directory, self._sender)

    async def end_offset(self, partition: Partition) -> int:
        """See the port."""
        return await self.read(lambda c: store.end_offset(c, partition))

    async def commit(
        self,
        session: str,
        epoch: int,
        outputs: Sequence[Outgoing],
        positions: Mapping[Partition, Position],
        counts: Mapping[Topic, int],
    ) -> list[int]:
        """A session's commit; listeners are woken when something was appended."""
        store.check_sizes(outputs)
        offsets = await self._write(lambda: store.commit(self._durable, session, epoch, outputs, positions, counts))
        if outputs:
            wake_all(self._wake_directory, self._sender)
        return offsets

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query in the reading thread."""
        return await self._in(self._reader, lambda: query(self._reading))

    async def close(self) -> None:
        """See the port."""
        if self._closed:
            return
        self._closed = True
        if self._listener is not None:
            self._listener.close()
        self._sender.close()
        for executor in (self._writer, self._reader):
            await asyncio.to_thread(executor.shutdown)
        for connection in (self._durable, self._quick, self._reading):
            connection.close()

    async def _write(self, change: Callable[[], T]) -> T:
        return await self._in(self._writer, change)

    async def _in(self, executor: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        if self._closed:
            raise BusUnavailable(f"the log {self.path} was closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(executor, work)
        except sqlite3.OperationalError as error:
            raise BusUnavailable(f"the log {self.path} cannot be used: {error}") from error
        except sqlite3.DatabaseError as error:
            raise BusError(f"the log {self.path} is damaged: {error}") from error

    async def _partition_counts(self) -> dict[Topic, int]:
        if not self._counts:
            counts = await self.read(store.partition_counts)
            missing = [topic.value for topic in Topic if topic not in counts]
            if missing:
                raise BusError(f"topic {missing[0]} does not exist; create the cell's topics first")
            self._counts = counts
        return self._counts


class EmbeddedSession:
    """See the port's `Session`."""

    def __init__(self, bus: EmbeddedBus, name: str, epoch: int, counts: Mapping[Topic, int]) -> None:
        self._bus, self._name, self._epoch, self._counts = bus, name, epoch, counts

    async def position(self, partition: Partition) -> Position:
        """See the port."""
        return await self._bus.read(lambda c: store.position(c, self._name, partition))

    async def commit(
        self, outputs: Sequence[Outgoing], positions: Mapping[Partition, Position] | None = None
    ) -> list[int]:
        """See the port."""
        return await self._bus.commit(self._name, self._epoch, outputs, positions or {}, self._counts)

    async def close(self) -> None:
        """See the port."""


class EmbeddedReader:
    """See the port's `Reader`."""

    def __init__(self, bus: EmbeddedBus, places: dict[Partition, int], listener: Listener | None) -> None:
        self._bus, self._places, self._listener = bus, places, listener
        self._woken = asyncio.Event()
        if listener is not None:
            listener.join(self._woken)

    async def next_batch(self, max_messages: int, timeout_s: float) -> list[Message]:
        """See the port."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            self._woken.clear()  # before the look: what is appended after it sets the event again
            found = await self._bus.read(lambda c: self._look(c, max_messages))
            left_s = deadline - loop.time()
            if found or left_s <= 0:
                return found
            await self._wait(min(left_s, LOOK_ANYWAY_S))

    def _look(self, connection: sqlite3.Connection, max_messages: int) -> list[Message]:
        """Take turns over the partitions, so that a busy one does not hide the others."""
        found: list[Message] = []
        for partition, start in list(self._places.items()):
            if len(found) >= max_messages:
                break
            messages = store.read(connection, partition, start, max_messages - len(found))
            if messages:
                del self._places[partition]  # to the end of the line
                self._places[partition] = messages[-1].offset + 1
                found += messages
        return found

    async def _wait(self, timeout_s: float) -> None:
        try:
            await asyncio.wait_for(self._woken.wait(), timeout_s)
        except TimeoutError:
            return

    async def close(self) -> None:
        """See the port."""
        if self._listener is not None:
            self._listener.leave(self._woken)
