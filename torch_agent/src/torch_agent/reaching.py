"""How an agent waits for the log and the gateway, however long they take to be there."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from libs.bus.connect import connect, is_gateway
from libs.bus.port import (
    Bus,
    BusError,
    BusUnavailable,
    Fenced,
    Partition,
    Refused,
    TakesTokens,
    TellsLeases,
    TellsNodeKeys,
    TellsPositions,
)
from libs.contracts.base import Topic
from libs.contracts.placement import OWNER as PLACEMENT
from libs.node.lease import LeaseTerms
from libs.node.task import Status
from libs.runtime.waits import within
from torch_agent.beginning import Beginning, beginning
from torch_agent.folders import TaskFolder
from torch_agent.former import seen_last
from torch_agent.journal import Journal
from torch_agent.options import Options, token_in
from torch_agent.ordering import orders_partition
from torch_agent.predecessor import until_silent
from torch_agent.publishing import Publisher, noted
from torch_agent.shim import read_lease

log = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_S, LONGEST_RETRY_S = 1.0, 30.0
CONTROL = Partition(Topic.CONTROL, 0)


def has_tasks(journal: Journal, tasks_folder: Path) -> bool:
    """Whether there are tasks of an earlier agent, which would be left to themselves without one.

    Those that the journal does not know live in their folders.
    """
    known = journal.tasks()
    unknown = (path.parent for path in tasks_folder.glob("*/spec.json") if path.parent.name not in known)
    return any(task.status is not Status.EXITED for task in known.values()) or any(
        TaskFolder(path).lives() for path in unknown
    )


async def lease_terms(bus: Bus, options: Options) -> LeaseTerms:
    """Ask for the terms of the lease: the cell's, where its gateway has them, else the agent's own.

    Raises:
        BusError: the gateway cannot be asked.
    """
    told = await bus.lease() if isinstance(bus, TellsLeases) else None
    return options.lease if told is None else replace(options.lease, node_timeout_s=told[0], margin_s=told[1])


def _has_had_an_agent(state_dir: Path) -> bool:
    return read_lease(state_dir / "lease") is not None or any((state_dir / "tasks").glob("*"))


async def connected(options: Options, stop: asyncio.Event, *, patient: bool) -> Bus | None:
    """The bus, however long a gateway takes to be there; None when asked to stop meanwhile.

    Args:
        options: the agent's.
        stop: set when it is to end.
        patient: waits as well for a gateway that refuses the token.

    Raises:
        Refused: it does.
    """
    wait_s = RETRY_S
    while not stop.is_set():
        try:
            return await connect(options.bus, options.cell, _present_token(options))
        except BusUnavailable as error:
            if not is_gateway(options.bus):
                raise
            log.warning("waiting for the gateway: %s", error)
            await within(stop, RETRY_S)
        except Refused as error:
            if not patient:
                raise
            wait_s = await _refused(error, stop, wait_s)
    return None


async def reach(
    bus: Bus, options: Options, journal: Journal, stop: asyncio.Event, *, patient: bool
) -> tuple[Publisher | None, Beginning]:
    """Open the session and find the beginning among the orders, however long the log takes to be there.

    Args:
        bus: the cell's.
        options: the agent's.
        journal: its journal.
        stop: set when it is to end.
        patient: waits as well for a gateway that refuses the token.

    Returns:
        The session, None when asked to stop meanwhile; and where to begin, which the journal has by then.

    Raises:
        Refused: the gateway does not take the token.
        Fenced: another agent of this node has taken over.
    """
    wait_s, tasks_folder = RETRY_S, options.state_dir / "tasks"
    while not stop.is_set():
        publisher: Publisher | None = None
        try:
            if journal.last_number == 0 and not _has_had_an_agent(options.state_dir):
                await until_silent(bus, options.node_id, (await lease_terms(bus, options)).lost_s, stop)
                if stop.is_set():
                    break
            orders = await orders_partition(bus, options.node_id)
            publisher = Publisher(bus, options.node_id, orders, journal)
            at = await publisher.open()
            begins = await beginning(bus, orders, options.node_id, journal, at, tasks_folder)
            if begins.tasks is not None:
                journal.rebuild(
                    begins.tasks,
                    begins.lost,
                    begins.tails,
                    next_order=begins.next_order,
                    incarnation=begins.least_incarnation,
                    former_id=noted(at)[0],
                    time_s=time.time(),
                )
                journal.machine_start = seen_last(tasks_folder, begins.tasks) or journal.machine_start
            return publisher, begins
        except Fenced:
            raise
        except BusError as error:
            if isinstance(error, Refused) and not patient:
                raise
            if publisher is not None:
                await publisher.close()
            if isinstance(error, Refused):
                wait_s = await _refused(error, stop, wait_s)
                use_present_token(bus, options)
            else:
                log.warning("waiting for the log: %s", error)
                await within(stop, RETRY_S)
    return None, Beginning(next_order=0)


async def _refused(error: Refused, stop: asyncio.Event, wait_s: float) -> float:
    """Wait so long; returns how long to wait the next time."""
    log.error("%s  This agent goes on trying; its tasks stand still when their lease has run out.", error)
    await within(stop, wait_s)
    return min(LONGEST_RETRY_S, 2 * wait_s)


def _present_token(options: Options) -> str:
    """The token that its file holds by now."""
    if options.token_file is None:
        return options.token
    try:
        return token_in(options.token_file)
    except ValueError as error:
        log.warning("%s", error)
        return options.token


def use_present_token(bus: Bus, options: Options) -> None:
    """Go on with the token that its file holds by now, where there is one."""
    if isinstance(bus, TakesTokens) and options.token_file is not None:
        bus.use_token(_present_token(options))


async def lasting(ask: Callable[[], Awaitable[T]]) -> T:
    """The log's answer, however long that takes."""
    while True:
        try:
            return await ask()
        except (BusUnavailable, Refused) as error:
            log.warning("waiting for the log: %s", error)
            await asyncio.sleep(RETRY_S)


async def placement_position(bus: Bus) -> int:
    """The offset of the first control record that placement has not taken.

    Raises:
        BusError: the log does not say.
    """
    if not isinstance(bus, TellsPositions):
        raise BusError(f"the log of cell {bus.cell} does not say how far placement has come")
    return (await bus.committed(PLACEMENT, CONTROL)).next_offset


async def node_key(bus: TellsNodeKeys, node_id: str) -> bytes | None:
    """What the gateway hands over at the join, however long it takes to answer; None: it asks for no files."""
    while True:
        try:
            return await bus.node_key(node_id)
        except BusUnavailable as error:
            log.warning("waiting for the node's key: %s", error)
