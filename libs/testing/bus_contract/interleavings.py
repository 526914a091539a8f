"""Any interleaving of what several processes do to a log, compared with a model in a few lines."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from libs.bus.partitioner import partition_index
from libs.bus.port import Bus, Fenced, Outgoing, Partition, Position, Session
from libs.contracts.base import Topic
from libs.testing.bus_contract.log import LAYOUT, LogUnderTest, texts, until_end
from libs.testing.effort import searching

NAMES = ("one", "two")
TOPICS = (Topic.CONTROL, Topic.ORDERS)
KEYS = ("n1", "n2", "n3", "\N{SAUROPOD}")
PARTITIONS = [Partition(topic, index) for topic in TOPICS for index in range(LAYOUT.partitions[topic])]


@dataclass(frozen=True)
class TakeOver:
    """A process opens a session, and stays."""

    name: str


@dataclass(frozen=True)
class Commit:
    """A process commits; `holder` 0 is the newest one of the session, 1 the one before."""

    name: str
    holder: int
    outputs: tuple[tuple[Topic, str], ...]
    positions: tuple[tuple[Partition, int], ...]


@dataclass(frozen=True)
class Append:
    """An append without a session."""

    outputs: tuple[tuple[Topic, str], ...]


@dataclass(frozen=True)
class Read:
    """A read of everything."""


def _pairs(positions: dict[Partition, int]) -> tuple[tuple[Partition, int], ...]:
    return tuple(positions.items())


_outputs = st.lists(st.tuples(st.sampled_from(TOPICS), st.sampled_from(KEYS)), max_size=4).map(tuple)
_positions = st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 50), max_size=3).map(
    lambda d: tuple(d.items())
)
STEPS = st.lists(
    st.one_of(
        st.builds(TakeOver, st.sampled_from(NAMES)),
        st.builds(Commit, st.sampled_from(NAMES), st.sampled_from((0, 0, 0, 1)), _outputs, _positions),
        st.builds(Append, _outputs),
        st.builds(Read),
    ),
    max_size=25,
)
ANYWHERE = [
    HealthCheck.function_scoped_fixture,  # every example has a cell of its own
    HealthCheck.differing_executors,
    HealthCheck.too_slow,
]
_cells = itertools.count(1)


Step = TakeOver | Commit | Append | Read


class InterleavingContract:
    """Whatever several processes do in whatever order, the log is what it would be had they taken turns."""

    @settings(searching(by_default=15, thorough=150), suppress_health_check=ANYWHERE)
    @given(steps=STEPS)
    async def test_any_interleaving_is_as_the_model_has_it(self, log: LogUnderTest, steps: list[Step]) -> None:
        await follow(log, steps)


async def follow(log: LogUnderTest, steps: list[Step]) -> None:
    """Do the steps on the log and on the model, in a new cell, and compare."""
    cell = f"cell-{next(_cells)}"
    buses = [await log.connect(cell) for _ in range(3)]
    run = _Run(buses)
    for step in steps:
        await run.do(step)
    await run.compare()
    for bus in buses:
        await bus.close()


class _Run:
    def __init__(self, buses: list[Bus]) -> None:
        self.buses = buses
        self.messages: dict[Partition, list[str]] = {partition: [] for partition in PARTITIONS}
        self.offsets: dict[Partition, list[int]] = {partition: [] for partition in PARTITIONS}
        self.positions: dict[str, dict[Partition, Position]] = {name: {} for name in NAMES}
        self.holders: dict[str, list[Session]] = {name: [] for name in NAMES}
        self.texts = (str(number) for number in itertools.count())

    async def do(self, step: Step) -> None:
        if isinstance(step, TakeOver):
            bus = self.buses[len(self.holders[step.name]) % 2]
            self.holders[step.name].append(await bus.open_session(step.name))
        elif isinstance(step, Commit):
            await self.commit(step)
        elif isinstance(step, Append):
            outputs = self.outgoing(step.outputs)
            await self.buses[2].append(outputs)
            self.added(outputs)
        else:
            await self.read()

    async def commit(self, step: Commit) -> None:
        if len(self.holders[step.name]) <= step.holder:
            return
        session = self.holders[step.name][-1 - step.holder]
        outputs = self.outgoing(step.outputs)
        positions = {partition: Position(offset, f"m{offset}") for partition, offset in step.positions}
        if step.holder:
            if outputs or positions:
                with pytest.raises(Fenced):
                    await session.commit(outputs, positions)
            return
        offsets = await session.commit(outputs, positions)
        for output, offset in zip(outputs, offsets, strict=True):
            self.offsets[place(output)].append(offset)
        self.added(outputs)
        self.positions[step.name].update(positions)
        for partition in PARTITIONS:
            assert await session.position(partition) == self.positions[step.name].get(partition, Position(0))

    async def read(self) -> None:
        for partition in PARTITIONS:
            found = texts(await until_end(self.buses[2], partition))
            assert found == self.messages[partition]

    async def compare(self) -> None:
        await self.read()
        for partition in PARTITIONS:
            offsets = [message.offset for message in await until_end(self.buses[0], partition)]
            assert offsets == sorted(set(offsets))
            assert set(self.offsets[partition]) <= set(offsets)

    def outgoing(self, outputs: tuple[tuple[Topic, str], ...]) -> list[Outgoing]:
        return [Outgoing(topic, key, [], next(self.texts).encode()) for topic, key in outputs]

    def added(self, outputs: list[Outgoing]) -> None:
        for output in outputs:
            self.messages[place(output)].append(output.value.decode())


def place(output: Outgoing) -> Partition:
    """Where a message belongs."""
    return Partition(output.topic, partition_index(output.key, LAYOUT.partitions[output.topic]))
