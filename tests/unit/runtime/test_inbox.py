"""When a shell reads on."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from libs.bus.port import Message, Partition, Reader
from libs.contracts.base import Topic
from libs.runtime import inbox as inbox_module
from libs.runtime.clock import SteadyClock
from libs.runtime.inbox import PATIENT_AFTER, Inbox

MESSAGE = Message(Partition(Topic.CONTROL, 0), 0, "j", [], b"", 0.0)


class OneByOne:
    """A reader that always has one more message."""

    def __init__(self) -> None:
        self.reads = 0

    async def next_batch(self, max_messages: int, timeout_s: float) -> list[Message]:
        self.reads += 1
        return [MESSAGE]

    async def close(self) -> None:
        """Nothing to give back."""


async def test_a_core_that_decides_nothing_lets_records_gather(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inbox_module, "GATHER_S", 3600.0)
    reader, clock = OneByOne(), SteadyClock()
    inbox = Inbox(cast(Reader, reader), 10, clock, asyncio.Event())
    try:
        for _ in range(PATIENT_AFTER):
            assert await inbox.next(None) == [MESSAGE]
            inbox.handled(decided=False)
        assert await inbox.next(None) == [MESSAGE], "what was asked for before"
        assert await inbox.next(clock.now_s() + 0.05) is None, "time wakes a shell all the same"
        assert reader.reads == PATIENT_AFTER + 1
    finally:
        await inbox.close()


async def test_a_core_that_decides_something_reads_on_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inbox_module, "GATHER_S", 3600.0)
    inbox = Inbox(cast(Reader, OneByOne()), 10, SteadyClock(), asyncio.Event())
    try:
        for number in range(3 * PATIENT_AFTER):
            assert await inbox.next(None) == [MESSAGE]
            inbox.handled(decided=number % PATIENT_AFTER == 0)
    finally:
        await inbox.close()


async def test_where_there_is_more_to_read_nothing_has_to_gather(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inbox_module, "GATHER_S", 3600.0)
    inbox = Inbox(cast(Reader, OneByOne()), 1, SteadyClock(), asyncio.Event())
    try:
        for _ in range(2 * PATIENT_AFTER):
            assert await inbox.next(None) == [MESSAGE]
            inbox.handled(decided=False)
    finally:
        await inbox.close()
