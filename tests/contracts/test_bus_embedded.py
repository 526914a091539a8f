"""The embedded adapter keeps the contract of the bus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio

from libs.bus.embedded import reader as reader_module
from libs.bus.embedded.bus import EmbeddedBus
from libs.bus.embedded.doorbell import Waiter
from libs.bus.embedded.lookup import Lookup
from libs.bus.naming import CONTROL
from libs.bus.port import Message, Outgoing, TopicLayout
from libs.contracts.base import Topic
from libs.testing.bus_contract import BusContract
from libs.testing.shared_file import SharedFile


class TestEmbedded(BusContract):
    """The whole suite."""

    @pytest_asyncio.fixture
    async def log(self, tmp_path: Path) -> AsyncIterator[SharedFile]:
        """An empty log."""
        log = SharedFile(tmp_path)
        yield log
        await log.close()


class TestEmbeddedWhereNobodyCanRing(BusContract):
    """The suite again without wake-up sockets, as in a directory where none can be bound: readers look themselves."""

    @pytest_asyncio.fixture
    async def log(self, tmp_path: Path) -> AsyncIterator[SharedFile]:
        """An empty log beside something that is in the sockets' way."""
        log = SharedFile(tmp_path)
        log.sockets.write_text("in the way")
        yield log
        await log.close()


async def test_a_reader_that_has_found_all_looks_again_when_it_is_rung(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, messages = [0], Lookup.messages

    def counted(self: Lookup, starts: Mapping[int, int], limit: int) -> list[Message]:
        looks[0] += 1
        return messages(self, starts, limit)

    monkeypatch.setattr(Lookup, "messages", counted)
    monkeypatch.setattr(reader_module, "LOOK_ANYWAY_S", 3600.0)
    bus = await EmbeddedBus.connect(f"sqlite:///{tmp_path / 'log.db'}", "lab")
    try:
        await bus.create_topics(TopicLayout())
        reader = await bus.reader({CONTROL: 0})
        for value in (b"1", b"2", b"3"):
            await bus.append([Outgoing(Topic.CONTROL, "j", [], value)])
        assert [len(await reader.next_batch(2, 10.0)) for _ in range(2)] == [2, 1]
        before = looks[0]
        waits, wait = asyncio.Event(), Waiter.wait

        async def noticed(self: Waiter, timeout_s: float) -> None:
            waits.set()
            await wait(self, timeout_s)

        monkeypatch.setattr(Waiter, "wait", noticed)
        reading = asyncio.create_task(reader.next_batch(2, 60.0))
        await waits.wait()
        await bus.append([Outgoing(Topic.CONTROL, "j", [], b"4")])
        assert [message.value for message in await reading] == [b"4"]
        assert looks[0] == before + 1
        await reader.close()
    finally:
        await bus.close()
