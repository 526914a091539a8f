"""What was accepted before: the gateway's own events on the log, by id."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from libs.contracts.base import Event
from libs.contracts.envelope import Envelope
from libs.contracts.gateway import OWNER, JobArrived, SweepArrived
from libs.contracts.wire import encode_data


@dataclass(frozen=True, slots=True)
class Accepted:
    """An event of the gateway that is on the log."""

    offset: int
    digest: bytes
    """Of the request that it was made of: a repeated key must come with the same request."""


@dataclass
class Index:
    """Every event of the gateway, from the log's beginning up to `next_offset`. About 300 bytes per request."""

    next_offset: int = 0
    _accepted: dict[str, Accepted] = field(default_factory=dict)
    _arrivals: dict[str, int] = field(default_factory=dict)

    def add(self, envelope: Envelope, offset: int) -> None:
        """An event of the gateway stands at this offset."""
        if envelope.source == OWNER and envelope.id not in self._accepted:
            self._accepted[envelope.id] = Accepted(offset, digest_of(envelope.event))
            if isinstance(envelope.event, JobArrived | SweepArrived):
                self._arrivals[envelope.event.subject] = offset
        self.next_offset = max(self.next_offset, offset + 1)

    def get(self, event_id: str) -> Accepted | None:
        """The event with this id, if it is on the log."""
        return self._accepted.get(event_id)

    def arrival_of(self, subject: str) -> int | None:
        """Where the arrival of a job or a sweep stands, None for one that this gateway has not accepted."""
        return self._arrivals.get(subject)

    def __len__(self) -> int:
        return len(self._accepted)


def digest_of(event: Event) -> bytes:
    """What two requests with the same key are compared by (16 bytes)."""
    if isinstance(event, JobArrived | SweepArrived) and event.request_digest:
        return bytes.fromhex(event.request_digest)
    return hashlib.blake2b(event.wire_type.encode() + b"\0" + encode_data(event), digest_size=16).digest()


def request_digest(canonical_body: bytes) -> str:
    """32 hex digits over a request's canonical body, for the `request_digest` of an arrival."""
    return hashlib.blake2b(canonical_body, digest_size=16).hexdigest()
