"""Large records, and records that a consumer cannot take."""

from __future__ import annotations

import pytest

from libs.bus import codec
from libs.bus.partitioner import partition_index
from libs.bus.port import MAX_MESSAGE_BYTES, Bus, MessageTooLarge, Outgoing, Partition, Position
from libs.contracts.agent import JobLogged, LogLine
from libs.contracts.base import Topic
from libs.contracts.envelope import Envelope
from libs.contracts.wire import Undecodable
from libs.kernel.ids import request_id
from libs.runtime.deadletter import dead_letter, letter
from libs.testing.bus_contract.log import CONTROL, LogUnderTest, everything, take, text, until_end
from libs.testing.core_case import arrival
from libs.testing.faults import Faults, FaultyBus
from libs.testing.shells import ShellCase
from libs.testing.toy import TOY

FIVE_MIB = 5 * 1024 * 1024


class LimitContract:
    """Nothing of what is accepted is lost, and what is refused leaves no trace."""

    async def test_large_records_come_back_whole(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        session = await bus.open_session("one")
        values = [bytes([number]) * FIVE_MIB for number in range(3)]
        for value in values[:2]:
            await session.commit([Outgoing(Topic.CONTROL, "k", [], value)])
        await bus.append([Outgoing(Topic.CONTROL, "k", [], values[2])])
        assert [m.value for m in await take(bus, {CONTROL: 0}, 3)] == values

    async def test_the_largest_record_is_accepted_and_one_byte_more_is_not(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        session = await bus.open_session("one")
        largest = Outgoing(Topic.CONTROL, "k", [("h", b"x" * 500)], b"x" * MAX_MESSAGE_BYTES)
        too_large = Outgoing(Topic.CONTROL, "k", [], b"x" * (MAX_MESSAGE_BYTES + 1))
        fine = text(Topic.CONTROL, "k", "fine")
        with pytest.raises(MessageTooLarge, match=f"{MAX_MESSAGE_BYTES + 1} bytes.* {MAX_MESSAGE_BYTES} "):
            await session.commit([fine, too_large], {CONTROL: Position(5)})
        with pytest.raises(MessageTooLarge):
            await bus.append([fine, too_large])
        assert await bus.end_offset(CONTROL) == 0
        assert await session.position(CONTROL) == Position(0)
        await session.commit([largest, fine])
        sizes = [len(message.value) for message in await until_end(bus, CONTROL)]
        assert sizes == [MAX_MESSAGE_BYTES, len(fine.value)]

    async def test_a_poison_record_goes_to_the_dead_letters_and_the_rest_goes_on(self, log: LogUnderTest) -> None:
        bus = await log.connect()
        poison = Outgoing(Topic.LOGS, "job-a", [("ce_type", b"job.logged.v1"), ("x", b"1")], b"{not json")
        await bus.append([_line("one"), poison, _line("two")])
        partition = Partition(Topic.LOGS, partition_index("job-a", 2))
        assert await _consume_logs(bus, partition, 3) == ["one", "two"]
        (letter,) = await everything(bus, Topic.DEADLETTER)
        headers = dict(letter.headers)
        assert (letter.key, letter.value) == (poison.key, poison.value)
        assert headers["ce_type"] == b"job.logged.v1"
        assert headers["x"] == b"1"
        assert headers["x-service"] == b"introspection"
        assert headers["x-topic"] == b"logs"
        assert headers["x-partition"] == str(partition.index).encode()
        assert headers["x-offset"] == str((await until_end(bus, partition))[1].offset).encode()
        assert b"ce_time" in headers["x-error"]

    async def test_an_impossible_input_is_put_aside_once_and_the_rest_goes_on(self, log: LogUnderTest) -> None:
        """By the shell of a core, in one commit with its position; a later life folds it and puts nothing aside."""
        case = ShellCase(TOY, FaultyBus(await log.connect(), Faults()))
        await case.give(arrival("a"), arrival("a"))
        for name in "bc":
            await case.give(arrival(name))
            await case.run_to_end()
        (twice,) = [letter(message) for message in await everything(case.bus, Topic.DEADLETTER)]
        assert (twice.service, twice.subject, twice.job_id) == (TOY.name, "a", "a")
        assert "has arrived" in twice.error
        assert list(case.shell.replica.state.due_s) == ["a", "b", "c"]


async def _consume_logs(bus: Bus, partition: Partition, count: int) -> list[str]:
    """A consumer of job logs as they all are: what it cannot read is put aside, in one commit with its position."""
    session = await bus.open_session("introspection")
    consumed: list[str] = []
    for message in await take(bus, {partition: (await session.position(partition)).next_offset}, count):
        aside: list[Outgoing] = []
        try:
            event = codec.record(message).envelope.event
            assert isinstance(event, JobLogged)
            consumed += [line.text for line in event.lines]
        except Undecodable as error:
            aside.append(dead_letter(message, "introspection", error))
        await session.commit(aside, {partition: Position(message.offset + 1)})
    return consumed


def _line(line: str) -> Outgoing:
    event = JobLogged(
        job_id="job-a", attempt=1, node_id="n1", lines=[LogLine(time_s=1.0, rank=0, stream="stdout", text=line)]
    )
    return codec.outgoing(Envelope(id=request_id("test", line), source="agent/n1", time_s=1.0, event=event))
