"""The audit: every decision on a log is derived again from what was known, and compared byte by byte."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from libs.bus.port import Message
from libs.contracts import wire
from libs.contracts.base import Event, Topic
from libs.contracts.envelope import Envelope
from libs.inspect.differences import Cause, Difference, Kind, header_differences, name_of, wrong
from libs.inspect.expectations import Expectations
from libs.inspect.facts import Facts
from libs.inspect.logs import Header, Log, place
from libs.inspect.reading import Read, read
from libs.inspect.replay import check_invariants
from libs.kernel.replica import Replica
from libs.kernel.service import Service


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What the audit found."""

    events: int
    """Records on control."""
    decisions: int
    """Decisions of the cores that stand on the log as they were derived, orders included."""
    pending: int
    """Decisions that were derived but not on the log yet: their service had not come so far."""
    differences: int
    first: Difference | None
    details: list[Difference]
    """The differences in order of discovery, at most `MOST_DETAILS`."""
    state_hashes: dict[str, str]
    """{service: SHA-256 of its state after the last record}."""
    orders_compared: bool
    """Whether the log has the orders, too."""

    @property
    def ok(self) -> bool:
        """Whether the log is what the cores make of it."""
        return self.differences == 0


CONTROL = "control/0"
MOST_DETAILS = 100


def verify(log: Log, services: Sequence[Service[Any]], *, watch: Callable[[int], None] | None = None) -> Verification:
    """Audit a whole log.

    Args:
        log: from its beginning.
        services: whose decisions are derived again.
        watch: called with the number of records so far, for progress bars.

    Raises:
        ReplayViolation: a core's state contradicts itself at the end.
    """
    verifier = Verifier(services, log.header)
    count = 0
    for count, message in enumerate(log.messages, start=1):
        verifier.take(message)
        if watch is not None and count % 1000 == 0:
            watch(count)
    if watch is not None:
        watch(count)
    return verifier.finish()


