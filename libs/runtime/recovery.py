"""How a core comes back: the newest snapshot that fits, and what the log has recorded since.

    snapshot ──> inputs before the committed position, each with the outputs that stand on the log for it ──> the state

Nothing is decided again. Outputs and position commit together, so every input before the committed position has all
of its outputs on the log; they may stand far behind it, when other services have appended meanwhile. Therefore the
inputs are folded while another walk looks ahead for the next own output (`ahead`).

The log also tells what a position is worth. Brokers forget positions; an input with outputs on the log was handled,
whatever the position says.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from libs.bus.naming import CONTROL, log_id
from libs.bus.port import Bus, Message
from libs.contracts.base import Topic
from libs.contracts.envelope import Envelope
from libs.kernel.replica import Replica, SnapshotDamaged, SnapshotOutdated
from libs.kernel.service import Service
from libs.runtime.ahead import Ahead
from libs.runtime.exits import CoreFailed
from libs.runtime.log import fields
from libs.runtime.messages import decoded, header, other_types, wire_type
from libs.runtime.snapshots import Snapshots, Stored
from libs.runtime.stats import Stats
from libs.runtime.timers import Note
from libs.runtime.walk import Walk

__all__ = ["CONTROL", "Recovered", "Recovery", "from_snapshot", "log_id"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recovered:
    """A core as the log has it."""

    replica: Replica[Any]
    """Its `next_offset` is where the service goes on."""
    note: Note
    """Which timers are on the log."""
    rules: str
    """Digest of those by which the service has decided last; empty when the log does not say."""
    snapshot_offset: int
    """Where the snapshot stands; 0 when there is none."""


async def from_snapshot(
    service: Service[Any], snapshots: Snapshots | None, rules: str, log_name: str, end: int
) -> Replica[Any]:
    """The core as of its newest usable snapshot before `end`; empty if there is none.

    One that is damaged is dropped, one of other rules left alone: an older one, or the log from its beginning, gives
    the same state, only later. So does a database that cannot be reached.

    Args:
        service: the core's service.
        snapshots: where they are stored; None: nowhere.
        rules: digest of the rules at hand.
        log_name: `log_id`; empty for an empty log.
        end: where control ends. Snapshots are taken at committed positions: none that is before it says too much.
    """
    if snapshots is None or not log_name:
        return Replica(service)
    try:
        found = await asyncio.to_thread(snapshots.load, service.name, log_name, end)
    except SQLAlchemyError as error:
        log.warning("snapshots cannot be read: the log is folded from its beginning", extra=fields(error=error))
        return Replica(service)
    for stored in found:
        replica = await _restore(service, snapshots, rules, stored)
        if replica is not None:
            return replica
    return Replica(service)


async def _restore(service: Service[Any], snapshots: Snapshots, rules: str, stored: Stored) -> Replica[Any] | None:
    try:
        replica = await asyncio.to_thread(_opened, service, stored, rules)
    except SnapshotOutdated as error:
        log.info("snapshot not used: the log is folded by the rules at hand", extra=fields(reason=error))
        return None
    except (SnapshotDamaged, AssertionError) as error:
        log.warning("snapshot dropped: an older one or the log is used", extra=fields(error=error))
        await _drop(snapshots, stored)
        return None
    log.info("snapshot loaded", extra=fields(next_offset=stored.next_offset))
    return replica


def _opened(service: Service[Any], stored: Stored, rules: str) -> Replica[Any]:
    """Blocking: a large state takes seconds."""
    replica = Replica.restore(service, stored.open(), rules)
    replica.check()
    return replica


class Recovery:
    """Recovers one core. The session is open already: nothing is appended in the service's name meanwhile.

    Args:
        service: the core's service.
        bus: the cell's log.
        rules: digest of the rules at hand; snapshots of others are not used.
        snapshots: where they are stored; None: the whole log is folded.
        stats: told how far it is.
        stop: set to give up.
    """

    def __init__(
        self,
        service: Service[Any],
        bus: Bus,
        rules: str,
        snapshots: Snapshots | None,
        stats: Stats,
        stop: asyncio.Event,
    ) -> None:
        self._service, self._bus, self._rules, self._snapshots = service, bus, rules, snapshots
        self._stats = stats
        self._walk = Walk(bus, stats, stop)
        self._patience = self._walk.patience
        self._passed_over = other_types(service.machine)
        self._last_timer = (-1, "")
        """Offset and id of the latest own timer after the snapshot."""
        self._last_rules = ""

    async def run(self, log_name: str, committed_offset: int) -> Recovered:
        """The core at its position.

        Args:
            log_name: `log_id`.
            committed_offset: where the session stands, as the bus knows it; 0 when it knows nothing.

        Raises:
            CoreFailed: a record cannot be decoded or folded, or the log and the position contradict each other.
            StopRequested: asked to stop meanwhile.
            BusError: records are gone that are needed.
        """
        end = await self._patience.outlast(lambda: self._bus.end_offset(CONTROL), "ask for the log's end")
        if committed_offset > end:
            raise CoreFailed(
                f"{self._service.name} has handled control up to offset {committed_offset}, and the log ends at {end}: "
                "it was cut, or it is another log"
            )
        replica = await from_snapshot(self._service, self._snapshots, self._rules, log_name, end)
        # Counted, and not put aside again: the dead letter of an input is on the log when the input is behind us.
        replica.on_impossible = self._stats.note_impossible
        start = replica.next_offset
        if start > 0:  # made under the rules at hand, by a process that has said so
            self._last_rules = self._rules
        position = max(committed_offset, start)
        if committed_offset == 0 and end > 0:
            position = max(position, await self._behind_last_order(start, end))
        await self._refold(replica, position, end)
        replica.next_offset = max(replica.next_offset, position)
        if committed_offset < replica.next_offset:
            self._stats.repairs += 1
            log.warning(
                "the committed position is behind what the log and the snapshot tell: repaired",
                extra=fields(committed=committed_offset, next_offset=replica.next_offset),
            )
        offset, timer_id = self._last_timer
        unread = offset >= replica.next_offset  # at most one: no other is fired before it is read
        note = Note(timers=replica.timers + unread, pending=timer_id if unread else "")
        return Recovered(replica, note, self._last_rules, snapshot_offset=start)

    async def _behind_last_order(self, start: int, end: int) -> int:
        """The offset behind the last input that the service has answered with orders; `start` if there is none.

        For a service that has no position: it is new, or the broker has forgotten. Of what was decided, orders alone
        may stand on the log, in partitions of their own.
        """
        causes: dict[bytes, None] = {}
        source = f"/sanjaya/{self._service.name}".encode()
        for partition in await self._patience.outlast(lambda: self._bus.partitions(Topic.ORDERS), "look for orders"):
            last = await self._patience.outlast(partial(self._bus.end_offset, partition), "look for orders")
            async with aclosing(self._walk.batches(partition, 0, last)) as orders:
                async for batch in orders:
                    own = (order for order in batch if header(order, "ce_source") == source)
                    causes.update((header(order, "ce_causationid"), None) for order in own)
        behind = start
        if causes:
            async with aclosing(self._walk.batches(CONTROL, start, end)) as batches:
                async for batch in batches:
                    for message in batch:
                        if header(message, "ce_id") in causes:
                            behind = message.offset + 1
        return behind

    async def _refold(self, replica: Replica[Any], position: int, end: int) -> None:
        """Fold the inputs before `position`, and those behind it that have outputs on the log."""
        start = replica.next_offset
        ahead = Ahead(self._service, partial(self._walk.batches, CONTROL), start, end, replica.decided)
        async with aclosing(ahead), aclosing(ahead.behind()) as inputs:
            await ahead.begin()
            async for batch in inputs:
                await self._fold_batch(replica, batch, ahead, position)
                self._stats.next_offset = replica.next_offset
                if ahead.next is None and replica.next_offset >= position:
                    break
        if ahead.next is not None:
            raise CoreFailed(
                f"{ahead.next.event.wire_type} {ahead.next.id} of {self._service.name} stands on the log, and its "
                f"cause {ahead.cause} does not stand before it: run `sanjaya replay --verify`"
            )
        self._last_timer = ahead.last_timer
        if ahead.last_rules is not None:
            self._last_rules = ahead.last_rules

    async def _fold_batch(self, replica: Replica[Any], batch: list[Message], ahead: Ahead, position: int) -> None:
        """Fold the inputs among these messages, up to `position` or the cause of the last decision."""
        for message in batch:
            if ahead.next is None and message.offset >= position:
                return
            self._stats.records += 1
            envelope = None if wire_type(message) in self._passed_over else decoded(message)
            if envelope is not None:
                outputs = await ahead.decisions() if envelope.id == ahead.cause else []
                self._fold(replica, envelope, outputs, message)
            replica.next_offset = message.offset + 1

    def _fold(self, replica: Replica[Any], envelope: Envelope, outputs: list[Envelope], message: Message) -> None:
        if not replica.service.machine.reads(envelope.event):
            return
        self._stats.events += 1
        try:
            replica.refold(envelope, outputs)
        except Exception as error:
            what = f"{envelope.event.wire_type} {envelope.id} at control/0@{message.offset}"
            raise CoreFailed(f"{self._service.name} cannot fold {what}: {error!r}") from error


async def _drop(snapshots: Snapshots, stored: Stored) -> None:
    try:
        await asyncio.to_thread(snapshots.drop, stored.service, stored.next_offset)
    except SQLAlchemyError as error:
        log.warning("the damaged snapshot could not be removed", extra=fields(error=error))
