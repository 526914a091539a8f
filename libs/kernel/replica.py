"""A core at a position of the control topic: the same object in all four shells."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

from libs.contracts.base import Topic
from libs.contracts.envelope import Envelope, Record, not_before
from libs.contracts.runtime import ClockRepaired, TimerFired
from libs.kernel.clock import turned_back
from libs.kernel.ids import derived_id
from libs.kernel.machine import Tell
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
    schema: str = ""
    """Of the state class (`schema_of`). A snapshot is read by the very class that has written it, or not at all."""
    rules: str = ""
    """Digest of the rules that folded it: other rules may fold otherwise, and then refold the log."""
    decided: int = 0
    """Decisions on control up to here."""
    timers: int = 0
    """Timers taken up to here."""
    log_dates: bool = False
    """The log has a clock of its own (`Replica.log_dates`)."""


class SnapshotDamaged(Exception):
    """A snapshot does not fit its hash or its service: recover from the log instead."""


class SnapshotOutdated(Exception):
    """A snapshot was made by another version of the service: it is whole, but this version folds the log itself."""


def schema_of(state_type: type) -> str:
    """Names the structure of a state class: 32 hex digits over its fields, their types and defaults, all the way down.

    A field more, with a default, is another schema: what an old snapshot lacks is not what the log would give it.
    """
    schema = msgspec.json.encode(msgspec.json.schema(state_type), order="deterministic")
    return hashlib.blake2b(schema, digest_size=16).hexdigest()


class UndeclaredOutput(Exception):
    """A core emitted an event that it does not own."""


class ImpossibleEvent(Exception):
    """An input cannot be in the state that it meets; the message says which, what was expected, and what was before."""


def refuse(envelope: Envelope, why: str, story: Sequence[str] = ()) -> None:
    """For tests and simulations: an impossible event is a fault of what is tested.

    Args:
        envelope: the event.
        why: it is impossible.
        story: what the log says about its subject, line by line, where there is a log.

    Raises:
        ImpossibleEvent: always.
    """
    said = f"{envelope.event.wire_type} {envelope.id} of {envelope.source}: {why}"
    raise ImpossibleEvent("\n".join((said, *story)))


def pass_over(envelope: Envelope, why: str) -> None:
    """For readers of a recorded log: the event changed nothing when it was live, and changes nothing now."""


class Replica(Generic[S]):
    """Feeds a core with records and derives the envelopes of what it decides.

    Deterministic: two replicas of the same service that stepped through the same records have the same
    state bytes and returned the same envelopes. An event that is impossible in the state (`Machine.judges`) changes
    nothing; `on_impossible` is told of it.
    """

    def __init__(self, service: Service[S], on_impossible: Tell = refuse) -> None:
        self.service = service
        self.on_impossible = on_impossible
        self._emitted, self._requested = frozenset(service.emits), frozenset(service.requests)
        self._decidable = {cls: cls.topic is Topic.CONTROL for cls in (*service.emits, *service.requests)}
        """{type that the service may decide: whether it goes on control}."""
        self.state: S = service.state_type()
        self.next_offset = 0
        self.now_s = 0.0
        """The core's present: when the log took the latest input, never earlier than that of any input before."""
        self.log_dates = False
        """An input was dated by the log's clock. From then on records that are not, those of older versions, are taken
        at the present as it is: no source can move it."""
        self.decided = 0
        """Decisions on control so far. Each carries its number (`Envelope.sequence`): none can be taken away."""
        self.timers = 0
        """Own timers taken so far."""
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
        """As `step`, where the envelope's place on the log does not matter."""
        return self.handle(envelope) if self.service.machine.reads(envelope.event) else []

    def handle(self, envelope: Envelope) -> list[Envelope]:
        """As `take`, for an envelope that is known to be an input of the service (`Machine.reads`)."""
        if not self._is_new(envelope):
            return []
        outputs = self.service.machine.handle(self.state, envelope, self.now_s, self.on_impossible)
        # Most inputs make a service decide nothing.
        return [self._envelope(envelope, ordinal, event) for ordinal, event in enumerate(outputs)] if outputs else []

    def refold(self, envelope: Envelope, outputs: Sequence[Envelope]) -> None:
        """Take an input that was handled before: with what stands on the log for it, instead of deciding again.

        Args:
            envelope: an input of the service (`Machine.reads`).
            outputs: the service's own records on control that name it as their cause, in order.
        """
        if not self._is_new(envelope):
            return
        recorded = (output.event for output in outputs)
        self.service.machine.refold(self.state, envelope, recorded, self.now_s, self.on_impossible)
        self.decided += len(outputs)

    def has_taken(self, envelope: Envelope) -> bool:
        """Whether the input was taken before, as far as that is remembered."""
        return envelope.id in self._recent

    def is_own(self, envelope: Envelope) -> bool:
        """Whether the service has decided this record."""
        cls = type(envelope.event)
        return cls in self._emitted or (cls in self._requested and envelope.source == self.service.name)

    def _is_new(self, envelope: Envelope) -> bool:
        """Note an input, and the time at which the log took it; False when it was taken before."""
        if envelope.id in self._recent:
            return False
        self._recent[envelope.id] = None
        if len(self._recent) > REMEMBERED_INPUTS:
            self._recent.popitem(last=False)
        self.log_dates = self.log_dates or envelope.said_s is not None
        if type(envelope.event) is ClockRepaired and envelope.time_s < self.now_s:
            self.state = turned_back(self.state, envelope.time_s, self.now_s - envelope.time_s)
            self.now_s = envelope.time_s
        self.now_s = self.present_at(envelope)
        if type(envelope.event) is TimerFired:
            self.timers += 1
        return True

    def present_at(self, envelope: Envelope) -> float:
        """The core's present when it takes this input next, seconds since the epoch."""
        now_s = self.now_s
        if envelope.time_s > now_s and (envelope.said_s is not None or not self.log_dates):
            now_s = envelope.time_s
        # Timers elapse on the shell's monotonic clock. Where that is a little fast, or the log's clock was set back,
        # the record comes before its time by the log: the core would ask for the same moment again.
        event = envelope.event
        return max(now_s, not_before(event.due_s)) if type(event) is TimerFired else now_s

    def _envelope(self, cause: Envelope, ordinal: int, event: Any) -> Envelope:
        on_control = self._decidable.get(type(event))
        if on_control is None:
            raise UndeclaredOutput(f"{self.service.name} emitted {type(event).__name__}, which it does not own")
        if on_control:
            self.decided += 1
        return Envelope(
            id=derived_id(self.service.name, cause.id, ordinal),
            source=self.service.name,
            time_s=self.now_s,
            event=event,
            causation_id=cause.id,
            sequence=self.decided if on_control else None,
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

    def snapshot(self, rules: str = "") -> Snapshot:
        """The state and position, to be restored later by the service under the same rules."""
        state = self.state_bytes
        return Snapshot(
            service=self.service.name,
            next_offset=self.next_offset,
            now_s=self.now_s,
            recent_inputs=list(self._recent),
            state=state,
            state_hash=hashlib.sha256(state).hexdigest(),
            schema=schema_of(self.service.state_type),
            rules=rules,
            decided=self.decided,
            timers=self.timers,
            log_dates=self.log_dates,
        )

    def branched(self, state: bytes) -> Replica[S]:
        """Another core, which goes on without this one; its decisions are numbered from here on.

        It remembers no inputs: what it is given is new to it.

        Args:
            state: what `packed` has given.
        """
        branch = Replica(self.service, self.on_impossible)
        branch.state = msgspec.msgpack.decode(state, type=self.service.state_type)
        branch.next_offset, branch.now_s = self.next_offset, self.now_s
        branch.decided, branch.timers, branch.log_dates = self.decided, self.timers, self.log_dates
        return branch

    def packed(self) -> bytes:
        """The state, to make branches of: faster than a snapshot, and read by this very version alone."""
        return msgspec.msgpack.encode(self.state)

    def discard(self) -> None:
        """This core is not used any more: its state is free at once, though what is derived of it refers back to it."""
        fields = self.service.state_type.__struct_fields__  # type: ignore[attr-defined]  # as `state_type` says
        for part in (self.state, *(getattr(self.state, name) for name in fields)):
            getattr(part, "__dict__", {}).clear()

    @classmethod
    def restore(cls, service: Service[S], snapshot: Snapshot, rules: str = "") -> Replica[S]:
        """A replica as it was when the snapshot was taken.

        Args:
            service: its service.
            snapshot: what `snapshot` has given.
            rules: digest of the rules at hand.

        Raises:
            SnapshotOutdated: it was made under other rules, or by another state class.
            SnapshotDamaged: it belongs to another service, or its bytes or their hash do not fit.
        """
        where = f"snapshot of {snapshot.service} at offset {snapshot.next_offset}"
        if snapshot.service != service.name:
            raise SnapshotDamaged(f"{where} offered to {service.name}")
        if snapshot.rules != rules:
            raise SnapshotOutdated(f"{where} was made under rules {snapshot.rules!r}, not {rules!r}")
        if snapshot.schema != schema_of(service.state_type):
            raise SnapshotOutdated(f"{where} was made by another state class (schema {snapshot.schema!r})")
        found = hashlib.sha256(snapshot.state).hexdigest()
        if found != snapshot.state_hash:
            raise SnapshotDamaged(f"{where}: its state has hash {found}, expected {snapshot.state_hash}")
        replica = cls(service)
        try:
            replica.state = msgspec.json.decode(snapshot.state, type=service.state_type)
        except msgspec.DecodeError as error:
            raise SnapshotDamaged(f"{where} does not decode: {error}") from None
        replica.next_offset, replica.now_s = snapshot.next_offset, snapshot.now_s
        replica.decided, replica.timers, replica.log_dates = snapshot.decided, snapshot.timers, snapshot.log_dates
        replica._recent = OrderedDict.fromkeys(snapshot.recent_inputs)
        return replica
