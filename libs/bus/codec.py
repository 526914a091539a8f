"""Between envelopes and the bus's messages."""

from __future__ import annotations

from libs.bus.port import Message, Outgoing
from libs.contracts import wire
from libs.contracts.envelope import Envelope, Record


def outgoing(envelope: Envelope) -> Outgoing:
    """The message that carries this envelope, on the topic that its event belongs to."""
    headers, value = wire.encode(envelope)
    return Outgoing(topic=envelope.event.topic, key=envelope.event.subject, headers=headers, value=value)


def envelope(message: Message) -> Envelope:
    """The envelope in a message.

    Raises:
        wire.Undecodable: it is no event of this product; the message names topic, partition and offset.
    """
    try:
        return wire.decode(message.headers, message.value, message.appended_at_s)
    except wire.Undecodable as error:
        where = f"{message.partition.topic}/{message.partition.index}@{message.offset}"
        raise type(error)(f"{where}: {error}") from None


def record(message: Message) -> Record:
    """A message as a record: its envelope, and its place on the log. Raises what `envelope` raises."""
    return Record(
        topic=message.partition.topic,
        partition=message.partition.index,
        offset=message.offset,
        appended_at_s=message.appended_at_s,
        envelope=envelope(message),
    )


def message_id(message: Message) -> str:
    """The event's id, from the headers alone; empty when there is none."""
    return dict(message.headers).get("ce_id", b"").decode(errors="replace")
