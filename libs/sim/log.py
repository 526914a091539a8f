"""What a simulation appends: the control log and the orders, in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from libs.contracts.base import Event, Topic
from libs.contracts.envelope import Envelope, Record


class Clock(Protocol):
    """The virtual clock."""

    now_s: float


CONTROL = Topic.CONTROL
"""Compared with the topic of every event: Python 3.11 looks long for a member of an enum."""


class Log:
    """What was appended, in order. Times of appending are those of the virtual clock."""

    def __init__(
        self, clock: Clock, on_control: Callable[[Envelope], None], on_order: Callable[[Event], None], keep: bool
    ) -> None:
        self._clock = clock
        self.control: list[Envelope] = []
        """Empty when records are not kept."""
        self.orders: list[Envelope] = []
        self.end = 0
        """Offset of the next control record."""
        self._on_control, self._on_order, self._keep = on_control, on_order, keep

    def append(self, sent: Envelope) -> Envelope | None:
        """Append to the topic of the event; the record, dated by the virtual clock, where that is the control topic."""
        envelope = Envelope(
            id=sent.id,
            source=sent.source,
            time_s=self._clock.now_s,
            event=sent.event,
            causation_id=sent.causation_id,
            sequence=sent.sequence,
            said_s=sent.time_s,
        )
        if envelope.event.topic is not CONTROL:
            if self._keep:
                self.orders.append(envelope)
            self._on_order(envelope.event)
            return None
        if self._keep:
            self.control.append(envelope)
        self.end += 1
        self._on_control(envelope)
        return envelope

    def records(self) -> Iterator[Record]:
        """The control log, in order; nothing when records are not kept."""
        for offset, envelope in enumerate(self.control):
            yield Record(
                topic=Topic.CONTROL, partition=0, offset=offset, appended_at_s=envelope.time_s, envelope=envelope
            )
