"""Messages: their order, their place, and that they come back as they were given."""

from __future__ import annotations

import asyncio
import re
import time

import pytest

from libs.bus.partitioner import partition_index
from libs.bus.port import BusError, BusUnavailable, Outgoing, Partition, TopicLayout
from libs.contracts.base import Topic
from libs.testing.bus_contract.log import CONTROL, LogUnderTest, everything, text, texts, until_end


class MessageContract:
    """What is appended is what is read."""

    async def test_messages_keep_their_order_and_their_offsets_grow(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        session = await bus.open_session("one")
        written = [str(number) for number in range(30)]
        offsets: list[int] = []
        for first in range(0, 30, 10):
            outputs = [text(Topic.CONTROL, f"k{value}", value) for value in written[first : first + 10]]
            offsets += await session.commit(outputs)
        found = await until_end(bus, CONTROL)
        assert texts(found) == written
        assert [message.offset for message in found] == offsets
        assert offsets == sorted(set(offsets))
        assert await bus.end_offset(CONTROL) == offsets[-1] + 1

    @pytest.mark.parametrize("off_by_s", [86_400.0, -3600.0, 2.3e9])
    async def test_a_writer_whose_clock_is_wrong_does_not_date_its_messages(
        self, log: LogUnderTest, monkeypatch: pytest.MonkeyPatch, off_by_s: float
    ) -> None:
        bus = await log.connect()
        await bus.append([text(Topic.CONTROL, "k", "right")])
        right, began = time.time, time.monotonic()
        monkeypatch.setattr(time, "time", lambda: right() + off_by_s)
        wrong = await log.connect()
        await wrong.append([text(Topic.CONTROL, "k", "wrong")])
        await (await wrong.open_session("one")).commit([text(Topic.CONTROL, "k", "wrong, too")])
        first, *others = [message.appended_at_s for message in await until_end(bus, CONTROL)]
        assert abs(first - right()) < 60.0
        assert all(0.0 <= at_s - first <= time.monotonic() - began + 0.5 for at_s in others), others

    async def test_a_key_decides_the_partition_as_kafkas_clients_do(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        keys = [f"job-{number}" for number in range(40)] + ["", "Büro", "\N{SAUROPOD}", "a\0b"]
        for round_number in range(2):
            await bus.append([text(Topic.TELEMETRY, key, str(round_number)) for key in keys])
        found = await everything(bus, Topic.TELEMETRY)
        assert {m.partition for m in found} == {Partition(Topic.TELEMETRY, index) for index in range(3)}
        assert all(m.partition.index == partition_index(m.key, 3) for m in found)
        for key in keys:
            assert texts(m for m in found if m.key == key) == ["0", "1"]

    async def test_headers_keys_and_values_come_back_byte_for_byte(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        session = await bus.open_session("one")
        headers = [("b", b"\x00\xff"), ("a", b""), ("b", b"again"), ("größe", "ü".encode())]
        written = [
            Outgoing(Topic.CONTROL, "schlüssel-\N{SAUROPOD}", headers, bytes(range(256))),
            Outgoing(Topic.CONTROL, "", [], b""),
        ]
        before_s = time.time()
        await session.commit(written)
        found = await until_end(bus, CONTROL)
        assert [Outgoing(m.partition.topic, m.key, list(m.headers), m.value) for m in found] == written
        assert all(before_s - 5 < m.appended_at_s < time.time() + 5 for m in found)

    async def test_cells_on_one_log_share_nothing(self, log: LogUnderTest) -> None:
        lab, field = await log.connect("lab"), await log.connect("field")
        in_lab, in_field = await lab.open_session("same"), await field.open_session("same")
        await in_lab.commit([text(Topic.CONTROL, "k", "lab")])
        await in_field.commit([text(Topic.CONTROL, "k", "field")])
        assert texts(await until_end(lab, CONTROL)) == ["lab"]
        assert texts(await until_end(field, CONTROL)) == ["field"]

    async def test_topics_that_exist_are_left_as_they_are(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        await bus.append([text(Topic.ORDERS, "n1", "kept")])
        await bus.create_topics(TopicLayout({Topic.ORDERS: 7}))
        assert await bus.partitions(Topic.ORDERS) == [Partition(Topic.ORDERS, 0), Partition(Topic.ORDERS, 1)]
        assert texts(await everything(bus, Topic.ORDERS)) == ["kept"]

    async def test_many_processes_may_create_the_topics_at_once(self, log: LogUnderTest) -> None:
        buses = await asyncio.gather(*(log.connect() for _ in range(4)))
        assert [await bus.partitions(Topic.CONTROL) for bus in buses] == [[CONTROL]] * 4

    async def test_without_topics_nothing_can_be_done_and_it_is_said(self, log: LogUnderTest) -> None:
        bus = await log.connect_bare("empty")
        for attempt in (
            bus.partitions(Topic.CONTROL),
            bus.append([text(Topic.CONTROL, "k", "v")]),
            bus.reader({CONTROL: 0}),
        ):
            with pytest.raises(BusError, match=r"control.*does not exist") as raised:
                await attempt
            assert not isinstance(raised.value, BusUnavailable)

    async def test_a_cell_that_is_there_is_named_when_another_is_asked_for(self, log: LogUnderTest) -> None:
        here, empty = await log.connect(), await log.connect_bare("empty")
        with pytest.raises(BusError, match=rf"control does not exist; .*\b{re.escape(here.cell)}\b.*  try: --cell "):
            await empty.partitions(Topic.CONTROL)

    async def test_nothing_is_lost_when_many_append_at_once(self, log: LogUnderTest) -> None:
        buses = [await log.connect() for _ in range(4)]

        async def append(writer: int) -> None:
            for number in range(25):
                await buses[writer].append([text(Topic.LOGS, f"job-{writer}", f"{writer}/{number}")])

        await asyncio.gather(*(append(writer) for writer in range(4)))
        found = texts(await everything(buses[0], Topic.LOGS))
        assert sorted(found) == sorted(f"{writer}/{number}" for writer in range(4) for number in range(25))
        for writer in range(4):
            own = [value for value in found if value.startswith(f"{writer}/")]
            assert own == [f"{writer}/{number}" for number in range(25)]
