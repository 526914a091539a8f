"""What can be checked of the records that no core decides: their sources, timers, causes, running numbers."""

from __future__ import annotations

from typing import Any

from libs.bus.port import Message
from libs.contracts import agent, introspection
from libs.contracts.base import Topic
from libs.contracts.envelope import Envelope
from libs.contracts.runtime import TimerFired
from libs.inspect.differences import Difference, FieldDifference, Kind, name_of, wrong
from libs.inspect.epochs import Epochs
from libs.kernel.ids import derived_id
from libs.kernel.replica import Replica

TIMER_SOURCE = "runtime"
MICROSECOND = 1e-6
"""Times on the log are rounded to it."""


class Facts:
    """Remembers what has been on the log, to judge what comes."""

    def __init__(self, replicas: dict[str, Replica[Any]], epochs: Epochs) -> None:
        """`epochs`: where rules that are not at hand have decided, orders and timers are not derived."""
        self._replicas, self._epochs = replicas, epochs
        self._unsure: list[tuple[str, Difference]] = []
        """Causes that may be orders, which stand behind control, and what is wrong if they are not."""
        self._seen: dict[str, str] = {}
        """{event id: where it stands}."""
        self._ordered: dict[str, None] = {}
        self._asked: dict[str, dict[float, None]] = {name: {} for name in replicas}
        """{service: wake-up times that it has wanted since its last timer}."""
        self._timers = dict.fromkeys(replicas, 0)
        self._sequences: dict[str, int] = {}

    def first_time(self, envelope: Envelope, where: str) -> bool:
        """Whether the event id is new."""
        if envelope.id in self._seen:
            return False
        self._seen[envelope.id] = where
        return True

    def took(self, name: str, envelope: Envelope) -> None:
        """A core has taken the record: note when it wants to be woken."""
        replica = self._replicas[name]
        if not replica.service.machine.reads(envelope.event):
            return
        wanted = replica.next_wakeup
        if wanted is not None:
            self._asked[name][wanted] = None

    def derived(self, order: Envelope) -> None:
        """An order has been derived: facts may name it as their cause."""
        self._ordered[order.id] = None

    def check(self, envelope: Envelope, message: Message) -> list[Difference]:
        """What is wrong with a fact."""
        if message.partition.topic is not Topic.CONTROL:
            return [wrong(Kind.UNEXPECTED, message, f"{name_of(envelope)} is no order", envelope=envelope)]
        return [*self._writer(envelope, message), *self._sequence(envelope, message), *self._timer(envelope, message)]

    def _writer(self, envelope: Envelope, message: Message) -> list[Difference]:
        expected = _source(envelope)
        if envelope.source != expected:
            fields = [FieldDifference(field="ce:source", expected=expected, found=envelope.source)]
            sentence = f"{name_of(envelope)} is signed by {envelope.source}, which cannot know it"
            return [wrong(Kind.FORGED, message, sentence, envelope=envelope, fields=fields)]
        if self._unknown_cause(envelope):
            sentence = f"{name_of(envelope)} names a cause that is not on the log: {envelope.causation_id}"
            difference = wrong(Kind.FORGED, message, sentence, envelope=envelope)
            if not self._epochs.others:
                return [difference]
            self._unsure.append((envelope.causation_id, difference))
        return []

    def close(self, *, with_orders: bool) -> list[Difference]:
        """What is wrong after all; nothing is known where the log was read without its orders."""
        return [difference for cause, difference in self._unsure if with_orders and cause not in self._ordered]

    def _unknown_cause(self, envelope: Envelope) -> bool:
        """Introspection's facts have causes on topics that are not kept; all others are on control or orders."""
        if not envelope.causation_id or envelope.event.owner == introspection.OWNER:
            return False
        return envelope.causation_id not in self._seen and envelope.causation_id not in self._ordered

    def _sequence(self, envelope: Envelope, message: Message) -> list[Difference]:
        """An agent's numbers grow (not all of them are on control); a new journal begins at 1."""
        if envelope.sequence is None:
            return []
        last = self._sequences.get(envelope.source, 0)
        self._sequences[envelope.source] = envelope.sequence
        if envelope.sequence > last or envelope.sequence == 1:
            return []
        sentence = f"{name_of(envelope)} is number {envelope.sequence} of {envelope.source}, after number {last}"
        return [wrong(Kind.MISPLACED, message, sentence, envelope=envelope)]

    def _timer(self, envelope: Envelope, message: Message) -> list[Difference]:
        timer = envelope.event
        if not isinstance(timer, TimerFired) or timer.service not in self._replicas:
            return []
        number, self._timers[timer.service] = self._timers[timer.service], self._timers[timer.service] + 1
        asked, self._asked[timer.service] = self._asked[timer.service], {}
        fields = []
        derived = self._epochs.is_at_hand(timer.service, self._epochs.writing(timer.service, message.offset))
        if derived and timer.due_s not in asked:
            wanted = ", ".join(map(repr, asked)) or "no timer"
            fields.append(FieldDifference(field="due_s", expected=wanted, found=repr(timer.due_s)))
        if envelope.said_s is None and envelope.time_s < timer.due_s - MICROSECOND:
            expected = f"{timer.due_s!r} or later"
            fields.append(FieldDifference(field="ce:time", expected=expected, found=repr(envelope.time_s)))
        event_id = derived_id(f"{TIMER_SOURCE}/{timer.service}", repr(timer.due_s), number)
        if envelope.id != event_id:
            fields.append(FieldDifference(field="ce:id", expected=event_id, found=envelope.id))
        if not fields:
            return []
        sentence = f"{timer.service} did not ask for this timer, its number {number + 1}"
        return [wrong(Kind.UNEXPECTED, message, sentence, envelope=envelope, fields=fields)]


def _source(envelope: Envelope) -> str:
    """The only source that can say this."""
    event = envelope.event
    if event.owner == agent.OWNER:
        return agent.source_of(getattr(event, "node_id", ""))
    return event.owner
