"""The name of a log, and the names of its cells."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

from libs.bus.batches import first_from
from libs.bus.codec import message_id
from libs.bus.port import Bus, BusError, Partition
from libs.contracts.base import Topic

CONTROL = Partition(Topic.CONTROL, 0)
MOST_CELLS = 8
"""So many cells of a log are named at most in a message, those first that are written most alike."""


async def log_id(bus: Bus) -> str:
    """Id of the log's first event, also after that was archived: names the log itself. Empty while the log is.

    Raises:
        BusUnavailable: the log cannot be reached.
    """
    archived = await bus.archived()
    if archived is not None:
        return archived.log_id
    if await bus.end_offset(CONTROL) == 0:
        return ""
    first = await first_from(bus, CONTROL, 0)
    return "" if first is None else message_id(first)


def no_topic(cell: str, topic: Topic, cells: Iterable[str]) -> BusError:
    """What is said when a cell has no such topic.

    Args:
        cells: all that have topics on this log: the name may be another cell's.
    """
    missing = f"topic {cell}.{topic} does not exist"
    others = sorted({*cells} - {cell}, key=lambda other: (-SequenceMatcher(None, other, cell).ratio(), other))
    if not others:
        return BusError(f"{missing}; create the cell's topics first")
    named = ", ".join(others[:MOST_CELLS]) + (", …" if len(others) > MOST_CELLS else "")
    there = f"the log has {'the cell' if len(others) == 1 else 'the cells'} {named}"
    hint = f"--cell {others[0] if len(others) == 1 else 'NAME'}"
    return BusError(f"{missing}; expected that it is created first, or another cell: {there}  try: {hint}")
