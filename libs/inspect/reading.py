"""Decoding for the audit: what stands there, even when it should not be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from libs.bus.port import Message
from libs.contracts import wire
from libs.contracts.envelope import Envelope
from libs.inspect.differences import Difference, FieldDifference, Kind, envelope_differences, name_of, wrong


@dataclass(frozen=True)
class Read:
    """What a message says."""

    envelope: Envelope | None
    """What to go on with; None when nothing can be made of the message."""
    difference: Difference | None
    """What is wrong with it."""


def read(message: Message, awaited: Callable[[str], Envelope | None]) -> Read:
    """Decode a message.

    An altered record that is known from the derivation is replaced by what it must have been, so that one
    alteration is one difference; any other altered record is taken as it stands.

    Args:
        awaited: the derived decision with an event id, if the log has not shown it yet.
    """
    try:
        return Read(wire.decode(message.headers, message.value, message.appended_at_s), None)
    except wire.Altered:
        return _altered(message, awaited)
    except wire.Undecodable as error:
        original = awaited(dict(message.headers).get("ce_id", b"").decode(errors="replace"))
        sentence = f"cannot be read: {error}"
        return Read(original, wrong(Kind.UNREADABLE, message, sentence, envelope=original))


def _altered(message: Message, awaited: Callable[[str], Envelope | None]) -> Read:
    found = _as_it_stands(message)
    headers = dict(message.headers)
    original = awaited(headers["ce_id"].decode())
    fields: list[FieldDifference] = []
    if original is not None and found is not None:
        fields = envelope_differences(original, found)
    name = name_of(found) if found is not None else headers["ce_type"].decode()
    sentence = f"{name} was altered after it was written: its digest does not match"
    return Read(original or found, wrong(Kind.ALTERED, message, sentence, envelope=found, fields=fields))


def _as_it_stands(message: Message) -> Envelope | None:
    """The altered record as if it had been written so; None when even that cannot be read."""
    headers = [(name, value) for name, value in message.headers if name != "ce_digest"]
    digest = ("ce_digest", wire.digest(dict(headers), message.value).encode())
    try:
        return wire.decode([*headers, digest], message.value, message.appended_at_s)
    except wire.Undecodable:
        return None
