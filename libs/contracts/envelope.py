"""An event and its CloudEvents 1.0 context."""

from __future__ import annotations

import hashlib

import msgspec

from libs.contracts.base import Event


class Envelope(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event as it stands on the log.

    The time is logical: a decision carries the time of the event that caused it. When a record was really
    appended is the log's own knowledge (`Record.appended_at_s`).
    """

    id: str
    """Unique per event; derived from the cause for decisions, from the request or the journal for facts."""
    source: str
    """What emitted it: a service's name, `gateway`, or `agent/<node id>`."""
    time_s: float
    """Seconds since the epoch, whole microseconds (`whole_microseconds`)."""
    event: Event
    causation_id: str = ""
    """Id of the event that caused this one; empty for what comes from outside."""
    sequence: int | None = None
    """The source's own running number, where it keeps one."""

    @property
    def correlation_id(self) -> str:
        """What the event belongs to; all events of one job share it, and with it their trace."""
        return self.event.subject

    @property
    def traceparent(self) -> str:
        """W3C trace context, derived from the ids: the trace is the job, the span is this event."""
        trace = hashlib.blake2b(self.correlation_id.encode(), digest_size=16).hexdigest()
        return f"00-{trace}-{span_id(self.id)}-01"


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An envelope at its place on the log."""

    topic: str
    """Without the cell's prefix."""
    partition: int
    offset: int
    appended_at_s: float
    envelope: Envelope


def span_id(event_id: str) -> str:
    """Span id (16 hex digits) of the event with this id."""
    return hashlib.blake2b(event_id.encode(), digest_size=8).hexdigest()


def whole_microseconds(time_s: float) -> float:
    """The nearest time that survives a round trip through an RFC 3339 time stamp."""
    return round(time_s * 1e6) / 1e6
