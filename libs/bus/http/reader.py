"""Reads on by long polls: each says where it goes on, so that the gateway remembers nothing of its readers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from libs.bus.http.connection import Connection
from libs.bus.http.protocol import LONGEST_POLL_S, MOST_MESSAGES, ReadAnswer, ReadQuestion, Start
from libs.bus.port import BusError, Message, Partition


class HttpReader:
    """See the port's `Reader`."""

    def __init__(self, connection: Connection, starts: Mapping[Partition, int]) -> None:
        self._connection, self._next = connection, dict(starts)
        self._closed = asyncio.Event()

    async def next_batch(self, max_messages: int, timeout_s: float) -> list[Message]:
        """See the port."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while not self._closed.is_set():
            wait_s = min(max(0.0, deadline - loop.time()), LONGEST_POLL_S)
            found = await self._unless_closed(wait_s, min(max_messages, MOST_MESSAGES))
            if found or loop.time() >= deadline:
                return self._taken(found)
        raise BusError("the reader is closed")

    async def _unless_closed(self, wait_s: float, most: int) -> list[Message]:
        asking = asyncio.ensure_future(self._ask(wait_s, most))
        closing = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait((asking, closing), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise BusError("the reader is closed")
            return asking.result()
        finally:
            for task in (asking, closing):
                task.cancel()
            await asyncio.gather(asking, closing, return_exceptions=True)

    async def _ask(self, wait_s: float, most: int) -> list[Message]:
        starts = [Start(partition=partition, offset=offset) for partition, offset in self._next.items()]
        question = ReadQuestion(starts=starts, max_messages=most, timeout_s=wait_s)
        return (await self._connection.ask("/read", question, ReadAnswer, wait_s)).messages

    def _taken(self, messages: list[Message]) -> list[Message]:
        """Go on after these; their partitions get to the end of the line."""
        for partition, offset in {message.partition: message.offset for message in messages}.items():
            del self._next[partition]
            self._next[partition] = offset + 1
        return messages

    async def close(self) -> None:
        """See the port."""
        self._closed.set()
