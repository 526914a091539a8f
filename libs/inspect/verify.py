"""The audit: every decision on a log is derived again from what was known, and compared byte by byte.

What was decided under rules that are not at hand (an older or a newer version, `Epochs`) cannot be derived again: there
the state is folded of what is recorded, and the books of the whole log must balance. That every record is whole, stands
once and in order, and belongs to its cause, is checked of all, from the recorded bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from libs.bus.port import Message
from libs.contracts import wire
from libs.contracts.base import Event, Topic
from libs.contracts.envelope import Envelope
from libs.contracts.runtime import ServiceStarted
from libs.inspect.conservation import Ledger
from libs.inspect.differences import (
    Cause,
    Difference,
    FieldDifference,
    Kind,
    header_differences,
    name_of,
    unbalanced,
    wrong,
)
from libs.inspect.epochs import Epochs
from libs.inspect.expectations import Expectations
from libs.inspect.facts import Facts
from libs.inspect.logs import Header, Log, at_hand, place, record_of
from libs.inspect.reading import Read, read
from libs.inspect.recorded import Recorded
from libs.inspect.refolding import Handled, Joined
from libs.inspect.replay import check_invariants
from libs.kernel.replica import Replica, pass_over
from libs.kernel.service import Service
from libs.kernel.words import counted, plural


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What the audit found."""

    events: int
    """Records on control."""
    decisions: int
    """Decisions of the cores that stand on the log as they were derived, orders included."""
    refolded: int = 0
    """Decisions under rules that are not at hand: they belong to their causes, and the states are folded of them."""
    versions: int = 0
    """Versions of rules that are not at hand, over all services."""
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
    def summary(self) -> str:
        """One line for people: `412 events, 97 decisions derived again, 0 differences`."""
        events, decisions = plural(self.events, "event"), plural(self.decisions, "decision")
        words = f"{self.events:,} {events}, {self.decisions:,} {decisions} derived again, "
        words += counted(self.differences, "difference")
        if self.versions:
            versions = counted(self.versions, "other version")
            balance = Kind.UNBALANCED not in [difference.kind for difference in self.details]
            books = "the books balance" if balance else "the books do not balance"
            words += f"; {self.refolded:,} {plural(self.refolded, 'decision')} of {versions} refolded, {books}"
        return words + (f", {self.pending} pending" if self.pending else "")

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
        services: their decisions are derived again.
        watch: called with the number of records so far, for progress bars.

    Raises:
        ReplayViolation: a core's state contradicts itself at the end.
    """
    epochs = Epochs.of(log, at_hand(service.name for service in services))
    verifier = Verifier(services, log.header, epochs)
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

    def __init__(self, services: Sequence[Service[Any]], header: Header, epochs: Epochs) -> None:
        self._header, self._epochs = header, epochs
        self.replicas = {service.name: Replica(service, pass_over) for service in services}
        self._deciders = {cls: service.name for service in services for cls in service.emits}
        self._requesters = {(service.name, cls) for service in services for cls in service.requests}
        self._awaiting: dict[str, Expectations] = {}
        """{event id: where it is expected} of derived decisions that the log has not shown yet."""
        self._decisions = {service.name: Expectations(service.name, self._awaiting) for service in services}
        self._orders: dict[str, Expectations] = {}
        """{node id: what was ordered of it}."""
        self._alive = dict.fromkeys(self.replicas)
        """Services with a core that could handle everything so far."""
        self._joined = {name: Joined() for name in self.replicas}
        """Inputs that were handled under rules that are not at hand."""
        self._recorded = {name: Recorded(name) for name in self.replicas}
        self._held: dict[str, list[tuple[Envelope, Message]]] = {name: [] for name in self.replicas}
        """{service: inputs that it has handled in an epoch before its beginning is read}."""
        self._ledger = Ledger() if epochs.others else None
        self._facts = Facts(self.replicas, epochs)
        self._differences: list[Difference] = []
        self._latest: Message
        """What was read last."""
        self._events = 0
        self._end = 0
        self._last_offsets: dict[str, int] = {}

    def take(self, message: Message) -> None:
        """The next message. Those of other topics than control and orders are passed over."""
        self._latest = message
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
        self._check_key(found.envelope, message)
        self._feed(found.envelope, message)
        if self._ledger is not None:
            self._ledger.take(record_of(message, found.envelope))

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
            if self._recorded[decider].knows(envelope.causation_id):
                self._meet_recorded(decider, envelope, found, message)
            else:
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

    def _meet_recorded(self, decider: str, envelope: Envelope, found: Read, message: Message) -> None:
        """A decision under rules that are not at hand: it must belong to its cause, and the state is folded of it."""
        if found.difference is None:
            self._differences += self._recorded[decider].check(envelope, message)
        joined = self._joined[decider]
        if envelope.event.topic is not Topic.CONTROL:
            self._facts.derived(envelope)
        elif joined.expects(envelope.causation_id):
            for handled in joined.output(envelope):
                self._refold(decider, handled, message)
        else:
            sentence = f"{name_of(envelope)}: {decider} has decided on a later event before"
            self._differences.append(wrong(Kind.MISPLACED, message, sentence, envelope=envelope, service=decider))

    def _refold(self, name: str, handled: Handled, message: Message) -> None:
        """Fold an input and its decisions; `message` is what is being read."""
        if name not in self._alive:
            return
        try:
            self.replicas[name].refold(handled.input, handled.outputs)
        except Exception as error:
            self._is_done(name, handled.input, message, error)
        else:
            self._facts.took(name, handled.input)

    def _meet(self, decider: str, envelope: Envelope, found: Read, message: Message) -> None:
        self._mend(envelope, message)
        expectations = self._decisions[decider]
        if envelope.event.topic is Topic.CONTROL:
            self._recorded[decider].numbered(envelope)
        else:
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

    def _check_key(self, envelope: Envelope, message: Message) -> None:
        """No digest covers it, and on Kafka it decides the partition, and so who reads the record at all."""
        expected = envelope.event.subject
        if _type_of(message) != envelope.event.wire_type:  # upcast: what was the key then, its writer has noted
            expected = dict(message.headers).get("ce_partitionkey", message.key.encode()).decode(errors="replace")
        if message.key == expected:
            return
        fields = [FieldDifference(field="key", expected=expected, found=message.key)]
        sentence = f"the key of {name_of(envelope)} is not the one that it is written with"
        self._differences.append(wrong(Kind.ALTERED, message, sentence, envelope=envelope, fields=fields))

    def _check_headers(self, envelope: Envelope, message: Message) -> None:
        """The attributes that the digest does not cover follow from the event."""
        if _type_of(message) != envelope.event.wire_type:
            return  # an old version of the event, upcast: written by an older Sanjaya
        dated = envelope.said_s is not None
        expected = [*wire.attributes(envelope, dated=dated), ("content-type", wire.CONTENT_TYPE)]
        fields = header_differences(expected, message)
        if fields:
            sentence = f"the attributes of {name_of(envelope)} contradict the event"
            self._differences.append(wrong(Kind.ALTERED, message, sentence, envelope=envelope, fields=fields))

    def _feed(self, envelope: Envelope, message: Message) -> None:
        """Let every core take the record; what it decides must be on the log from here on.

        `message` is where it stands, or where it should have stood at the latest.
        """
        if envelope.event.topic is not Topic.CONTROL:
            return
        if isinstance(envelope.event, ServiceStarted):
            self._begin_epoch(envelope.event, message)
        for name in list(self._alive):
            if self.replicas[name].service.machine.reads(envelope.event):
                self._handle(name, envelope, message)

    def _begin_epoch(self, event: ServiceStarted, message: Message) -> None:
        """Whatever the service had handled before, it had handled completely; what it handles now was held back."""
        name = event.service
        if name not in self._alive:
            return
        for handled in self._joined[name].complete(event.next_offset):
            self._refold(name, handled, message)
        held, self._held[name] = self._held[name], []
        for envelope, held_message in held:
            self._handle(name, envelope, held_message, read_to=message.offset)

    def _handle(self, name: str, envelope: Envelope, message: Message, read_to: int | None = None) -> None:
        """The service takes an input, in the way of the epoch in which it did.

        Args:
            name: the service.
            envelope: the input.
            message: where it stands, or should have stood.
            read_to: how far the log has been read; None: to there.
        """
        epoch = self._epochs.deciding(name, message.offset)
        if epoch.started_at > (message.offset if read_to is None else read_to):
            self._held[name].append((envelope, message))
        elif self._epochs.is_at_hand(name, epoch):
            self._decide(name, envelope, message)
        else:
            self._joined[name].input(envelope, message.offset)
            self._recorded[name].input(envelope, message.offset)

    def _decide(self, name: str, envelope: Envelope, message: Message) -> None:
        """What the service decides must be on the log from here on."""
        outputs = self._take(name, envelope, message)
        self._facts.took(name, envelope)
        cause = _cause(envelope, message.offset)
        for output in outputs:
            if output.event.topic is Topic.CONTROL:
                self._decisions[name].expect(output, cause)
            else:
                self._facts.derived(output)
                self._orders_of(output.event, name).expect(output, cause)

    def _take(self, name: str, envelope: Envelope, message: Message) -> list[Envelope]:
        """What the core decides. A record that was tampered with may be one that it cannot handle."""
        try:
            return self.replicas[name].handle(envelope)
        except Exception as error:
            self._is_done(name, envelope, message, error)
            return []

    def _is_done(self, name: str, envelope: Envelope, message: Message, error: Exception) -> None:
        """Whatever a core raises is reported with the place, and nothing more is asked of that core."""
        self._alive.pop(name, None)
        sentence = f"{name} cannot handle {name_of(envelope)}: {error!r}"
        self._differences.append(wrong(Kind.UNHANDLED, message, sentence, envelope=envelope, service=name))

    def finish(self) -> Verification:
        """The log is over.

        Raises:
            ReplayViolation: a core's state contradicts itself.
        """
        self._fold_the_rest()
        pending = self._close()
        compared = Topic.ORDERS in self._header.topics
        self._differences += self._facts.close(with_orders=compared)
        if compared:
            for recorded in self._recorded.values():
                self._differences += recorded.gaps()
        if self._ledger is not None:
            self._differences += [unbalanced(violation) for violation in self._ledger.close().violations]
        check_invariants({name: self.replicas[name] for name in self._alive}, self._end - 1)
        matched = [*self._decisions.values(), *(self._orders.values() if compared else ())]
        return Verification(
            events=self._events,
            decisions=sum(expectations.matched for expectations in matched),
            refolded=sum(recorded.decisions for recorded in self._recorded.values()),
            versions=self._epochs.others,
            pending=pending,
            differences=len(self._differences),
            first=self._differences[0] if self._differences else None,
            details=self._differences[:MOST_DETAILS],
            state_hashes={name: replica.state_hash for name, replica in self.replicas.items()},
            orders_compared=compared,
        )

    def _fold_the_rest(self) -> None:
        """Up to the end of the log, or as far as its services had come."""
        for name, joined in self._joined.items():
            position = self._header.position(name)
            for handled in joined.complete(self._end if position is None else position):
                self._refold(name, handled, self._latest)

    def _close(self) -> int:
        pending = 0
        for name, expectations in self._decisions.items():
            if name not in self._alive:
                continue
            pending += expectations.close(self._header.position(name), self._end, CONTROL, self._differences)
        if Topic.ORDERS not in self._header.topics:
            return pending
        for node_id, expectations in self._orders.items():
            service = expectations.service
            if service not in self._alive:
                continue
            where = f"orders of {node_id}"
            pending += expectations.close(self._header.position(service), self._end, where, self._differences)
        return pending


def _type_of(message: Message) -> str:
    return dict(message.headers).get("ce_type", b"").decode()


def _cause(envelope: Envelope, offset: int) -> Cause:
    return Cause(offset=offset, id=envelope.id, event=type(envelope.event).__name__, subject=envelope.event.subject)
