"""Sessions: outputs and positions together, by one holder at a time."""

from __future__ import annotations

import asyncio

import pytest

from libs.bus.port import MAX_METADATA_BYTES, BusError, Fenced, Partition, Position
from libs.contracts.base import Topic
from libs.testing.bus_contract.log import CONTROL, LogUnderTest, everything, text, texts, until_end

ORDERS_1 = Partition(Topic.ORDERS, 1)


class SessionContract:
    """What a session commits is there, whole, and only its holder commits."""

    async def test_positions_belong_to_a_session_and_a_partition(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        one, two = await bus.open_session("one"), await bus.open_session("agent/zwei")
        assert await one.position(CONTROL) == Position(0)
        await one.commit([], {CONTROL: Position(7, "note \N{SAUROPOD}"), ORDERS_1: Position(3)})
        await two.commit([], {CONTROL: Position(9)})
        assert await one.position(CONTROL) == Position(7, "note \N{SAUROPOD}")
        assert await one.position(ORDERS_1) == Position(3)
        assert await one.position(Partition(Topic.ORDERS, 0)) == Position(0)
        assert await two.position(CONTROL) == Position(9)

    async def test_positions_and_metadata_outlive_their_holder(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        session = await bus.open_session("one")
        await session.commit([], {CONTROL: Position(5, "x" * MAX_METADATA_BYTES)})
        await session.close()
        await bus.close()
        again = await (await log.connect()).open_session("one")
        assert await again.position(CONTROL) == Position(5, "x" * MAX_METADATA_BYTES)

    async def test_outputs_of_one_commit_may_go_to_several_topics(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        session = await bus.open_session("one")
        outputs = [text(Topic.CONTROL, "a", "1"), text(Topic.ORDERS, "n1", "2"), text(Topic.CONTROL, "b", "3")]
        offsets = await session.commit(outputs, {CONTROL: Position(1)})
        (order,) = await everything(bus, Topic.ORDERS)
        decisions = await until_end(bus, CONTROL)
        assert offsets == [decisions[0].offset, order.offset, decisions[1].offset]
        assert texts(decisions) == ["1", "3"]

    async def test_an_empty_commit_is_nothing(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        session = await bus.open_session("one")
        assert await session.commit([]) == []
        assert await bus.end_offset(CONTROL) == 0

    async def test_a_position_may_go_back(self, log: LogUnderTest) -> None:
        """To read a log anew is a session's own business."""
        session = await (await log.connect()).open_session("one")
        await session.commit([], {CONTROL: Position(5, "there")})
        await session.commit([], {CONTROL: Position(2, "back")})
        assert await session.position(CONTROL) == Position(2, "back")

    async def test_a_position_that_cannot_be_kept_spoils_the_whole_commit(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        session = await bus.open_session("one")
        for position in (Position(1, "x" * (MAX_METADATA_BYTES + 1)), Position(-1), Position(2**63)):
            with pytest.raises(BusError, match="position in control/0"):
                await session.commit([text(Topic.CONTROL, "k", "v")], {CONTROL: position})
        assert await bus.end_offset(CONTROL) == 0
        assert await session.position(CONTROL) == Position(0)
        await session.commit([text(Topic.CONTROL, "k", "after")], {CONTROL: Position(1)})
        assert texts(await until_end(bus, CONTROL)) == ["after"]

    async def test_a_session_that_takes_over_fences_the_older_holder(self, log: LogUnderTest) -> None:
        first, second = await log.connect(), await log.connect()
        old = await first.open_session("one")
        other = await first.open_session("two")
        await old.commit([text(Topic.CONTROL, "k", "old")], {CONTROL: Position(1)})
        new = await second.open_session("one")
        for _ in range(2):
            with pytest.raises(Fenced, match="one"):
                await old.commit([text(Topic.CONTROL, "k", "zombie")], {CONTROL: Position(99)})
        assert await new.position(CONTROL) == Position(1)
        await new.commit([text(Topic.CONTROL, "k", "new")], {CONTROL: Position(2)})
        await other.commit([text(Topic.CONTROL, "k", "other")])
        assert texts(await until_end(second, CONTROL)) == ["old", "new", "other"]

    async def test_only_one_of_several_that_take_over_at_once_can_write(self, log: LogUnderTest) -> None:
        buses = [await log.connect() for _ in range(3)]
        sessions = await asyncio.gather(*(bus.open_session("one") for bus in buses))
        outcomes: list[str] = []
        for number, session in enumerate(sessions):
            try:
                await session.commit([text(Topic.CONTROL, "k", str(number))])
                outcomes.append("written")
            except Fenced:
                outcomes.append("fenced")
        assert sorted(outcomes) == ["fenced", "fenced", "written"]
        assert texts(await until_end(buses[0], CONTROL)) == [str(outcomes.index("written"))]

    async def test_a_closed_session_writes_no_more_and_can_be_opened_again(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        session = await bus.open_session("one")
        await session.close()
        await session.close()
        with pytest.raises(BusError):
            await session.commit([text(Topic.CONTROL, "k", "late")])
        again = await bus.open_session("one")
        await again.commit([text(Topic.CONTROL, "k", "again")])
        assert texts(await until_end(bus, CONTROL)) == ["again"]

    async def test_nothing_is_lost_when_many_sessions_commit_at_once(self, log: LogUnderTest) -> None:
        buses = [await log.connect() for _ in range(3)]

        async def work(number: int) -> None:
            session = await buses[number].open_session(f"s{number}")
            for count in range(20):
                outputs = [text(Topic.CONTROL, "k", f"{number}/{count}/{part}") for part in "ab"]
                await session.commit(outputs, {CONTROL: Position(count + 1)})
            assert await session.position(CONTROL) == Position(20)

        await asyncio.gather(*(work(number) for number in range(3)))
        found = texts(await until_end(buses[0], CONTROL))
        for number in range(3):
            own = [value for value in found if value.startswith(f"{number}/")]
            assert own == [f"{number}/{count}/{part}" for count in range(20) for part in "ab"]

    async def test_others_see_all_of_a_commit_or_nothing(self, log: LogUnderTest) -> None:
        bus, onlooker = await log.connect(), await log.connect()
        session = await bus.open_session("one")
        whole, seen, done = {0}, set[int](), asyncio.Event()

        async def look() -> None:
            while not done.is_set():
                seen.add(await onlooker.end_offset(CONTROL))
                await asyncio.sleep(0)

        looking = asyncio.create_task(look())
        for _ in range(30):
            offsets = await session.commit([text(Topic.CONTROL, "k", "v") for _ in range(20)])
            whole.add(offsets[-1] + 1)
        done.set()
        await looking
        assert seen <= whole
