"""What was accepted before: the gateway's own events on the log, by id."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from libs.contracts.base import Event
from libs.contracts.envelope import Envelope
from libs.contracts.gateway import ArrayArrived, DagArrived, JobArrived, SweepArrived
from libs.contracts.wire import encode_data

_ARRIVALS = (JobArrived, ArrayArrived, DagArrived, SweepArrived)


@dataclass(frozen=True, slots=True)
class Accepted:
    """An event of the gateway that is on the log."""

    event_id: str
    offset: int
    digest: bytes
    """Of the request that it was made of: a repeated key must come with the same request."""
    arrival: str | None
    """Id of the job, array, DAG or sweep that arrived by it; the log's word, whatever id the key would give today."""
    time_s: float
    """The envelope's time, in seconds since the epoch."""


def accepted(envelope: Envelope, offset: int) -> Accepted:
    """The entry of a gateway's event that stands at this offset."""
    event = envelope.event
    return Accepted(envelope.id, offset, digest_of(event), arrives(event), envelope.time_s)


def arrives(event: Event) -> str | None:
    """Id of the job, array, DAG or sweep that an event brings into the cell; None for every other event."""
    return event.subject if isinstance(event, _ARRIVALS) else None


@dataclass
class Recent:
    """Entries that are on the log and not in the stored index yet: a few seconds' worth."""

    _accepted: dict[str, Accepted] = field(default_factory=dict)
    _arrivals: dict[str, Accepted] = field(default_factory=dict)

    def add(self, entry: Accepted) -> None:
        """An event of the gateway has been appended."""
        self._accepted[entry.event_id] = entry
        if entry.arrival is not None:
            self._arrivals[entry.arrival] = entry

    def stored(self, entries: Iterable[Accepted]) -> None:
        """The stored index has these: they are forgotten here."""
        for entry in entries:
            self._accepted.pop(entry.event_id, None)
            if entry.arrival is not None:
                self._arrivals.pop(entry.arrival, None)

    def get(self, event_id: str) -> Accepted | None:
        """The entry of the event with this id."""
        return self._accepted.get(event_id)

    def arrival_of(self, subject: str) -> Accepted | None:
        """The entry by which a job or a sweep arrived."""
        return self._arrivals.get(subject)

    def all(self) -> list[Accepted]:
        """Every entry, in order of offset."""
        return list(self._accepted.values())

    def __len__(self) -> int:
        return len(self._accepted)


def digest_of(event: Event) -> bytes:
    """What two requests with the same key are compared by (16 bytes)."""
    if isinstance(event, _ARRIVALS) and event.request_digest:
        return bytes.fromhex(event.request_digest)
    return hashlib.blake2b(event.wire_type.encode() + b"\0" + encode_data(event), digest_size=16).digest()


def request_digest(canonical_body: bytes) -> str:
    """32 hex digits over a request's canonical body, for the `request_digest` of an arrival."""
    return hashlib.blake2b(canonical_body, digest_size=16).hexdigest()
