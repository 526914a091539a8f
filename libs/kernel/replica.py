"""A core at a position of the control topic: the same object in all four shells."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Any, Generic, TypeVar

import msgspec

from libs.contracts.envelope import Envelope, Record
from libs.kernel.ids import derived_id
from libs.kernel.service import Service

S = TypeVar("S")

REMEMBERED_INPUTS = 4096
"""How many input ids are kept to drop duplicates; a core's own state guards against older ones."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A replica's state after all records before `next_offset`."""

    service: str
    next_offset: int
    now_s: float
    recent_inputs: list[str]
    state: bytes
    state_hash: str


class SnapshotDamaged(Exception):
    """A snapshot does not fit its hash, its service or today's state class: recover from the log instead."""


class UndeclaredOutput(Exception):
    """A core emitted an event that its door plate does not list."""


class Replica(Generic[S]):
    """Feeds a core with records and derives the envelopes of what it decides.

    Deterministic: two replicas of the same service that stepped through the same records have the same
    state bytes and returned the same envelopes.
    """

    def __init__(self, service: Service[S]) -> None:
        self.service = service
        self._decided = frozenset((*service.emits, *service.requests))
        self.state: S = service.state_type()
        self.next_offset = 0
        self.now_s = 0.0
        self._recent: OrderedDict[str, None] = OrderedDict()

    @property
    def next_wakeup(self) -> float | None:
        """When the core wants to be woken, in seconds since the epoch."""
        return self.service.next_wakeup(self.state)

    def step(self, record: Record) -> list[Envelope]:
        """Take the next control record.

        Records of other services' concern, records already seen (by offset or by id) change nothing.

        Raises:
            UndeclaredOutput: the core broke its own declaration.
        """
        if record.offset < self.next_offset:
            return []
        self.next_offset = record.offset + 1
        return self.take(record.envelope)

    def take(self, envelope: Envelope) -> list[Envelope]:
        """As `step`, for an envelope whose place on the log does not matter."""
        return self.handle(envelope) if self.service.machine.reads(envelope.event) else []

    def handle(self, envelope: Envelope) -> list[Envelope]:
        """As `take`, for an envelope that is known to be an input of the service (`Machine.reads`)."""
        if envelope.id in self._recent:
            return []
        self._recent[envelope.id] = None
        if len(self._recent) > REMEMBERED_INPUTS:
            self._recent.popitem(last=False)
        if envelope.time_s > self.now_s:
            self.now_s = envelope.time_s
        outputs = self.service.machine.handle(self.state, envelope, self.now_s)
        return [self._envelope(envelope, ordinal, event) for ordinal, event in enumerate(outputs)]

    def _envelope(self, cause: Envelope, ordinal: int, event: Any) -> Envelope:
        if type(event) not in self._decided:
            raise UndeclaredOutput(f"{self.service.name} emitted {type(event).__name__}, which it does not declare")
        return Envelope(
            id=derived_id(self.service.name, cause.id, ordinal),
            source=self.service.name,
            time_s=self.now_s,
            event=event,
            causation_id=cause.id,
        )

    def check(self) -> None:
        """Raises InvariantViolated when the state contradicts itself."""
        self.service.check(self.state)

    @property
    def state_bytes(self) -> bytes:
        """The whole state in canonical form."""
        return msgspec.json.encode(self.state)

    @property
    def state_hash(self) -> str:
        """SHA-256 over the canonical state, 64 hex digits."""
        return hashlib.sha256(self.state_bytes).hexdigest()

    def snapshot(self) -> Snapshot:
        """The state and position, to be restored later."""
        state = self.state_bytes
        return Snapshot(
            service=self.service.name,
            next_offset=self.next_offset,
            now_s=self.now_s,
            recent_inputs=list(self._recent),
            state=state,
            state_hash=hashlib.sha256(state).hexdigest(),
        )

    @classmethod
    def restore(cls, service: Service[S], snapshot: Snapshot) -> Replica[S]:
        """A replica as it was when the snapshot was taken.

        Raises:
            SnapshotDamaged: the snapshot belongs to another service, or its bytes or their hash do not fit.
        """
        if snapshot.service != service.name:
            raise SnapshotDamaged(f"snapshot of {snapshot.service!r} offered to {service.name!r}")
        replica = cls(service)
        try:
            replica.state = msgspec.json.decode(snapshot.state, type=service.state_type)
        except msgspec.DecodeError as error:
            raise SnapshotDamaged(f"snapshot of {service.name} does not fit its state class: {error}") from None
        if replica.state_hash != snapshot.state_hash:
            raise SnapshotDamaged(f"snapshot of {service.name} at offset {snapshot.next_offset}: state hash differs")
        replica.next_offset, replica.now_s = snapshot.next_offset, snapshot.now_s
        replica._recent = OrderedDict.fromkeys(snapshot.recent_inputs)
        return replica
