"""Whether the processes of a task have done what they were asked to do, and what they can do, from their pages."""

from __future__ import annotations

from pathlib import Path

import msgspec

from libs.node.seen import Seen, Stillness
from torch_agent.clock import from_machine
from torch_agent.harness.control import current_turn
from torch_agent.harness.injection import BEGINS
from torch_agent.harness.page import PageReading
from torch_agent.harness.versions import Unreadable
from torch_agent.once import warn_once
from torch_agent.pages import Living


def with_acknowledgements(seen: Seen, folder: Path, living: Living) -> Seen:
    """What was seen, and how far the task's living processes are with the turn in force.

    Processes that cannot be told anything count as processes without the harness. One that a busy machine keeps from
    going on in the middle of its writing does not: it has not done yet what it was asked.
    """
    if living.unread:
        return msgspec.structs.replace(seen, harnessed=True)
    pages = living.pages
    if not any(page.minibatches_total for page in pages):
        seen = msgspec.structs.replace(seen, untrained=(folder / BEGINS).exists())
    if not pages or not all(page.listens for page in pages):
        return seen
    try:
        turn = current_turn(folder)
    except (Unreadable, OSError) as error:
        warn_once(f"{error}: the task goes on, it is suspended with its memory and not moved")
        return seen
    return msgspec.structs.replace(
        seen,
        harnessed=True,
        acknowledged=all(page.acknowledged.turn == turn for page in pages),
        stillness=_stillness(pages),
        movable=all(page.handover.movable for page in pages),
        resizable=all(page.handover.resizable for page in pages),
    )


def _stillness(living: list[PageReading]) -> Stillness:
    told = [page.acknowledged for page in living]
    bytes_parked = sum(each.bytes_parked for each in told)
    return Stillness(
        parked=bytes_parked > 0,
        bytes_parked=bytes_parked,
        bytes_left=sum(each.bytes_left for each in told),
        park_s=max(each.park_s for each in told),
        unpark_s=max(each.unpark_s for each in told),
        parked_at_s=from_machine(max(each.parked_at_s for each in told)),
        minibatches_total=min(page.minibatches_total for page in living),
    )
