"""How a core comes back: the newest snapshot that fits, and what the log has recorded since.

    snapshot ──> inputs before the committed position, each with the outputs that stand on the log for it ──> the state

Nothing is decided again. Outputs and position commit together, so every input before the committed position has all
of its outputs on the log; they may stand far behind it, when other services have appended meanwhile. Therefore two
readers walk over the log: one folds the inputs, the other runs ahead and finds the next own output.

The log also tells what a position is worth. Brokers forget positions; an input whose outputs stand on the log was
handled, whatever the position says.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from libs.bus import codec
from libs.bus.codec import message_id
from libs.bus.naming import CONTROL, log_id
from libs.bus.port import Bus, BusError, BusUnavailable, Message, Partition
from libs.contracts.base import Topic, event_classes
from libs.contracts.envelope import Envelope
from libs.contracts.runtime import ServiceStarted, TimerFired
from libs.contracts.wire import Undecodable, Unknown
from libs.inspect.archive import whole_reader
from libs.kernel.machine import Machine
from libs.kernel.replica import Replica, SnapshotDamaged, SnapshotOutdated
from libs.kernel.service import Service
from libs.runtime.exits import CoreFailed, StopRequested
from libs.runtime.log import fields
from libs.runtime.patience import Patience
from libs.runtime.snapshots import Snapshots, Stored
from libs.runtime.stats import Stats
from libs.runtime.timers import Note

__all__ = ["CONTROL", "Recovered", "Recovery", "from_snapshot", "log_id", "message_id"]

log = logging.getLogger(__name__)

_BATCH = 1000
_SILENCE_S = 10.0


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
        replica = Replica.restore(service, stored.open(), rules)
        replica.check()
    except SnapshotOutdated as error:
        log.info("snapshot not used: the log is folded by the rules at hand", extra=fields(reason=error))
        return None
    except (SnapshotDamaged, AssertionError) as error:
        log.warning("snapshot dropped: an older one or the log is used", extra=fields(error=error))
        await _drop(snapshots, stored)
        return None
    log.info("snapshot loaded", extra=fields(next_offset=stored.next_offset))
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
        self._stats, self._stop = stats, stop
        self._patience = Patience(stop)
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
            async with aclosing(self._read(0, last, partition)) as orders:
                async for message in orders:
                    if header(message, "ce_source") == source:
                        causes[header(message, "ce_causationid")] = None
        behind = start
        if causes:
            async with aclosing(self._read(start, end)) as messages:
                async for message in messages:
                    if header(message, "ce_id") in causes:
                        behind = message.offset + 1
        return behind

    async def _refold(self, replica: Replica[Any], position: int, end: int) -> None:
        """Fold the inputs before `position`, and those behind it whose outputs stand on the log."""
        start = replica.next_offset
        async with aclosing(self._own_outputs(replica, start, end)) as own, aclosing(self._read(start, end)) as inputs:
            head = await anext(own, None)
            async for message in inputs:
                if head is None and message.offset >= position:
                    return
                self._stats.records += 1
                envelope = None if wire_type(message) in self._passed_over else decoded(message)
                if envelope is not None:
                    outputs: list[Envelope] = []
                    while head is not None and head.causation_id == envelope.id:
                        outputs.append(head)
                        head = await anext(own, None)
                    self._fold(replica, envelope, outputs, message)
                replica.next_offset = self._stats.next_offset = message.offset + 1
        if head is not None:
            raise CoreFailed(
                f"{head.event.wire_type} {head.id} of {self._service.name} stands on the log, and its cause "
                f"{head.causation_id} does not stand before it: run `sanjaya replay --verify`"
            )

    def _fold(self, replica: Replica[Any], envelope: Envelope, outputs: list[Envelope], message: Message) -> None:
        if not replica.service.machine.reads(envelope.event):
            return
        self._stats.events += 1
        try:
            replica.refold(envelope, outputs)
        except Exception as error:
            what = f"{envelope.event.wire_type} {envelope.id} at control/0@{message.offset}"
            raise CoreFailed(f"{self._service.name} cannot fold {what}: {error!r}") from error

    async def _own_outputs(self, replica: Replica[Any], start: int, end: int) -> AsyncGenerator[Envelope, None]:
        """The service's own decisions whose causes are not folded yet, in order; timers and epochs are noted."""
        service, name = self._service, self._service.name.encode()
        own = frozenset(cls.wire_type.encode() for cls in service.emits)
        requested = frozenset(cls.wire_type.encode() for cls in service.requests)
        runtime = frozenset(cls.wire_type.encode() for cls in (TimerFired, ServiceStarted))
        source = b"/sanjaya/" + name
        before = replica.decided
        async with aclosing(self._read(start, end)) as messages:
            async for message in messages:
                kind = wire_type(message)
                if kind in own or (kind in requested and header(message, "ce_source") == source):
                    envelope = known(message)
                    # Before a snapshot's position no output is missing in it, wherever on the log it stands.
                    if start == 0 or (envelope.sequence is not None and envelope.sequence > before):
                        yield envelope
                elif kind in runtime and header(message, "ce_subject") == name:
                    self._note_runtime(known(message), message.offset)

    def _note_runtime(self, envelope: Envelope, offset: int) -> None:
        if isinstance(envelope.event, ServiceStarted):
            self._last_rules = envelope.event.rules
        else:
            self._last_timer = (offset, envelope.id)

    async def _read(self, start: int, end: int, partition: Partition = CONTROL) -> AsyncGenerator[Message, None]:
        """A partition from `start` up to `end`, through outages.

        Raises:
            StopRequested: asked to stop meanwhile.
            BusError: records that the log says it has do not come.
        """
        if start >= end:
            return
        reader = await self._patience.outlast(lambda: whole_reader(self._bus, {partition: start}), "open a reader")
        try:
            while start < end:
                if self._stop.is_set():
                    raise StopRequested("fold the log")
                self._stats.beat = time.monotonic()
                try:
                    batch = await reader.next_batch(_BATCH, _SILENCE_S)
                except BusUnavailable as error:
                    await self._patience.wait("read", error)
                    continue
                self._patience.over()
                if not batch:
                    where = f"{partition.topic}/{partition.index}@{start}"
                    raise BusError(f"{where}: nothing came for {_SILENCE_S:g} s, expected records up to {end}")
                for message in batch:
                    if message.offset >= end:
                        return
                    yield message
                start = batch[-1].offset + 1
        finally:
            await reader.close()


