"""Where an agent begins among its node's orders, and with which tasks: from its own journal and from what the log says.

The journal knows best: the bus may have forgotten the position (a broker keeps that of a group without members for a
while only), or have an older one. Where the journal is new, or is behind what the log has of it, or there are folders
of tasks that it does not know, the tasks are put together from their folders and the log (former.py). Of the orders
that were given before, those for such tasks count. A task that has neither a folder nor a reported start is not started
any more: on a node that was set up anew most such tasks have ended. Placement learns that from JobExited (`lost`), and
from NodeJoined that tasks which had been started are gone.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from libs.bus.port import Bus, Partition, Position
from libs.contracts.agent import JobExited
from libs.node.task import Status, Task
from torch_agent.former import Former, recollect, told_output
from torch_agent.journal import Journal

log = logging.getLogger(__name__)

WHY_LOST = "the node was set up anew before it had started this task"


class OrdersRefused(Exception):
    """The journal and the log do not belong together; the message says where they differ."""


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """Where to begin, with which tasks, and which orders are given up by that."""

    next_order: int
    tasks: list[Task] | None = None
    """All of the node, instead of those in the journal; None: these are right."""
    found: list[str] = []
    """Keys of the tasks that the journal did not know, or not as they are."""
    tails: dict[str, int] = {}
    """{file of their output: how far it is on the log}."""
    lost: list[JobExited] = []
    least_incarnation: int = 0
    """The last one with which the node has joined, where the journal may not know it."""


async def beginning(
    bus: Bus, orders: Partition, node_id: str, journal: Journal, committed: Position, tasks_folder: Path
) -> Beginning:
    """Where to begin. To be asked before the node joins: what is ordered because of that comes behind.

    Args:
        bus: the cell's log.
        orders: where the node's orders are.
        node_id: of the node.
        journal: its own.
        committed: the position that the bus knows; Position(0) where it knows none.
        tasks_folder: with the folders of the node's tasks.

    Raises:
        OrdersRefused: the journal has read further than the log goes.
        BusUnavailable: the log cannot be reached.
    """
    end, own = await bus.end_offset(orders), journal.next_order
    if own is not None and own > end:
        raise OrdersRefused(
            f"this agent's journal has applied the orders of node {node_id} up to offset {own} of partition "
            f"{orders.index}, but the log of cell {bus.cell} ends at {end}: it is another log, or has lost its end; "
            f"expected the log that the journal was written with, or another --state-dir"
        )
    known = journal.tasks()
    folders = sorted(path.parent for path in tasks_folder.glob("*/spec.json"))
    if own is not None and committed.next_offset <= own and not journal.is_behind:
        if committed.next_offset < own:
            log.info("the log has the position %d on the orders, the journal %d: it counts", committed.next_offset, own)
        unknown = [path for path in folders if path.name not in known]
        if not unknown:
            return Beginning(next_order=own)
        former = (await recollect(bus, orders, own, node_id, unknown, {})).tasks
        new = [former[path.name].task for path in unknown if path.name in former]
        if not new:
            return Beginning(next_order=own)
        tails = await told_output(bus, node_id, unknown)
        return Beginning(next_order=own, tasks=[*known.values(), *new], found=[task.key for task in new], tails=tails)
    # An agent has its place among the orders in its journal before it is on the log: this journal has lost its end.
    start = end if own is None else max(own, committed.next_offset)
    if journal.is_behind:  # what it knows may have been told otherwise since; what waits has been told of by nobody
        known = {key: task for key, task in known.items() if task.status is Status.ACCEPTED}
    before = {key: task.status for key, task in known.items()}
    recollection = await recollect(bus, orders, start, node_id, folders, known)
    former = recollection.tasks
    here = {path.name for path in folders} | before.keys()
    tasks = [each.task for key, each in former.items() if key in here or _waits(each, own)]
    lost = [] if own is not None else [_lost(each.task) for key, each in former.items() if _is_lost(each, key in here)]
    if lost:
        log.warning("%d tasks were ordered that are neither here nor reported: they are not started", len(lost))
    found = [task.key for task in tasks if before.get(task.key) is not task.status]
    tails, last = await told_output(bus, node_id, folders), recollection.incarnation
    return Beginning(next_order=start, tasks=tasks, found=found, tails=tails, lost=lost, least_incarnation=last)


def _waits(former: Former, own: int | None) -> bool:
    """Whether a task without a folder has not begun: the journal has forgotten its order alone."""
    return own is not None and not former.reported and former.ordered_at >= own


def _is_lost(former: Former, here: bool) -> bool:
    """Whether nobody will tell of a task any more: it may have run on the disk that the node had before."""
    return not here and not former.reported and former.task.status is not Status.EXITED


def _lost(task: Task) -> JobExited:
    """The end of a task that is not started."""
    return JobExited(
        job_id=task.order.job_id,
        attempt=task.order.attempt,
        node_id=task.order.node_id,
        exit_code=None,
        signal=None,
        outcome="lost",
        stderr_tail=WHY_LOST,
    )
