"""An event and its CloudEvents 1.0 context."""

from __future__ import annotations

import hashlib

import msgspec

from libs.contracts.base import Event


class Envelope(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event as it stands on the log."""

    id: str
    """Unique per event; derived from the cause for decisions, from the request or the journal for facts."""
    source: str
    """What emitted it: a service's name, `gateway`, or `agent/<node id>`."""
    time_s: float
    """Time of the event by the log's clock: when the log took the record, seconds since the epoch. Before the event is
    appended, and on logs of versions that had no such clock, the time of its source."""
    event: Event
    causation_id: str = ""
    """Id of the event that caused this one; empty for what comes from outside."""
    sequence: int | None = None
    """The source's own running number, where it keeps one."""
    said_s: float | None = None
    """Time by the clock of the source (`ce_time`), whole microseconds. A decision has that of the core that made it.
    None: not read from a log, or from one of a version without a clock of its own; then it is `time_s`."""

    @property
    def source_time_s(self) -> float:
        """Time by the clock of the source, seconds since the epoch. It is shown, and decides nothing."""
        return self.time_s if self.said_s is None else self.said_s

    def as_sent(self) -> Envelope:
        """The envelope as its source made it: without what the log added."""
        return self if self.said_s is None else msgspec.structs.replace(self, time_s=self.said_s, said_s=None)

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


def not_before(time_s: float) -> float:
    """The first whole microsecond that is not before a time."""
    nearest_s = whole_microseconds(time_s)
    return nearest_s if nearest_s >= time_s else whole_microseconds(time_s + 1e-6)
