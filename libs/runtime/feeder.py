"""Feeds a core with raw control messages. No I/O: the shell reads and commits around it."""

from __future__ import annotations

import logging
import time
from typing import Any

from libs.bus import codec
from libs.bus.port import Message, Outgoing, Position
from libs.contracts.base import event_classes
from libs.contracts.envelope import Envelope
from libs.contracts.runtime import TimerFired
from libs.contracts.wire import Undecodable
from libs.kernel.machine import Machine
from libs.kernel.replica import Replica
from libs.kernel.service import InvariantViolated
from libs.runtime.exits import CoreFailed
from libs.runtime.handled import Handled
from libs.runtime.log import fields
from libs.runtime.replay_check import ReplayCheck
from libs.runtime.stats import Stats
from libs.runtime.timers import Timers

log = logging.getLogger(__name__)


class Feeder:
    """A replica, what it has decided and not committed yet, and how far it has come.

    Records before `live_from` were handled before a restart: they are replayed, and what the core decides on
    them again is compared with the log and dropped.
    """

    def __init__(
        self,
        replica: Replica[Any],
        committed: Position,
        stats: Stats,
        *,
        check_every: int,
        strict: bool,
        traced: bool,
    ) -> None:
        """Take over a recovered replica.

        Args:
            replica: at or before the committed position.
            committed: the session's position on control.
            check_every: check the state after so many records.
            strict: a state that contradicts itself stops the service, instead of only being reported.
            traced: keep what each handling decided, for spans.
        """
        self.replica = replica
        self.live_from = committed.next_offset
        self.handled = replica.next_offset
        """Everything before this offset is handled."""
        self.timers = Timers(replica.service.name, committed.metadata)
        self.outbox: list[Outgoing] = []
        self.outbox_bytes = 0
        self.traces: list[Handled] = []
        self._stats, self._strict, self._traced = stats, strict, traced
        self._check_every, self._until_check = check_every, check_every
        self._passed_over = _other_types(replica.service.machine)
        self._replay_check = ReplayCheck(replica.service)

    @property
    def live(self) -> bool:
        """The replay is over: what the core decides is new."""
        return self.handled >= self.live_from

    @property
    def position(self) -> Position:
        """To be committed together with the outbox."""
        return Position(self.handled, self.timers.metadata)

    def feed(self, message: Message) -> None:
        """Take one message; what is decided goes to the outbox.

        Raises:
            CoreFailed: it cannot be decoded or handled; `handled` still points at it.
        """
        if message.offset < self.handled:
            return
        self._stats.records += 1
        if _wire_type(message) in self._passed_over:
            if message.offset < self.live_from:
                self._replay_check.on_log(message)
            self.replica.next_offset = message.offset + 1
        else:
            self._step(message)
        self.handled = message.offset + 1
        self._until_check -= 1
        if self._until_check <= 0:
            self._check()

    def _step(self, message: Message) -> None:
        started_ns = time.time_ns() if self._traced else 0
        try:
            record = codec.record(message)
        except Undecodable as error:
            raise CoreFailed(f"control record cannot be decoded: {error}") from error
        try:
            outputs = self.replica.step(record)
        except Exception as error:
            name, what = self.replica.service.name, f"{record.envelope.event.wire_type} {codec.message_id(message)}"
            raise CoreFailed(f"{name} cannot handle {what} at control/0@{message.offset}: {error!r}") from error
        self._stats.events += 1
        self.timers.seen(record.envelope)
        if outputs and message.offset >= self.live_from:
            self._keep(record.envelope, outputs, started_ns)
        elif outputs:
            self._replay_check.derived(outputs)

    def _keep(self, cause: Envelope, outputs: list[Envelope], started_ns: int) -> None:
        self._stats.decisions += len(outputs)
        for envelope in outputs:
            message = codec.outgoing(envelope)
            self.outbox.append(message)
            self.outbox_bytes += len(message.value)
        if self._traced:
            self.traces.append(Handled(cause, outputs, started_ns))

    def emptied(self) -> None:
        """The outbox is on the log."""
        self.outbox, self.outbox_bytes, self.traces = [], 0, []

    def end_replay(self) -> None:
        """Report whether the replay derived what stands on the log. Call once, when live."""
        self._stats.replay_differences += self._replay_check.report()

    def _check(self) -> None:
        self._until_check = self._check_every
        try:
            self.replica.check()
        except InvariantViolated as error:
            self._stats.violations += 1
            log.error("the state contradicts itself", extra=fields(before_offset=self.handled, error=error))
            if self._strict:
                raise CoreFailed(f"state after control/0@{self.handled - 1}: {error}") from error


def _other_types(machine: Machine[Any]) -> frozenset[bytes]:
    """Wire types that are known and not this core's concern: records of these need not be decoded."""
    read = {*machine.inputs, TimerFired}
    return frozenset(cls.wire_type.encode() for cls in event_classes() if cls not in read)


def _wire_type(message: Message) -> bytes:
    for name, value in message.headers:
        if name == "ce_type":
            return value
    return b""
