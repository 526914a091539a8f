"""Wake-up sockets, retention and the write-ahead log."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from libs.bus.embedded import EmbeddedBus, keeper, reader
from libs.bus.port import BusError, Message, OffsetLost, Outgoing, Partition
from libs.contracts.base import Topic
from libs.testing.bus_contract import LAYOUT
from libs.testing.bus_contract.log import CONTROL, text, texts
from libs.testing.shared_file import leave_socket

PROFILES = Partition(Topic.PROFILES, 0)


async def open_log(path: Path, options: str = "") -> EmbeddedBus:
    """A log with topics."""
    bus = await EmbeddedBus.connect(f"sqlite:///{path}{options}", "lab")
    await bus.create_topics(LAYOUT)
    return bus


async def settled(bus: EmbeddedBus) -> None:
    """When the housekeeping that was asked for is done."""
    await bus._keeping.run(lambda _: None)


@pytest.mark.parametrize("name", ["short", "long-" * 30])
async def test_a_reader_is_rung_and_need_not_look_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(reader, "LOOK_ANYWAY_S", 3600.0)
    (tmp_path / name).mkdir()
    here, there = await open_log(tmp_path / name / "log.db"), await open_log(tmp_path / name / "log.db")
    waiting = await here.reader({CONTROL: 0})
    for number in range(3):
        reading = asyncio.create_task(waiting.next_batch(5, 30.0))
        await asyncio.sleep(0.01)
        await there.append([text(Topic.CONTROL, "k", str(number))])
        assert texts(await reading) == [str(number)]
    await here.close()
    await there.close()


async def test_a_reader_is_not_rung_for_other_partitions(tmp_path: Path) -> None:
    bus = await open_log(tmp_path / "log.db")
    waiting = await bus.reader({CONTROL: 0})
    rung: list[str] = []
    waiting._waiter.ring = lambda: rung.append("rung")  # type: ignore[method-assign]
    other = await bus.reader({PROFILES: 0})
    await bus.append([text(Topic.PROFILES, "k", "v")])
    assert len(await other.next_batch(5, 5.0)) == 1
    assert rung == []
    await bus.close()


async def test_a_reader_that_was_rung_waits_again(tmp_path: Path) -> None:
    bus = await open_log(tmp_path / "log.db")
    waiting = await bus.reader({CONTROL: 0})
    await bus.append([text(Topic.CONTROL, "k", "v")])
    assert len(await waiting.next_batch(5, 5.0)) == 1
    looks: list[int] = []
    look = waiting._look

    async def counted(max_messages: int) -> list[Message]:
        looks.append(max_messages)
        return await look(max_messages)

    waiting._look = counted  # type: ignore[method-assign]
    assert await waiting.next_batch(5, 0.1) == []
    assert 1 <= len(looks) <= 2  # perhaps for the ring of what was read already, and at the end
    await bus.close()


async def test_sockets_of_dead_processes_are_removed_and_ones_own_at_the_end(tmp_path: Path) -> None:
    bus = await open_log(tmp_path / "log.db")
    await bus.reader({CONTROL: 0})
    sockets = tmp_path / "log.db.wake"
    leave_socket(sockets, "4242-dead")
    assert len(list(sockets.iterdir())) == 2
    await bus.append([text(Topic.CONTROL, "k", "v")])
    (own,) = sockets.iterdir()
    assert own.name != "4242-dead"
    await bus.close()
    assert list(sockets.iterdir()) == []


async def test_closing_a_bus_wakes_its_readers(tmp_path: Path) -> None:
    bus = await open_log(tmp_path / "log.db")
    waiting = await bus.reader({CONTROL: 0})
    reading = asyncio.create_task(waiting.next_batch(5, 3600.0))
    await asyncio.sleep(0.01)
    await bus.close()
    await bus.close()
    with pytest.raises(BusError, match="closed"):
        await reading


async def test_short_lived_topics_keep_their_newest_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "TRIM_MESSAGES", 10)
    bus = await open_log(tmp_path / "log.db", "?keep_messages=25")
    late = await bus.reader({PROFILES: 5})
    for first in range(0, 100, 10):
        await bus.append([text(Topic.PROFILES, "k", str(first + number)) for number in range(10)])
        await bus.append([text(Topic.CONTROL, "k", str(first + number)) for number in range(10)])
        await settled(bus)
    with pytest.raises(OffsetLost, match=r"lab\.profiles/0 begins at 75, asked for 5"):
        await late.next_batch(100, 1.0)
    assert texts(await all_of(bus, PROFILES)) == [str(number) for number in range(75, 100)]
    assert texts(await all_of(bus, CONTROL)) == [str(number) for number in range(100)]
    assert await bus.end_offset(PROFILES) == 100
    await bus.close()


async def test_a_reader_that_is_overtaken_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "TRIM_MESSAGES", 10)
    bus = await open_log(tmp_path / "log.db", "?keep_messages=5")
    slow = await bus.reader({PROFILES: 0})
    await bus.append([text(Topic.PROFILES, "k", str(number)) for number in range(4)])
    assert texts(await slow.next_batch(2, 5.0)) == ["0", "1"]
    await bus.append([text(Topic.PROFILES, "k", str(number)) for number in range(4, 20)])
    await settled(bus)
    with pytest.raises(OffsetLost, match="begins at 15, asked for 2"):
        await slow.next_batch(2, 5.0)
    await bus.close()


async def test_short_lived_topics_forget_what_is_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "TRIM_MESSAGES", 10)
    bus = await open_log(tmp_path / "log.db", "?keep_s=3600")
    await bus.append([text(Topic.PROFILES, "k", f"old {number}") for number in range(25)])
    await settled(bus)
    await bus._writer.run(lambda w: w._connection.execute("UPDATE messages SET appended_at_s = appended_at_s - 4000"))
    await bus.append([text(Topic.PROFILES, "k", f"new {number}") for number in range(12)])
    await settled(bus)
    assert texts(await all_of(bus, PROFILES)) == [f"new {number}" for number in range(12)]
    await bus.close()


async def test_a_quiet_topic_is_looked_through_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "LOOK_EVERY_S", 0.0)
    bus = await open_log(tmp_path / "log.db", "?keep_messages=1")
    await bus.append([text(Topic.PROFILES, "k", "old"), text(Topic.PROFILES, "k", "new")])
    await settled(bus)
    assert texts(await all_of(bus, PROFILES)) == ["new"]
    await bus.close()


async def test_the_write_ahead_log_is_copied_back(tmp_path: Path) -> None:
    bus = await open_log(tmp_path / "log.db")
    for _ in range(60):
        await bus.append([Outgoing(Topic.CONTROL, "k", [], b"x" * 1_000_000)])
        await settled(bus)
    assert (tmp_path / "log.db-wal").stat().st_size < 20_000_000
    await bus.close()
    assert not (tmp_path / "log.db-wal").exists()


async def all_of(bus: EmbeddedBus, partition: Partition) -> list[Message]:
    """All that is kept."""
    everything = await bus.reader({partition: 0})
    found: list[Message] = []
    while batch := await everything.next_batch(1000, 0.0):
        found += batch
    await everything.close()
    return found
