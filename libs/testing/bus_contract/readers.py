"""Readers: waiting, waking, going on."""

from __future__ import annotations

import asyncio

import pytest

from libs.bus.partitioner import partition_index
from libs.bus.port import BusError, Partition
from libs.contracts.base import Topic
from libs.testing.bus_contract.log import CONTROL, PATIENCE_S, LogUnderTest, take, text, texts, until_end

TELEMETRY = [Partition(Topic.TELEMETRY, index) for index in range(3)]


class ReaderContract:
    """A reader misses nothing, and does not have to be asked again and again."""

    async def test_a_waiting_reader_wakes_when_another_process_appends(self, log: LogUnderTest) -> None:
        here, there = await log.connect(), await log.connect()
        reader = await here.reader({CONTROL: 0})
        session = await there.open_session("one")
        for number in range(5):
            waiting = asyncio.create_task(reader.next_batch(10, PATIENCE_S))
            await asyncio.sleep(0.01)
            assert not waiting.done()
            await session.commit([text(Topic.CONTROL, "k", str(number))])
            assert texts(await waiting) == [str(number)]
        await reader.close()

    async def test_a_reader_that_waits_in_vain_returns_nothing_and_stays_usable(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        reader = await bus.reader({CONTROL: 0})
        assert await reader.next_batch(10, 0.0) == []
        assert await reader.next_batch(10, 0.05) == []
        await bus.append([text(Topic.CONTROL, "k", "v")])
        assert texts(await reader.next_batch(10, PATIENCE_S)) == ["v"]
        await reader.close()

    async def test_a_reader_starts_where_it_is_told(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        session = await bus.open_session("one")
        offsets = await session.commit([text(Topic.CONTROL, "k", str(number)) for number in range(6)])
        assert texts(await take(bus, {CONTROL: offsets[4]}, 2)) == ["4", "5"]
        reader = await bus.reader({CONTROL: await bus.end_offset(CONTROL)})
        assert await reader.next_batch(10, 0.05) == []
        await session.commit([text(Topic.CONTROL, "k", "new")])
        assert texts(await reader.next_batch(10, PATIENCE_S)) == ["new"]
        await reader.close()

    async def test_batches_are_as_small_as_asked(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        await bus.append([text(Topic.CONTROL, "k", str(number)) for number in range(10)])
        reader = await bus.reader({CONTROL: 0})
        found: list[str] = []
        while len(found) < 10:
            batch = await reader.next_batch(3, PATIENCE_S)
            assert 1 <= len(batch) <= 3
            found += texts(batch)
        assert found == [str(number) for number in range(10)]
        await reader.close()

    async def test_several_partitions_are_read_each_in_order(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        keys = [f"job-{number}" for number in range(12)]
        for count in range(5):
            await bus.append([text(Topic.TELEMETRY, key, f"{key}:{count}") for key in keys])
        found = await take(bus, dict.fromkeys(TELEMETRY, 0), 60)
        for key in keys:
            assert texts(m for m in found if m.key == key) == [f"{key}:{count}" for count in range(5)]

    async def test_a_busy_partition_does_not_hide_the_others(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        one, other = keys_of_two_partitions()
        for busy, quiet, batch in ((one, other, 1), (one, other, 10), (other, one, 1)):
            starts = {partition: await bus.end_offset(partition) for partition in await bus.partitions(Topic.ORDERS)}
            await bus.append([text(Topic.ORDERS, busy, "busy") for _ in range(100)])
            await bus.append([text(Topic.ORDERS, quiet, "quiet")])
            reader = await bus.reader(starts)
            found: list[str] = []
            while "quiet" not in found:
                found += texts(await reader.next_batch(batch, PATIENCE_S))
                await bus.append([text(Topic.ORDERS, busy, "more") for _ in range(batch)])
                assert len(found) < 200, "only the busy partition was read"
            await reader.close()

    async def test_a_cancelled_read_loses_nothing(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        reader = await bus.reader({CONTROL: 0})
        found: list[str] = []
        for number in range(20):
            reading = asyncio.create_task(reader.next_batch(10, PATIENCE_S))
            appending = asyncio.create_task(bus.append([text(Topic.CONTROL, "k", str(number))]))
            for _ in range(number):
                await asyncio.sleep(0)
            reading.cancel()
            (outcome,) = await asyncio.gather(reading, return_exceptions=True)
            if isinstance(outcome, list):
                found += texts(outcome)
            await appending
        while len(found) < 20:
            found += texts(await reader.next_batch(10, PATIENCE_S))
        assert found == [str(number) for number in range(20)]
        await reader.close()

    async def test_readers_do_not_disturb_each_other(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        await bus.append([text(Topic.CONTROL, "k", str(number)) for number in range(20)])
        one, two = await asyncio.gather(take(bus, {CONTROL: 0}, 20), take(bus, {CONTROL: 0}, 20))
        assert texts(one) == texts(two) == [str(number) for number in range(20)]

    async def test_a_closed_reader_says_so(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        reader = await bus.reader({CONTROL: 0})
        await reader.close()
        await reader.close()
        with pytest.raises(BusError):
            await reader.next_batch(1, 0.0)

    async def test_everything_can_be_read_for_an_export(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        keys = [f"job-{number}" for number in range(8)]
        await bus.append([text(Topic.LOGS, key, key) for key in keys])
        found = [
            message for partition in await bus.partitions(Topic.LOGS) for message in await until_end(bus, partition)
        ]
        assert sorted(texts(found)) == keys
        assert await bus.end_offset(CONTROL) == 0


def keys_of_two_partitions() -> tuple[str, str]:
    """Keys of orders that are in different partitions."""
    busy = "n0"
    quiet = next(key for key in (f"n{n}" for n in range(100)) if partition_index(key, 2) != partition_index(busy, 2))
    return busy, quiet
