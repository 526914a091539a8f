"""Feeds a core with raw control messages. No I/O: the shell reads and commits around it."""

from __future__ import annotations

import logging
import time

from libs.bus import codec
from libs.bus.port import Message, Outgoing, Position
from libs.contracts.envelope import Envelope
from libs.kernel.replica import ImpossibleEvent
from libs.kernel.service import InvariantViolated
from libs.runtime.deadletter import dead_letter
from libs.runtime.exits import CoreFailed
from libs.runtime.handled import Handled
from libs.runtime.log import fields
from libs.runtime.messages import decoded, other_types, wire_type
from libs.runtime.recovery import Recovered
from libs.runtime.stats import Stats
from libs.runtime.timers import Timers

log = logging.getLogger(__name__)


class Feeder:
    """A replica, what it has decided and not committed yet, and how far it has come."""

    def __init__(self, recovered: Recovered, stats: Stats, *, check_every: int, strict: bool, traced: bool) -> None:
        """Take over a recovered core.

        Args:
            recovered: the core at its position.
            stats: told what is done.
            check_every: check the state after so many records.
            strict: a state that contradicts itself stops the service, instead of only being reported.
            traced: keep what each handling decided, for spans.
        """
        self.replica = recovered.replica
        self.handled = recovered.replica.next_offset
        """Everything before this offset is handled."""
        self.timers = Timers(recovered.replica.service.name, recovered.note)
        self.outbox: list[Outgoing] = []
        self.outbox_bytes = 0
        self.traces: list[Handled] = []
        self._stats, self._strict, self._traced = stats, strict, traced
        self._check_every, self._until_check = check_every, check_every
        self._passed_over = other_types(recovered.replica.service.machine)
        self._impossible: ImpossibleEvent | None = None
        """Why the message at hand cannot be in the state that it meets; None: it can."""
        self.replica.on_impossible = self._note_impossible

    @property
    def position(self) -> Position:
        """To be committed together with the outbox."""
        return Position(self.handled, self.timers.metadata)

    def feed(self, message: Message) -> None:
        """Take one message; what is decided goes to the outbox, and an impossible input as a dead letter.

        Raises:
            CoreFailed: it cannot be decoded or handled; `handled` still points at it.
        """
        if message.offset < self.handled:
            return
        self._stats.records += 1
        if wire_type(message) in self._passed_over:
            self.replica.next_offset = message.offset + 1
        else:
            self._step(message)
        self.handled = message.offset + 1
        self._until_check -= 1
        if self._until_check <= 0:
            self.check()

    def _step(self, message: Message) -> None:
        started_ns = time.time_ns() if self._traced else 0
        envelope = decoded(message)
        if envelope is None:
            self.replica.next_offset = message.offset + 1
            return
        try:
            outputs = self.replica.take(envelope)
            messages = [codec.outgoing(output) for output in outputs]
        except Exception as error:
            name, what = self.replica.service.name, f"{envelope.event.wire_type} {envelope.id}"
            raise CoreFailed(f"{name} cannot handle {what} at control/0@{message.offset}: {error!r}") from error
        if self._impossible is not None:
            self._set_aside(message, self._impossible)
            self._impossible = None
        self.replica.next_offset = message.offset + 1
        self._stats.events += 1
        self.timers.seen(envelope)
        if outputs:
            self._keep(envelope, outputs, messages, started_ns)

    def _note_impossible(self, envelope: Envelope, why: str) -> None:
        self._stats.note_impossible(envelope, why)
        self._impossible = ImpossibleEvent(why)

    def _set_aside(self, message: Message, error: ImpossibleEvent) -> None:
        """Put a message on the dead letters, in the commit that moves the position behind it: once, over any crash."""
        self._post(dead_letter(message, self.replica.service.name, error))

    def _post(self, message: Outgoing) -> None:
        self.outbox.append(message)
        self.outbox_bytes += len(message.value)

    def _keep(self, cause: Envelope, outputs: list[Envelope], messages: list[Outgoing], started_ns: int) -> None:
        self._stats.decisions += len(outputs)
        for message in messages:
            self._post(message)
        if self._traced:
            self.traces.append(Handled(cause, outputs, started_ns))

    def emptied(self) -> None:
        """The outbox is on the log."""
        self.outbox, self.outbox_bytes, self.traces = [], 0, []

    def check(self) -> None:
        """Look whether the state contradicts itself.

        Raises:
            CoreFailed: it does, and the feeder is strict.
        """
        self._until_check = self._check_every
        try:
            self.replica.check()
        except InvariantViolated as error:
            self._stats.violations += 1
            log.error("the state contradicts itself", extra=fields(before_offset=self.handled, error=error))
            if self._strict:
                raise CoreFailed(f"state after control/0@{self.handled - 1}: {error}") from error
