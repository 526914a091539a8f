"""CloudEvents 1.0 in Kafka's binary mode: attributes in `ce_*` headers, the event as JSON in the value.

The headers are written by hand (the SDK is 20 times slower); a test holds them against the SDK. `ce_digest`
is a checksum over the identity and the data: a record that was altered afterwards does not decode.

`ce_clock: log` marks a record that is dated by the log's clock: `ce_time` is what its source says, and decides nothing.
Records of older versions are without it, and keep the date that their source gave them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

import msgspec

from libs.contracts import catalogue, upcast
from libs.contracts.base import Event, Topic, event_classes
from libs.contracts.envelope import Envelope, whole_microseconds
from libs.contracts.learned import learned

Headers = list[tuple[str, bytes]]

CONTENT_TYPE = b"application/json"
DATASCHEMA_PREFIX = "urn:sanjaya:schema:"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_encoder = msgspec.json.Encoder()

assert catalogue.OWNERS  # importing the catalogue fills the registry of event types
_decoders = {cls.wire_type: learned(cls) for cls in event_classes()}
_WITHOUT_GAPS = (Topic.CONTROL, Topic.ORDERS)
"""No record of these is passed over because it cannot be read."""


class Undecodable(Exception):
    """A record cannot be read as an event: the message says which part, what was seen and what was expected."""


class Unknown(Undecodable):
    """The record's type is none that this version knows, in any version: a consumer may pass over it."""


class Newer(Undecodable):
    """The record is of a newer version of a type than this one knows: a consumer that passed over it would be wrong."""


class Altered(Undecodable):
    """The record's data or identity does not match the digest that was written with it."""


class Unencodable(Exception):
    """An event cannot be written so that it can be read: the message says which part, what was seen and expected."""


def encode_data(event: Event) -> bytes:
    """The canonical bytes of an event's data. The same event gives the same bytes in every process.

    Raises:
        Unencodable: they cannot be decoded, and the readers of its topic would stop there for ever.
    """
    data = _encoder.encode(event)
    # JSON has no word for what is infinite or no number: it is written as null, which most fields do not take.
    if b"null" in data and event.topic in _WITHOUT_GAPS:
        try:
            _decoders[event.wire_type].decode(data)
        except msgspec.ValidationError as error:
            raise Unencodable(f"{event.wire_type} of {event.subject}: {error}") from None
    return data


DIGESTED = ("ce_id", "ce_type", "ce_source", "ce_time", "ce_causationid", "ce_sequence", "ce_clock")
"""What digests cover, besides the data."""
DIGESTED_UNDATED = DIGESTED[:-1]
"""What those of logs without a clock of their own cover."""
DIGESTED_AT_FIRST = ("ce_id", "ce_type", "ce_time")
"""What those of the first logs cover."""
CLOCK = "ce_clock"
BY_LOG = b"log"


def digest(headers: Mapping[str, bytes], data: bytes, names: Sequence[str] = DIGESTED) -> str:
    """32 hex digits over what must not change after the fact: the identity, the cause and the data.

    Args:
        headers: the record's, by name.
        names: the headers that it covers; others than today's for records of older logs.
    """
    parts = [headers.get(name, b"") for name in names]
    parts.append(data)
    return blake2b(b"\0".join(parts), digest_size=16).hexdigest()


def encode(envelope: Envelope) -> tuple[Headers, bytes]:
    """Headers and value of one record."""
    data = encode_data(envelope.event)
    headers = attributes(envelope)
    return [*headers, ("ce_digest", digest(dict(headers), data).encode()), ("content-type", CONTENT_TYPE)], data


def dated_by_log(headers: Headers, value: bytes) -> Headers:
    """The headers of a record as the log's clock needs them: those of an older agent lack the mark, and get it.

    What is no record of an event goes as it is.
    """
    names = {name for name, _ in headers}
    if CLOCK in names or "ce_id" not in names:
        return headers
    marked = [*((name, text) for name, text in headers if name != "ce_digest"), (CLOCK, BY_LOG)]
    return [*marked, ("ce_digest", digest(dict(marked), value).encode())]


