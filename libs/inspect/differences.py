"""What can be wrong with a log, and how it is said."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from libs.bus.port import Message
from libs.contracts.envelope import Envelope
from libs.contracts.wire import rfc3339
from libs.inspect.conservation import Violation
from libs.inspect.logs import place

NOTHING = "(nothing)"


class Kind(StrEnum):
    """What kind of difference it is."""

    ALTERED = "altered"
    """The record's bytes are not those that were written: its digest or its headers contradict it."""
    CHANGED = "changed"
    """The decision that stands there is not the one that follows from its cause."""
    MISSING = "missing"
    """A decision that follows from a record is not on the log."""
    MISPLACED = "misplaced"
    """The record is on the log, but at another place than its own."""
    UNEXPECTED = "unexpected"
    """A decision stands on the log that nothing led to."""
    REPEATED = "repeated"
    """An event id stands on the log twice."""
    FORGED = "forged"
    """A fact is signed by a source that cannot know it, or names a cause that is not on the log."""
    GAP = "gap"
    """An offset is missing where offsets have no gaps: a record was taken away."""
    UNHANDLED = "unhandled"
    """A core cannot handle the record; what it decides from there on is not compared."""
    UNREADABLE = "unreadable"
    """The record cannot be decoded."""
    UNBALANCED = "unbalanced"
    """A job or a GPU is accounted for twice, or not at all."""


class FieldDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One field on which the log and the derivation differ."""

    field: str
    """Path within the event (`gang[0].node_id`), or `ce:…` for an attribute of the envelope."""
    expected: str
    found: str


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """The event that a decision was derived from."""

    offset: int
    """On control."""
    id: str
    event: str
    """Class name."""
    subject: str


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong, and where."""

    kind: Kind
    place: str
    """`topic/partition@offset` of the record, or of the place where something is missing."""
    offset: int
    event: str
    """Class name of the event, or its wire type when it cannot be decoded."""
    subject: str
    service: str
    """The service that has decided it; empty for facts."""
    message: str
    """One sentence."""
    fields: list[FieldDifference] = []
    cause: Cause | None = None

    def lines(self) -> list[str]:
        """The difference for people: what and where, field by field, and the cause."""
        shown = [f"{self.place}: {self.message}"]
        shown += [f"    {f.field}: expected {f.expected}, found {f.found}" for f in self.fields]
        if self.cause is not None:
            cause = self.cause
            shown.append(f"    cause: {cause.event} of {cause.subject} at control/0@{cause.offset} ({cause.id})")
        return shown


def name_of(envelope: Envelope) -> str:
    """`JobPlaced of j-7f3a`."""
    return f"{type(envelope.event).__name__} of {envelope.event.subject}"


def envelope_differences(expected: Envelope, found: Envelope) -> list[FieldDifference]:
    """Field by field, envelope first."""
    pairs = [
        ("ce:id", expected.id, found.id),
        ("ce:type", expected.event.wire_type, found.event.wire_type),
        ("ce:source", expected.source, found.source),
        ("ce:time", rfc3339(expected.source_time_s), rfc3339(found.source_time_s)),
        ("ce:causationid", expected.causation_id or NOTHING, found.causation_id or NOTHING),
        ("ce:sequence", str(expected.sequence), str(found.sequence)),
    ]
    differing = [FieldDifference(field=f, expected=e, found=g) for f, e, g in pairs if e != g]
    return differing + data_differences(expected.event, found.event)


def data_differences(expected: msgspec.Struct, found: msgspec.Struct) -> list[FieldDifference]:
    """The fields of two events that differ, by path."""
    left, right = flat(msgspec.to_builtins(expected)), flat(msgspec.to_builtins(found))
    fields = [*left, *(field for field in right if field not in left)]
    return [
        FieldDifference(field=f, expected=left.get(f, NOTHING), found=right.get(f, NOTHING))
        for f in fields
        if left.get(f, NOTHING) != right.get(f, NOTHING)
    ]


def flat(value: Any, path: str = "") -> dict[str, str]:
    """{path: JSON text} of all leaves of a JSON value."""
    if isinstance(value, dict) and value:
        return {k: v for key, item in value.items() for k, v in flat(item, f"{path}.{key}" if path else key).items()}
    if isinstance(value, list) and value:
        return {k: v for i, item in enumerate(value) for k, v in flat(item, f"{path}[{i}]").items()}
    return {path: msgspec.json.encode(value).decode()}


def header_differences(expected: list[tuple[str, bytes]], message: Message) -> list[FieldDifference]:
    """Attributes that should stand in a record's headers and do not, or not so."""
    found = dict(message.headers)
    return [
        FieldDifference(
            field=name.replace("ce_", "ce:", 1),
            expected=value.decode(errors="replace"),
            found=found[name].decode(errors="replace") if name in found else NOTHING,
        )
        for name, value in expected
        if found.get(name) != value
    ]


def unbalanced(violation: Violation) -> Difference:
    """The books of the log do not balance."""
    return Difference(
        kind=Kind.UNBALANCED,
        place=f"control/0@{violation.offset}",
        offset=violation.offset,
        event="",
        subject="",
        service="",
        message=violation.message,
    )


def wrong(
    kind: Kind,
    message: Message,
    sentence: str,
    *,
    envelope: Envelope | None = None,
    service: str = "",
    fields: list[FieldDifference] | None = None,
    cause: Cause | None = None,
) -> Difference:
    """A difference at a record that stands on the log."""
    headers = dict(message.headers)
    return Difference(
        kind=kind,
        place=place(message),
        offset=message.offset,
        event=type(envelope.event).__name__ if envelope else headers.get("ce_type", b"?").decode(errors="replace"),
        subject=envelope.event.subject if envelope else message.key,
        service=service,
        message=sentence,
        fields=fields or [],
        cause=cause,
    )
