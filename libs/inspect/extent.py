"""What a bus has now: where its partitions end, and how far the services are."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from libs.bus.naming import CONTROL
from libs.bus.port import Bus, Partition, TellsPositions
from libs.contracts.base import Topic

_WITHOUT_GAPS = ("sqlite", "memory")
"""Kinds of bus without gaps between offsets."""


class Extent(msgspec.Struct, frozen=True, kw_only=True):
    """How far a log reaches at a moment."""

    ends: dict[Partition, int]
    """{partition: its end}, in the order of the topics that were asked for."""
    positions: dict[str, int] | None
    """{service: offset of the first control record that it has not handled}, without the services of which the bus
    knows no position; None: this bus tells none, or none was asked for."""


async def survey(bus: Bus, sessions: Sequence[str], topics: Sequence[Topic]) -> Extent:
    """Where each partition ends now, and how far the services are.

    Positions are asked first and control's end last: so what a service has handled is certainly before the ends, and
    the cause of every order is.

    Raises:
        BusError: a topic does not exist.
        BusUnavailable: the log cannot be reached.
    """
    positions: dict[str, int] | None = None
    if isinstance(bus, TellsPositions) and sessions:
        committed = {name: (await bus.committed(name, CONTROL)).next_offset for name in sessions}
        # 0 is a bus's word for a position that it has never had, or has forgotten
        positions = {name: offset for name, offset in committed.items() if offset > 0}
    ends: dict[Partition, int] = {}
    for topic in sorted(topics, key=lambda topic: topic is Topic.CONTROL):
        for partition in await bus.partitions(topic):
            ends[partition] = await bus.end_offset(partition)
    in_order = sorted(ends, key=lambda partition: (topics.index(partition.topic), partition.index))
    return Extent(ends={partition: ends[partition] for partition in in_order}, positions=positions)


def has_no_gaps(url: str) -> bool:
    """Whether the offsets of this bus follow each other."""
    return url.split(":", 1)[0] in _WITHOUT_GAPS
