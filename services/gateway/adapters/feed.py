"""The live end of control, read once for all followers; one that starts further back reads the log first."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property

import msgspec

from libs.bus import codec
from libs.bus.batches import batches
from libs.bus.port import Bus, BusUnavailable, Message, Partition
from libs.contracts.base import Topic
from libs.contracts.envelope import Record
from libs.contracts.wire import Undecodable
from libs.inspect.archive import whole_reader
from libs.runtime.log import fields
from libs.runtime.patience import Patience
from libs.runtime.waits import unless_set, within
from services.gateway.core.cloudevent import structured

log = logging.getLogger(__name__)

CONTROL = Partition(Topic.CONTROL, 0)
KEPT = 4096
_BATCH = 500
_WAIT_S = 5.0


@dataclass(frozen=True)
class Entry:
    """A control record, as it is sent to followers; decoded once for all of them, and not at all without any."""

    message: Message

    @property
    def offset(self) -> int:
        """Its place on the log."""
        return self.message.offset

    @cached_property
    def record(self) -> Record:
        """The record, of one that is readable."""
        return codec.record(self.message)

    @cached_property
    def is_readable(self) -> bool:
        """Whether it can be decoded. If not, that is logged: a follower looks, it does not decide."""
        try:
            return self.record is not None
        except Undecodable as error:
            log.error("a control record cannot be shown", extra=fields(error=error))
            return False

    @cached_property
    def json(self) -> bytes:
        """The structured CloudEvent, made once for all followers."""
        return msgspec.json.encode(structured(self.record))


class Feed:
    """Keeps the newest records in memory and wakes followers.

    Args:
        bus: the cell's log.
        stop: set it to end `run` and every `follow`.
    """

    def __init__(self, bus: Bus, stop: asyncio.Event) -> None:
        self._bus, self._stop = bus, stop
        self._patience = Patience(stop)
        self._kept: list[Entry] = []
        self._kept_from = 0
        self._news = asyncio.Event()
        self.started = asyncio.Event()
        """`next_offset` is that of the log."""
        self.next_offset = 0
        """Everything before it has been seen."""

    async def run(self) -> None:
        """Read along until told to stop."""
        end = await self._patience.outlast(lambda: self._bus.end_offset(CONTROL), "ask for the log's end")
        self._kept_from = self.next_offset = end
        self.started.set()
        reader = await self._patience.outlast(lambda: self._bus.reader({CONTROL: end}), "read control")
        try:
            while not self._stop.is_set():
                try:
                    # Followers are not to wait for a read when the gateway stops.
                    messages = await unless_set(self._stop, reader.next_batch(_BATCH, _WAIT_S))
                except BusUnavailable as error:
                    await self._patience.wait("read control", error)
                    continue
                self._patience.over()
                if messages:
                    self._keep(messages)
        finally:
            self._wake()
            await reader.close()

    def _keep(self, messages: list[Message]) -> None:
        self._kept += map(Entry, messages)
        self.next_offset = messages[-1].offset + 1
        if len(self._kept) > 2 * KEPT:
            self._kept = self._kept[-KEPT:]
            self._kept_from = self._kept[0].offset
        self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def follow(
        self, start: int | None, heartbeat_s: float, *, end: int | None = None
    ) -> AsyncIterator[list[Entry]]:
        """Records from `start` on (None: from now on), as they come.

        Yields:
            Batches in order of offset; an empty one when nothing came for `heartbeat_s`.

        Args:
            start: first offset.
            heartbeat_s: longest silence.
            end: stop before this offset; None: never.

        Raises:
            BusError: records that the log says it has do not come.
            BusUnavailable: the log cannot be reached, or the gateway ends before `end` is reached.
        """
        await self.started.wait()
        position = self.next_offset if start is None else start
        while not self._stop.is_set() and (end is None or position < end):
            if position < self._kept_from:
                kept_from = self._kept_from
                async for batch in self._from_log(position, kept_from):
                    yield _before(batch, end)
                position = kept_from
                continue
            first = bisect_left(self._kept, position, key=lambda entry: entry.offset)
            fresh = self._kept[first : first + _BATCH]  # what is new to all of them is decoded here
            if fresh:
                position = fresh[-1].offset + 1
                if shown := _readable(fresh):
                    yield _before(shown, end)
            elif end is not None and self.next_offset >= end:
                return
            else:
                position = max(position, self.next_offset)
                if not await within(self._news, heartbeat_s):
                    yield []
        if end is not None and position < end:
            raise _ending()

    async def _from_log(self, start: int, end: int) -> AsyncIterator[list[Entry]]:
        """What is not kept in memory any more."""
        reader = await whole_reader(self._bus, {CONTROL: start})
        async with aclosing(batches(reader, CONTROL, start, end)) as found:
            async for messages in found:
                if batch := _readable(map(Entry, messages)):
                    yield batch
                if self._stop.is_set():
                    raise _ending()


def _ending() -> BusUnavailable:
    return BusUnavailable("the gateway is ending")


def _readable(entries: Iterable[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.is_readable]


def _before(batch: list[Entry], end: int | None) -> list[Entry]:
    return batch if end is None else [entry for entry in batch if entry.offset < end]