async def _drop(snapshots: Snapshots, stored: Stored) -> None:
    try:
        await asyncio.to_thread(snapshots.drop, stored.service, stored.next_offset)
    except SQLAlchemyError as error:
        log.warning("the damaged snapshot could not be removed", extra=fields(error=error))


def other_types(machine: Machine[Any]) -> frozenset[bytes]:
    """Wire types that are known and not this core's concern: records of these need not be decoded."""
    read = {*machine.inputs, TimerFired}
    return frozenset(cls.wire_type.encode() for cls in event_classes() if cls not in read)


def decoded(message: Message) -> Envelope | None:
    """The message as an envelope; None for a type that this version does not know at all.

    A newer version of another service may append such records while both are running. They are no input of the rules at
    hand; a newer version of a type that is known would be one.

    Raises:
        CoreFailed: it cannot be decoded; says where.
    """
    try:
        return known(message)
    except Unknown:
        return None


def known(message: Message) -> Envelope:
    """The message as an envelope.

    Raises:
        Unknown: this version does not know its type.
        CoreFailed: it cannot be decoded; says where.
    """
    try:
        return codec.record(message).envelope
    except Unknown:
        raise
    except Undecodable as error:
        raise CoreFailed(f"control record cannot be decoded: {error}") from error


def wire_type(message: Message) -> bytes:
    """The event's wire name, from the headers alone; empty when there is none."""
    return header(message, "ce_type")


def header(message: Message, name: str) -> bytes:
    """A header's value; empty when there is none."""
    for found, value in message.headers:
        if found == name:
            return value
    return b""
