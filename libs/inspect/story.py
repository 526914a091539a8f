"""The story of a job or a node: its events in sentences, each under its cause."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from libs.contracts.base import Topic
from libs.contracts.envelope import Envelope, Record
from libs.contracts.placement import TimeSliceStarted
from libs.contracts.wire import rfc3339
from libs.inspect.sentences import sentence
from libs.lifecycle.guards import jobs_of_slice


class StoryLine(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the story."""

    place: str
    """`#17` on control, `orders` for an order."""
    offset: int
    """On control; of the decision that an order belongs to."""
    time_s: float
    source: str
    event: str
    """Class name."""
    id: str
    text: str
    depth: int
    """How many of its causes are told above it."""
    cause_offset: int | None
    """Where its cause stands on control; None for what comes from outside."""
    aside: bool = False
    """It is about something else, and told because it caused what follows."""


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the log says about one subject, in order."""

    subject: str
    told: list[StoryLine]

    def lines(self) -> list[str]:
        """For people: time, place, and the sentences, indented under their causes."""
        return [_line(line) for line in self.told]


def story(records: Iterable[Record], subject: str) -> Story:
    """Tell the story of a job or a node.

    Args:
        records: control from its beginning, and orders behind it if they are to be told.
        subject: a job id or a node id.

    Returns:
        A story without lines when the log does not know the subject.
    """
    causes: dict[str, Record] = {}
    chosen: list[Record] = []
    for record in records:
        if record.topic == Topic.CONTROL:
            causes[record.envelope.id] = record
        if record.topic in (Topic.CONTROL, Topic.ORDERS) and _concerns(record.envelope, subject):
            chosen.append(record)
    return Story(subject=subject, told=_tell(_with_causes(chosen, causes, subject), causes, subject))


def _concerns(envelope: Envelope, subject: str) -> bool:
    event = envelope.event
    if isinstance(event, TimeSliceStarted) and subject in jobs_of_slice(event):
        return True
    return subject in (event.subject, getattr(event, "job_id", None), getattr(event, "node_id", None))


def _with_causes(chosen: list[Record], causes: dict[str, Record], subject: str) -> list[Record]:
    """The chosen records and those that caused them, in the order in which they are told."""
    wanted: dict[str, Record] = {}
    for record in chosen:
        cause = causes.get(record.envelope.causation_id)
        if cause is not None and not _concerns(cause.envelope, subject):
            wanted.setdefault(cause.envelope.id, cause)
        wanted[record.envelope.id] = record
    last: dict[str, int] = {}
    for record in wanted.values():
        if record.topic == Topic.CONTROL:
            last[record.envelope.causation_id] = max(record.offset, last.get(record.envelope.causation_id, 0))
    return sorted(wanted.values(), key=lambda record: _position(record, causes, last))


def _position(record: Record, causes: dict[str, Record], last: dict[str, int]) -> tuple[int, int, int]:
    """Control by offset; an order right behind the decision that it carries out.

    `last` has the offset of the last decision per cause.
    """
    if record.topic == Topic.CONTROL:
        return (record.offset, 0, 0)
    cause = causes.get(record.envelope.causation_id)
    behind = cause.offset if cause is not None else record.offset
    return (last.get(record.envelope.causation_id, behind), 1, record.offset)


def _tell(records: list[Record], causes: dict[str, Record], subject: str) -> list[StoryLine]:
    depths: dict[str, int] = {}
    told = []
    for record in records:
        envelope = record.envelope
        cause = causes.get(envelope.causation_id)
        depth = depths[envelope.causation_id] + 1 if envelope.causation_id in depths else 0
        depths[envelope.id] = depth
        on_control = record.topic == Topic.CONTROL
        aside = not _concerns(envelope, subject)
        told.append(
            StoryLine(
                place=f"#{record.offset}" if on_control else str(record.topic),
                offset=record.offset if on_control or cause is None else cause.offset,
                time_s=envelope.time_s,
                source=envelope.source,
                event=type(envelope.event).__name__,
                id=envelope.id,
                text=f"({envelope.event.subject}) {sentence(envelope.event)}" if aside else sentence(envelope.event),
                depth=depth,
                cause_offset=cause.offset if cause is not None else None,
                aside=aside,
            )
        )
    return told


def _line(line: StoryLine) -> str:
    time = rfc3339(line.time_s)[:-4].replace("T", " ")
    indent = "  " * line.depth + ("└ " if line.depth else "")
    return f"{time}  {line.place:>7}  {indent}{line.source}: {line.text}"
