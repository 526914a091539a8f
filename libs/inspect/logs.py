"""A log as it is inspected: a header and messages, from wherever they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import msgspec

from libs.bus import codec
from libs.bus.partitioner import partition_index
from libs.bus.port import Message, Partition, TopicLayout
from libs.contracts.bad_input import BadInput
from libs.contracts.base import Topic
from libs.contracts.envelope import Envelope, Record
from libs.inspect.rules import rules_of

FORMAT = "sanjaya-log/1"
AUDITED = (Topic.CONTROL, Topic.ORDERS)
"""The topics that a replay reproduces; exported in this order."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of an exported log."""

    format: str = FORMAT
    cell: str
    positions: dict[str, int] | None = None
    """{service: offset of the first control record that it has not handled}; of the others, and None: unknown."""
    created_s: float = 0.0
    contiguous: bool = False
    """Offsets of control have no gaps: where one is missing, a record was taken away. (Kafka leaves gaps.)"""
    topics: tuple[str, ...] = AUDITED
    """What was exported, whether or not there is any record of it."""
    rules: dict[str, str] = {}
    """{service: digest of the rules in force at the log's beginning}: simulations append no ServiceStarted."""

    def position(self, service: str) -> int | None:
        """Offset of the first control record that a service has not handled; None: unknown.

        Exports of earlier versions have 0 for a position that the broker had forgotten.
        """
        return (self.positions or {}).get(service) or None


class Walk(Iterable[Message]):
    """Messages that can be walked over again and again, each time from the first."""

    def __init__(self, begin: Callable[[], Iterator[Message]]) -> None:
        self._begin = begin

    def __iter__(self) -> Iterator[Message]:
        return self._begin()


@dataclass(frozen=True)
class Log:
    """A header and the messages behind it: control in order, then each other partition in order."""

    header: Header
    messages: Iterable[Message]
    """May be walked over again (`Walk`, or a list)."""

    def control(self) -> Iterator[Record]:
        """The control records, decoded.

        Raises:
            wire.Undecodable: with the place.
            BadInput: a record is missing where offsets have no gaps; what is folded of the others would be wrong.
        """
        expected = 0
        for message in self.messages:
            if message.partition.topic is not Topic.CONTROL:
                return
            if self.header.contiguous and message.offset > expected:
                raise BadInput(place(message), f"the record after offset {expected - 1}", f"offset {expected}: a gap")
            expected = message.offset + 1
            yield codec.record(message)

    def records(self) -> Iterator[Record]:
        """All records of the audited topics, decoded.

        Raises:
            wire.Undecodable: with the place.
        """
        return (codec.record(message) for message in self.messages if message.partition.topic in AUDITED)


def place(message: Message) -> str:
    """`control/0@17`, as messages name a record."""
    return f"{message.partition.topic}/{message.partition.index}@{message.offset}"


def record_of(message: Message, envelope: Envelope) -> Record:
    """A record with an envelope that is known already."""
    return Record(
        topic=message.partition.topic,
        partition=message.partition.index,
        offset=message.offset,
        appended_at_s=message.appended_at_s,
        envelope=envelope,
    )


def messages_of(control: Iterable[Envelope], orders: Iterable[Envelope] = ()) -> Iterator[Message]:
    """Envelopes that were never on a bus (a simulation's) as messages, encoded one by one.

    Orders are spread over as many partitions as a new cell has. The time of appending is the event's own.
    """
    for offset, envelope in enumerate(control):
        yield _message(envelope, Partition(Topic.CONTROL, 0), offset)
    count = TopicLayout().partitions[Topic.ORDERS]
    partitions: list[list[Envelope]] = [[] for _ in range(count)]
    for envelope in orders:
        partitions[partition_index(envelope.event.subject, count)].append(envelope)
    for index, envelopes in enumerate(partitions):
        for offset, envelope in enumerate(envelopes):
            yield _message(envelope, Partition(Topic.ORDERS, index), offset)


def _message(envelope: Envelope, partition: Partition, offset: int) -> Message:
    outgoing = codec.outgoing(envelope)
    return Message(
        partition=partition,
        offset=offset,
        key=outgoing.key,
        headers=outgoing.headers,
        value=outgoing.value,
        appended_at_s=envelope.time_s,
    )


def simulated(cell: str, control: list[Envelope], orders: list[Envelope], positions: dict[str, int]) -> Log:
    """The log of a simulation, as if it had been exported."""
    header = Header(cell=cell, positions=positions, contiguous=True, rules=at_hand(positions))
    return Log(header, Walk(partial(messages_of, control, orders)))


def at_hand(services: Iterable[str]) -> dict[str, str]:
    """{service: digest of its rules as they are here}."""
    return {name: rules_of(f"services.{name}.service") for name in services}