class Verifier:
    """Takes a log's messages one by one: control first, then orders."""

    def __init__(self, services: Sequence[Service[Any]], header: Header) -> None:
        self._header = header
        self.replicas = {service.name: Replica(service) for service in services}
        self._deciders = {cls: service.name for service in services for cls in service.emits}
        self._requesters = {(service.name, cls) for service in services for cls in service.requests}
        self._awaiting: dict[str, Expectations] = {}
        """{event id: where it is expected} of derived decisions that the log has not shown yet."""
        self._decisions = {service.name: Expectations(service.name, self._awaiting) for service in services}
        self._orders: dict[str, Expectations] = {}
        """{node id: what was ordered of it}."""
        self._alive = dict.fromkeys(self.replicas)
        """Services whose core could handle everything so far."""
        self._facts = Facts(self.replicas)
        self._differences: list[Difference] = []
        self._events = 0
        self._end = 0
        self._last_offsets: dict[str, int] = {}

    def take(self, message: Message) -> None:
        """The next message. Those of other topics than control and orders are passed over."""
        topic = message.partition.topic
        if topic not in (Topic.CONTROL, Topic.ORDERS):
            return
        self._check_order(message)
        found = read(message, self._awaited)
        if found.difference is not None:
            self._differences.append(found.difference)
        if topic is Topic.CONTROL:
            self._events += 1
            self._end = message.offset + 1
        if found.envelope is None:
            return
        self._check_record(found, message)
        self._feed(found.envelope, message)

    def _check_order(self, message: Message) -> None:
        partition = f"{message.partition.topic}/{message.partition.index}"
        last = self._last_offsets.get(partition, -1)
        if message.offset <= last:
            sentence = f"offset {message.offset} stands after offset {last}"
            self._differences.append(wrong(Kind.MISPLACED, message, sentence))
        elif self._header.contiguous and message.offset > last + 1 and partition == CONTROL:
            sentence = f"offset {message.offset} follows offset {last}: what stood between was taken away"
            self._differences.append(wrong(Kind.GAP, message, sentence))
        self._last_offsets[partition] = max(last, message.offset)

    def _awaited(self, event_id: str) -> Envelope | None:
        """The derived decision with this id that the log has not shown yet."""
        expectations = self._awaiting.get(event_id)
        return expectations.known_as(event_id) if expectations is not None else None

    def _check_record(self, found: Read, message: Message) -> None:
        """Whether the record may stand here. A record that was found altered is not reported twice."""
        envelope = found.envelope
        assert envelope is not None
        if not self._facts.first_time(envelope, place(message)):
            sentence = f"{name_of(envelope)}: event id {envelope.id} stands on the log already"
            self._differences.append(wrong(Kind.REPEATED, message, sentence, envelope=envelope))
            return
        decider = self._decider(envelope)
        if decider is not None and decider in self._alive:
            self._meet(decider, envelope, found, message)
        elif decider is None and found.difference is None:
            self._differences += self._facts.check(envelope, message)
        if found.difference is None:
            self._check_headers(envelope, message)

    def _decider(self, envelope: Envelope) -> str | None:
        """The service that has decided this, None for a fact or a request from outside."""
        if (envelope.source, type(envelope.event)) in self._requesters:
            return envelope.source
        return self._deciders.get(type(envelope.event))

    def _meet(self, decider: str, envelope: Envelope, found: Read, message: Message) -> None:
        self._mend(envelope, message)
        expectations = self._decisions[decider]
        if envelope.event.topic is not Topic.CONTROL:
            expectations = self._orders_of(envelope.event, decider)
        meet = expectations.meet if found.difference is None else expectations.meet_altered
        for missing in meet(envelope, message, self._differences):
            self._feed(missing, message)

    def _mend(self, envelope: Envelope, message: Message) -> None:
        """Its cause is a decision that should have stood before it: go on as if it did, so that one is missed once."""
        while envelope.causation_id in self._awaiting:
            expectations = self._awaiting[envelope.causation_id]
            for missing in expectations.overtake(envelope.causation_id, message, self._differences):
                self._feed(missing, message)

    def _orders_of(self, event: Event, decider: str) -> Expectations:
        return self._orders.setdefault(event.subject, Expectations(decider, self._awaiting))

    def _check_headers(self, envelope: Envelope, message: Message) -> None:
        """The attributes that the digest does not cover follow from the event."""
        if dict(message.headers).get("ce_type", b"").decode() != envelope.event.wire_type:
            return  # an old version of the event, upcast: written by an older Sanjaya
        fields = header_differences(wire.encode(envelope)[0], message)
        if fields:
            sentence = f"the attributes of {name_of(envelope)} contradict the event"
            self._differences.append(wrong(Kind.ALTERED, message, sentence, envelope=envelope, fields=fields))

    def _feed(self, envelope: Envelope, message: Message) -> None:
        """Let every core take the record; what it decides must be on the log from here on.

        `message` is where it stands, or where it should have stood at the latest.
        """
        if envelope.event.topic is not Topic.CONTROL:
            return
        cause: Cause | None = None
        for name in list(self._alive):
            outputs = self._take(name, envelope, message)
            self._facts.took(name, envelope)
            for output in outputs:
                cause = cause or _cause(envelope, message.offset)
                if output.event.topic is Topic.CONTROL:
                    self._decisions[name].expect(output, cause)
                else:
                    self._facts.derived(output)
                    self._orders_of(output.event, name).expect(output, cause)

    def _take(self, name: str, envelope: Envelope, message: Message) -> list[Envelope]:
        """What the core decides. A record that was tampered with may be one that it cannot handle."""
        try:
            return self.replicas[name].take(envelope)
        except Exception as error:  # whatever a core raises: it is reported with the place, and that core is done
            del self._alive[name]
            sentence = f"{name} cannot handle {name_of(envelope)}: {error!r}"
            self._differences.append(wrong(Kind.UNHANDLED, message, sentence, envelope=envelope, service=name))
            return []

    def finish(self) -> Verification:
        """The log is over.

        Raises:
            ReplayViolation: a core's state contradicts itself.
        """
        pending = self._close()
        check_invariants({name: self.replicas[name] for name in self._alive}, self._end - 1)
        compared = Topic.ORDERS in self._header.topics
        matched = [*self._decisions.values(), *(self._orders.values() if compared else ())]
        return Verification(
            events=self._events,
            decisions=sum(expectations.matched for expectations in matched),
            pending=pending,
            differences=len(self._differences),
            first=self._differences[0] if self._differences else None,
            details=self._differences[:MOST_DETAILS],
            state_hashes={name: replica.state_hash for name, replica in self.replicas.items()},
            orders_compared=compared,
        )

    def _close(self) -> int:
        pending = 0
        for name, expectations in self._decisions.items():
            if name not in self._alive:
                continue
            pending += expectations.close(self._position(name), self._end, CONTROL, self._differences)
        if Topic.ORDERS not in self._header.topics:
            return pending
        for node_id, expectations in self._orders.items():
            service = expectations.service
            if service not in self._alive:
                continue
            where = f"orders of {node_id}"
            pending += expectations.close(self._position(service), self._end, where, self._differences)
        return pending

    def _position(self, service: str) -> int | None:
        positions = self._header.positions
        return None if positions is None else positions.get(service, 0)


def _cause(envelope: Envelope, offset: int) -> Cause:
    return Cause(offset=offset, id=envelope.id, event=type(envelope.event).__name__, subject=envelope.event.subject)
