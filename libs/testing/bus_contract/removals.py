"""Removing the oldest messages: what is left, what is said about the rest."""

from __future__ import annotations

import pytest

from libs.bus.port import Archived, BusError, OffsetLost, Partition
from libs.contracts.base import Topic
from libs.testing.bus_contract.log import CONTROL, PATIENCE_S, LogUnderTest, take, text, texts, until_end

NOTE = Archived(log_id="e-1", directory="/archives/größe", next_offset=3)
ORDERS = [Partition(Topic.ORDERS, index) for index in range(2)]


class RemovalContract:
    """Nothing but what was named is gone, and nothing of it silently."""

    async def test_a_log_from_which_nothing_was_removed_begins_at_0(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        await bus.append([text(Topic.CONTROL, "k", "v")])
        assert await bus.begin_offset(CONTROL) == 0
        assert await bus.begin_offset(ORDERS[0]) == 0
        assert await bus.archived() is None
        with pytest.raises(BusError):
            await bus.begin_offset(Partition(Topic.CONTROL, 1))

    async def test_what_is_given_back_is_gone_and_the_rest_keeps_its_offsets(self, log: LogUnderTest) -> None:
        here, there = await log.connect(), await log.connect()
        session = await here.open_session("one")
        offsets = await session.commit([text(Topic.CONTROL, "k", str(number)) for number in range(6)])
        await here.append([text(Topic.ORDERS, f"n{number}", str(number)) for number in range(8)])
        before = {partition: await until_end(there, partition) for partition in ORDERS}
        end = await here.end_offset(CONTROL)
        await here.give_back({CONTROL: offsets[3], ORDERS[0]: 0}, NOTE)
        assert await there.begin_offset(CONTROL) == offsets[3]
        assert await there.end_offset(CONTROL) == end
        assert await there.archived() == NOTE
        found = await until_end(there, CONTROL)
        assert texts(found) == ["3", "4", "5"]
        assert [message.offset for message in found] == offsets[3:]
        assert {partition: await until_end(there, partition) for partition in ORDERS} == before
        (new,) = await session.commit([text(Topic.CONTROL, "k", "new")])
        assert texts(await take(there, {CONTROL: new}, 1)) == ["new"]

    async def test_a_reader_of_what_is_gone_is_told_where_the_log_begins(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        session = await bus.open_session("one")
        offsets = await session.commit([text(Topic.CONTROL, "k", str(number)) for number in range(6)])
        await bus.give_back({CONTROL: offsets[3]}, NOTE)
        lost = await bus.reader({CONTROL: offsets[1]})
        with pytest.raises(OffsetLost, match=f"begins at {offsets[3]}, asked for {offsets[1]}"):
            await lost.next_batch(10, PATIENCE_S)
        assert texts(await take(bus, {CONTROL: offsets[3]}, 3)) == ["3", "4", "5"]

    async def test_everything_may_go(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        session = await bus.open_session("one")
        await session.commit([text(Topic.CONTROL, "k", str(number)) for number in range(3)])
        end = await bus.end_offset(CONTROL)
        await bus.give_back({CONTROL: end}, NOTE)
        assert await bus.begin_offset(CONTROL) == end == await bus.end_offset(CONTROL)
        reader = await bus.reader({CONTROL: 0})
        assert await reader.next_batch(10, 0.05) == []
        await session.commit([text(Topic.CONTROL, "k", "new")])
        assert texts(await reader.next_batch(10, PATIENCE_S)) == ["new"]
        await reader.close()

    async def test_removing_again_changes_nothing_and_the_latest_note_counts(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        session = await bus.open_session("one")
        offsets = await session.commit([text(Topic.CONTROL, "k", str(number)) for number in range(6)])
        await bus.give_back({CONTROL: offsets[3]}, NOTE)
        moved = Archived(log_id="e-1", directory="/elsewhere", next_offset=3)
        await bus.give_back({CONTROL: offsets[2]}, moved)
        assert await bus.begin_offset(CONTROL) == offsets[3]
        assert texts(await until_end(bus, CONTROL)) == ["3", "4", "5"]
        assert await (await log.connect()).archived() == moved

    async def test_what_was_never_appended_cannot_be_given_back(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        await bus.append([text(Topic.CONTROL, "k", "v")])
        end = await bus.end_offset(CONTROL)
        with pytest.raises(BusError, match=f"precedes offset {end + 1}; expected 0 to its end, {end}"):
            await bus.give_back({CONTROL: end + 1}, NOTE)
        assert texts(await until_end(bus, CONTROL)) == ["v"]
        assert await bus.archived() is None

    async def test_cells_give_back_each_their_own(self, log: LogUnderTest) -> None:
        lab, field = await log.connect("lab"), await log.connect("field")
        for bus in (lab, field):
            await bus.append([text(Topic.CONTROL, "k", f"{bus.cell}{number}") for number in range(2)])
        await lab.give_back({CONTROL: await lab.end_offset(CONTROL)}, NOTE)
        assert await field.begin_offset(CONTROL) == 0
        assert await field.archived() is None
        assert len(await until_end(field, CONTROL)) == 2
