"""The small cell's log on a bus, its services' positions with it, and what readers make of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from libs.bus.connect import connect
from libs.bus.naming import CONTROL
from libs.bus.port import Bus, Outgoing, Partition, Position, TopicLayout
from libs.contracts.base import Topic
from libs.inspect.sources import open_log
from libs.inspect.story import story
from libs.inspect.verify import Verification, verify
from services.roster import NAMES, SERVICES
from tests.unit.inspect.small_cell import header, messages


async def fill(bus: Bus) -> None:
    """Write the log, and commit what its services and agents have handled: all of it."""
    await bus.create_topics(TopicLayout())
    sent = messages()
    await bus.append([Outgoing(topic=m.partition.topic, key=m.key, headers=m.headers, value=m.value) for m in sent])
    positions = header().positions
    assert positions is not None
    for name in NAMES:
        await commit(bus, name, {CONTROL: Position(positions[name])})
    readers = {m.key: m.partition for m in sent if m.partition.topic is Topic.ORDERS}
    for node_id, partition in readers.items():
        await commit(bus, f"agent/{node_id}", {partition: Position(await bus.end_offset(partition))})


async def commit(bus: Bus, name: str, positions: Mapping[Partition, Position]) -> None:
    """Move the positions of a session."""
    session = await bus.open_session(name)
    await session.commit([], positions)
    await session.close()


async def filled(url: str, cell: str = "lab") -> Bus:
    """A bus with the log."""
    bus = await connect(url, cell)
    await fill(bus)
    return bus


def verified(source: str, archive: Path | None = None, cell: str = "lab") -> Verification:
    """What the audit says to a log."""
    with open_log(source, cell=cell, sessions=NAMES, archive=archive) as log:
        return verify(log, SERVICES)


def told(source: str, subject: str, cell: str = "lab") -> list[str]:
    """The story of a job or a node."""
    with open_log(source, cell=cell) as log:
        return story(log.records(), subject).lines()
