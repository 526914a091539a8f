"""Facts come to the log once, also when their publisher is stopped in the middle of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from torch_agent.journal import Journal
from torch_agent.ordering import orders_partition
from torch_agent.publishing import Publisher

from libs.bus import codec
from libs.bus.memory import MemoryBus, MemorySession
from libs.bus.port import Outgoing, Partition, Position, TopicLayout
from libs.contracts.agent import GpuRecovered, NodeLeft
from libs.contracts.base import Topic
from libs.testing.shells import messages


class Answerless(MemorySession):
    """Commits, and never says so."""

    committed = asyncio.Event()

    async def commit(
        self, outputs: Sequence[Outgoing], positions: Mapping[Partition, Position] | None = None
    ) -> list[int]:
        await super().commit(outputs, positions)
        self.committed.set()
        await asyncio.Event().wait()
        raise AssertionError("it waits for ever")


async def test_a_commit_that_was_cancelled_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    bus = MemoryBus("lab")
    await bus.create_topics(TopicLayout())
    journal = Journal(tmp_path / "journal.db")
    publisher = Publisher(bus, "n1", await orders_partition(bus, "n1"), journal)
    await publisher.open()
    assert isinstance(publisher._session, MemorySession)
    monkeypatch.setattr(publisher._session, "__class__", Answerless)
    journal.record(facts=[GpuRecovered(node_id="n1", index=0)], time_s=1.0, next_order=0)
    publishing = asyncio.create_task(publisher.publish())
    await Answerless.committed.wait()
    publishing.cancel()
    await asyncio.gather(publishing, return_exceptions=True)
    journal.record(facts=[GpuRecovered(node_id="n1", index=1)], time_s=2.0)
    while journal.backlog:
        await publisher.publish()
    said = [codec.record(message).envelope.event for message in await messages(bus, Topic.CONTROL)]
    assert [event.index for event in said if isinstance(event, GpuRecovered)] == [0, 1]
    await publisher.close()
    await bus.close()
    journal.close()


async def test_a_fact_is_not_repeated_when_both_the_note_and_the_entry_of_its_commit_are_gone(tmp_path: Path):
    bus = MemoryBus("lab")
    await bus.create_topics(TopicLayout())
    journal, orders = Journal(tmp_path / "journal.db"), await orders_partition(bus, "n1")
    journal.record(facts=[GpuRecovered(node_id="n1", index=0)], time_s=1.0, next_order=0)
    journal.close()
    (tmp_path / "before.db").write_bytes((tmp_path / "journal.db").read_bytes())

    journal = Journal(tmp_path / "journal.db")
    publisher = Publisher(bus, "n1", orders, journal)
    await publisher.open()
    assert await publisher.publish()
    await publisher.close()
    journal.close()

    session = await bus.open_session("agent/n1")
    await session.commit([], {orders: Position(0)})
    await session.close()

    journal = Journal(tmp_path / "before.db")
    journal.record(facts=[GpuRecovered(node_id="n1", index=1)], time_s=2.0)
    publisher = Publisher(bus, "n1", orders, journal)
    await publisher.open()
    assert journal.backlog == 1
    assert await publisher.publish()
    said = [codec.record(message).envelope.event for message in await messages(bus, Topic.CONTROL)]
    assert said == [GpuRecovered(node_id="n1", index=index) for index in (0, 1)]
    await publisher.close()
    journal.close()
    await bus.close()


async def test_what_is_too_much_for_one_commit_comes_in_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("torch_agent.publishing.BYTES_PER_COMMIT", 1500)
    bus = MemoryBus("lab")
    await bus.create_topics(TopicLayout())
    journal = Journal(tmp_path / "journal.db")
    publisher = Publisher(bus, "n1", await orders_partition(bus, "n1"), journal)
    await publisher.open()
    sizes = [600, 600, 600, 9000, 10]
    facts = [NodeLeft(node_id="n1", incarnation=1, note="x" * size) for size in sizes]
    journal.record(facts=facts, time_s=1.0, next_order=0)
    left = [journal.backlog]
    while journal.backlog:
        assert await publisher.publish()
        left.append(journal.backlog)
    assert left == [5, 3, 2, 1, 0]
    said = [codec.record(message).envelope.event for message in await messages(bus, Topic.CONTROL)]
    assert [len(event.note) for event in said if isinstance(event, NodeLeft)] == sizes
    await publisher.close()
    await bus.close()
    journal.close()
