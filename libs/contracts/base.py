"""The base of every event, and the registry that knows them all by wire name.

The wire name (`job.placed.v1`) is given once, in the decorator, and is not the class path: a class can
be renamed or moved without touching a single stored record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, ClassVar, TypeVar

import msgspec


class Topic(StrEnum):
    """The topics of one cell; on the wire each is prefixed with the cell's name (`lab.control`)."""

    CONTROL = "control"
    """One partition, kept for ever: every fact and decision, in one total order."""
    ORDERS = "orders"
    """Keyed by node id: requests to that node's agent, committed together with their decision."""
    TELEMETRY = "telemetry"
    """Keyed by job id (or node id): high-rate measurements, short-lived."""
    PROFILES = "profiles"
    """Keyed by job id: closed telemetry windows on their way to introspection, short-lived."""
    LOGS = "logs"
    """Keyed by job id: lines that jobs wrote to stdout and stderr, short-lived."""
    DEADLETTER = "deadletter"
    """Records of the other topics that a consumer could not read, or that are impossible for a core, with the error."""


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An immutable fact or request. Subclasses are declared with `@event`.

    Field names carry their unit (`_s`, `_bytes`, `_ratio`). Every field added after the first release
    of a version has a default, so that older records still decode.

    Events, and the values that they are made of, are trees: none can be part of a cycle. So the collector of cycles
    does not look at them (`gc=False`), which else it does again and again while a decision is made of many events.
    """

    wire_type: ClassVar[str] = ""
    owner: ClassVar[str] = ""
    topic: ClassVar[Topic] = Topic.CONTROL
    subject_field: ClassVar[str] = ""

    @property
    def subject(self) -> str:
        """The id of the thing the event is about (a job, a node, a tenant); also its partition key."""
        return str(getattr(self, self.subject_field))

    def agrees_with(self, recorded: Event) -> bool:
        """Whether `recorded` on a log is as good, for an audit that derives `self` in its place.

        Never, but for what numerics have found: those events say within which limits.
        """
        return False


E = TypeVar("E", bound=type[Event])

_BY_WIRE_TYPE: dict[str, type[Event]] = {}


def event(wire_type: str, *, owner: str, subject: str, topic: Topic = Topic.CONTROL) -> Callable[[E], E]:
    """Register an event class under its wire name.

    Args:
        wire_type: name and version, `<noun>.<verb>.v<N>`.
        owner: the one service that emits it (DESIGN: one writer per fact).
        subject: name of the field that holds the id of what it is about.
        topic: where it is appended.

    Raises:
        ValueError: the wire name is taken, or `subject` is no field of the class.
    """

    def register(cls: E) -> E:
        if wire_type in _BY_WIRE_TYPE:
            raise ValueError(f"event type {wire_type!r} is already declared by {_BY_WIRE_TYPE[wire_type]}")
        if subject not in cls.__struct_fields__:
            raise ValueError(f"{cls.__name__} has no field {subject!r} to be its subject")
        cls.wire_type, cls.owner, cls.topic, cls.subject_field = wire_type, owner, topic, subject
        _BY_WIRE_TYPE[wire_type] = cls
        return cls

    return register


def event_classes() -> Iterator[type[Event]]:
    """All registered classes, in order of wire name."""
    for _, cls in sorted(_BY_WIRE_TYPE.items()):
        yield cls


Json = dict[str, Any]