def attributes(envelope: Envelope, *, dated: bool = True) -> Headers:
    """The headers of one record but for what depends on its data: a record of an older version has the same.

    Args:
        envelope: the record's.
        dated: by the log's clock, as all of this version are.
    """
    event = envelope.event
    time = rfc3339(envelope.source_time_s)
    subject = event.subject
    pairs = [
        ("ce_specversion", "1.0"),
        ("ce_id", envelope.id),
        ("ce_source", f"/sanjaya/{envelope.source}"),
        ("ce_type", event.wire_type),
        ("ce_subject", subject),
        ("ce_time", time),
        ("ce_dataschema", DATASCHEMA_PREFIX + event.wire_type),
        ("ce_partitionkey", subject),
        ("ce_correlationid", envelope.correlation_id),
        ("ce_traceparent", envelope.traceparent),
    ]
    if envelope.causation_id:
        pairs.append(("ce_causationid", envelope.causation_id))
    if envelope.sequence is not None:
        pairs.append(("ce_sequence", str(envelope.sequence)))
    if dated:
        pairs.append((CLOCK, "log"))
    return [(name, value.encode()) for name, value in pairs]


def decode(headers: Headers, value: bytes, appended_at_s: float | None = None) -> Envelope:
    """Read one record.

    Args:
        headers: the record's.
        value: its data.
        appended_at_s: when the log took it; None where the record is on no log.

    Raises:
        Altered: the digest does not match.
        Unknown: no such type.
        Newer: a newer version of a type that is known.
        Undecodable: a header is missing, or the data does not fit its class.
    """
    h = dict(headers)
    try:
        wire_type, time, event_id = h["ce_type"].decode(), h["ce_time"].decode(), h["ce_id"].decode()
        source = h["ce_source"].decode().removeprefix("/sanjaya/")
        written = h["ce_digest"].decode()
        sequence = int(h["ce_sequence"]) if "ce_sequence" in h else None
        causation_id = h.get("ce_causationid", b"").decode()
        time_s = parse_rfc3339(time)
    except KeyError as missing:
        raise Undecodable(f"header {missing} is missing; a CloudEvent of this cell has it") from None
    except ValueError as error:
        raise Undecodable(f"a header cannot be read: {error}") from None
    dated = CLOCK in h
    if written != digest(h, value, DIGESTED if dated else DIGESTED_UNDATED) and (
        dated or written != digest(h, value, DIGESTED_AT_FIRST)
    ):
        raise Altered(f"event {event_id} ({wire_type}) was altered after it was written: its digest differs")
    return Envelope(
        id=event_id,
        source=source,
        time_s=whole_microseconds(appended_at_s) if dated and appended_at_s is not None else time_s,
        event=decode_data(wire_type, value),
        causation_id=causation_id,
        sequence=sequence,
        said_s=time_s if dated and appended_at_s is not None else None,
    )


def decode_data(wire_type: str, value: bytes) -> Event:
    """Read an event's data, upcasting an old version to today's.

    Raises:
        Unknown: no such type.
        Newer: a newer version of a type that is known.
        Undecodable: data that does not fit.
    """
    current, value = upcast.to_current(wire_type, value)
    decoder = _decoders.get(current)
    if decoder is None:
        raise _unknown(wire_type)
    try:
        return decoder.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Undecodable(f"data of {wire_type}: {error}") from None


def _unknown(wire_type: str) -> Undecodable:
    name, _, _ = wire_type.rpartition(".v")
    known = [cls.wire_type for cls in event_classes() if cls.wire_type.rpartition(".v")[0] == name]
    if known:
        return Newer(f"{wire_type} was written by a newer version than this one, which knows {known[-1]}: upgrade it")
    return Unknown(f"unknown event type {wire_type!r}: this version does not know it")


def rfc3339(time_s: float) -> str:
    """`2026-11-20T22:14:03.250000Z` for seconds since the epoch."""
    moment = _EPOCH + timedelta(microseconds=round(time_s * 1e6))
    return moment.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def parse_rfc3339(text: str) -> float:
    """Seconds since the epoch, whole microseconds.

    Raises:
        ValueError: not an RFC 3339 time stamp.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"time {text!r} has no time zone: expected RFC 3339, e.g. 2026-11-20T22:14:03.250000Z")
    return moment.timestamp()  # of a time with a zone it is computed in whole microseconds, without the local clock
