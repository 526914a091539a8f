"""What a shell reads of a message on control: mostly its headers, and only where it matters the event."""

from __future__ import annotations

from typing import Any

from libs.bus import codec
from libs.bus.port import Message
from libs.contracts.base import event_classes
from libs.contracts.envelope import Envelope
from libs.contracts.runtime import TimerFired
from libs.contracts.wire import Undecodable, Unknown
from libs.kernel.machine import Machine
from libs.runtime.exits import CoreFailed


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
        return codec.envelope(message)
    except Unknown:
        return None
    except Undecodable as error:
        raise CoreFailed(f"control record cannot be decoded: {error}") from error


def known(message: Message) -> Envelope:
    """As `decoded`, for a type that is known."""
    envelope = decoded(message)
    assert envelope is not None
    return envelope


def wire_type(message: Message) -> bytes:
    """The event's wire name, from the headers alone; empty when there is none."""
    return header(message, "ce_type")


def header(message: Message, name: str) -> bytes:
    """A header's value; empty when there is none."""
    for found, value in message.headers:
        if found == name:
            return value
    return b""
