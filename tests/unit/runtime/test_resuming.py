"""Where a reader without a position starts, what a lost offset costs, and a position that is forgotten in doubt."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.bus import codec
from libs.bus.embedded import EmbeddedBus, keeper
from libs.bus.memory import MemoryBus
from libs.bus.partitioner import partition_index
from libs.bus.port import Bus, BusError, Outgoing, Partition, Position, TopicLayout
from libs.contracts.base import Topic
from libs.contracts.envelope import Envelope
from libs.kernel.ids import request_id
from libs.runtime.clock import SteadyClock
from libs.runtime.committer import Committer
from libs.runtime.patience import Patience
from libs.runtime.resuming import REACH_S, recent, resumed
from libs.runtime.tail import Tail
from libs.testing.faults import Faults, FaultyBus, unknown
from libs.testing.forgetful import ForgetfulBus
from libs.testing.introspection import minibatches

LAYOUT = TopicLayout({Topic.CONTROL: 1, Topic.ORDERS: 1, Topic.TELEMETRY: 2, Topic.PROFILES: 2})


async def telemetry(*times_s: float) -> tuple[ForgetfulBus, Partition]:
    """A log of one job's records, which were appended at these times."""
    bus = ForgetfulBus(MemoryBus("t"))
    await bus.create_topics(LAYOUT)
    for number, time_s in enumerate(times_s):
        envelope = Envelope(
            id=request_id("test", str(number)), source="test", time_s=time_s, event=minibatches("j", 5 * number + 5)
        )
        await bus.append([codec.outgoing(envelope)])
    ends = {partition: await bus.end_offset(partition) for partition in await bus.partitions(Topic.TELEMETRY)}
    return bus, max(ends, key=lambda partition: ends[partition])


@given(st.lists(st.integers(0, 500), max_size=40).map(sorted))
def test_recent_is_the_first_message_within_reach_of_the_last(times_s: list[int]):
    async def found() -> int:
        bus, partition = await telemetry(*map(float, times_s))
        return await recent(bus, partition, 60.0)

    expected = next((place for place, time_s in enumerate(times_s) if time_s >= times_s[-1] - 60), 0)
    assert asyncio.run(found()) == expected


async def test_a_position_is_taken_as_it_is_and_a_missing_one_is_not_the_beginning():
    bus, partition = await telemetry(*(float(second) for second in range(1000)))
    patience = Patience(asyncio.Event())
    assert await resumed(bus, {partition: Position(7)}, patience) == {partition: 7}
    assert await resumed(bus, {partition: Position(0, "3")}, patience) == {partition: 0}
    assert await resumed(bus, {partition: Position(0)}, patience) == {partition: 999 - REACH_S}


async def test_nothing_to_read_is_no_trouble():
    bus, partition = await telemetry()
    assert await resumed(bus, {partition: Position(0)}, Patience(asyncio.Event())) == {partition: 0}


def keys_of_both_partitions() -> tuple[str, str]:
    """A key with records that come to each partition."""
    keys = {partition_index(str(number), 2): str(number) for number in range(50)}
    return keys[0], keys[1]


async def test_messages_that_are_gone_in_one_partition_start_no_other_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(keeper, "TRIM_MESSAGES", 10)
    bus = await EmbeddedBus.connect(f"sqlite:///{tmp_path}/log.db?keep_messages=25", "t")
    await bus.create_topics(LAYOUT)
    busy, quiet = keys_of_both_partitions()
    partitions = {Partition(Topic.PROFILES, 0): 5, Partition(Topic.PROFILES, 1): 2}

    async def append(key: str, *values: str) -> None:
        await bus.append([Outgoing(Topic.PROFILES, key, [], value.encode()) for value in values])
        await bus._keeping.run(lambda _: None)

    for first in range(0, 100, 10):
        await append(busy, *(str(number) for number in range(first, first + 10)))
    await append(quiet, "a", "b", "c", "d")
    tail = Tail(bus, partitions, 100, SteadyClock(), asyncio.Event())
    read: list[str] = []
    while len(read) < 27:
        read += [message.value.decode() for message in await tail.next() or []]
    await tail.close()
    await bus.close()
    assert sorted(read, key=str) == sorted([*map(str, range(75, 100)), "c", "d"], key=str)
    assert tail.interruptions == 1


async def test_a_commit_in_doubt_with_a_forgotten_position_is_left_to_a_new_start():
    """It may have happened, and the position that says so be forgotten: to repeat it could double a fact."""
    faults = Faults()
    forgetful = ForgetfulBus(MemoryBus("t"))
    bus: Bus = FaultyBus(forgetful, faults)
    await bus.create_topics(LAYOUT)
    control = Partition(Topic.CONTROL, 0)
    committer = await Committer.open(bus, "s", [control], asyncio.Event())
    await committer.commit([Outgoing(Topic.CONTROL, "k", [], b"1")], {control: Position(1)})
    faults.fail("commit.done", unknown())
    committing = asyncio.create_task(committer.commit([Outgoing(Topic.CONTROL, "k", [], b"2")], {control: Position(2)}))
    while "commit.done" not in faults.moments[4:]:
        await asyncio.sleep(0)
    forgetful.forget()
    with pytest.raises(BusError, match=r"has forgotten its position, which was .*next_offset=1"):
        await committing
    assert await bus.end_offset(control) == 2
    await committer.close()
