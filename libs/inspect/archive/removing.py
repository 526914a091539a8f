"""Removes from a log what is safely in an archive, and only when nothing needs it there any more.

every service can start without it ─> read the archive again ─> compare with the log ─> note ─> remove
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass

from libs.bus.naming import CONTROL
from libs.bus.port import Archived, Bus, Message, Partition, TellsPositions
from libs.contracts.agent import source_of
from libs.contracts.bad_input import BadInput
from libs.contracts.base import Topic
from libs.inspect.archive.reading import Archive
from libs.inspect.archive.writing import kept_messages
from libs.inspect.logs import place


class NotGivenBack(Exception):
    """A part of the product could not start without the records; nothing was removed. The message says which."""


@dataclass(frozen=True)
class GivenBack:
    """What was removed from the log."""

    befores: Mapping[Partition, int]
    """{partition: offset of the first record that is kept}."""
    waiting: Mapping[Partition, str]
    """{partition: node that has not read its orders yet}: these orders stay on the log until it has."""


async def give_back(bus: Bus, archive: Archive, before: int, starts: Mapping[str, int]) -> GivenBack:
    """Remove the archived records before an offset of control, and their orders.

    Args:
        bus: the cell's log.
        archive: of this log.
        before: offset on control.
        starts: {what reads control: offset from which on it needs control for its next start}.

    Raises:
        NotGivenBack: one of `starts` lies before the offset.
        BadInput: the archive was altered, or does not have what the log has; nothing was removed.
        BusError: the log cannot do it.
    """
    begin = await bus.begin_offset(CONTROL)
    before = max(begin, min(before, archive.next_offset(CONTROL)))
    _check_starts(before, starts)
    befores, waiting = {CONTROL: before}, dict[Partition, str]()
    for partition in await bus.partitions(Topic.ORDERS):
        unread = await _first_unread(bus, archive, partition)
        befores[partition] = unread.offset if unread is not None else archive.next_offset(partition)
        if unread is not None:
            waiting[partition] = unread.key
    archive.check()
    for partition, offset in befores.items():
        await _compare(bus, archive, partition, offset)
    note = Archived(log_id=archive.manifest.log_id, directory=str(archive.directory.absolute()), next_offset=before)
    await bus.give_back(befores, note)
    return GivenBack(befores, waiting)


def _check_starts(before: int, starts: Mapping[str, int]) -> None:
    early = {name: offset for name, offset in starts.items() if offset < before}
    if not early:
        return
    saved = [f"{name} is saved at offset {at}" if at else f"{name} is saved nowhere" for name, at in early.items()]
    possible = min(early.values())
    limit = f"; what precedes offset {possible} could go" if possible else ""
    raise NotGivenBack(f"the records before offset {before} are still needed for a start: {', '.join(saved)}{limit}")


async def _first_unread(bus: Bus, archive: Archive, partition: Partition) -> Message | None:
    """The first archived order that is still on the log and that its node's agent has not read yet."""
    read: dict[str, int] = {}
    for message in archive.messages(partition, await bus.begin_offset(partition)):
        if message.key not in read:
            read[message.key] = await _read_by(bus, message.key, partition)
        if message.offset >= read[message.key]:
            return message
    return None


async def _read_by(bus: Bus, node_id: str, partition: Partition) -> int:
    if not isinstance(bus, TellsPositions):
        return 0
    return (await bus.committed(source_of(node_id), partition)).next_offset


async def _compare(bus: Bus, archive: Archive, partition: Partition, before: int) -> None:
    """Every record that is to be removed is in the archive as it is on the log."""
    begin = await bus.begin_offset(partition)
    archived = archive.messages(partition, begin)
    async with aclosing(kept_messages(bus, partition, begin, before)) as kept:
        async for message in kept:
            found = next(archived, None)
            if found != message:
                what = f"has {place(found)}" if found is not None else "ends"
                if found is not None and found.offset == message.offset:
                    what = f"has another record at {place(found)}"
                where = f"{archive.directory}: {partition.topic}/{partition.index}"
                raise BadInput(where, what, f"the record {place(message)} as it is on the log")
