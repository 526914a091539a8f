"""Records that a consumer could not take go to the dead-letter topic, whole, with what went wrong.

Two kinds: records of telemetry and profiles that cannot be read, and control records that are impossible in the state
of a core, which changes nothing at them. A control record that a core cannot decode or handle stops the core instead:
skipping it would break replay.
"""

from __future__ import annotations

from dataclasses import dataclass

from libs.bus.port import Message, Outgoing
from libs.contracts.base import Topic
from libs.contracts.catalogue import subject_field_of


def dead_letter(message: Message, service: str, error: Exception) -> Outgoing:
    """The message for the dead-letter topic: the original whole, with `x-*` headers about it."""
    about = {
        "x-error": str(error),
        "x-service": service,
        "x-topic": message.partition.topic.value,
        "x-partition": str(message.partition.index),
        "x-offset": str(message.offset),
    }
    headers = [*message.headers, *((name, value.encode()) for name, value in about.items())]
    return Outgoing(topic=Topic.DEADLETTER, key=message.key, headers=headers, value=message.value)


ABOUT = ("x-error", "x-service", "x-topic", "x-partition", "x-offset")
"""Headers that are put before a record when it is put aside."""


def original(message: Message) -> Outgoing:
    """The record of a dead letter as it was, to be appended to its own topic once more.

    Raises:
        ValueError: the letter does not say of which topic it is, or is of control: a core has left out the record
            because it is impossible in its state, all others have taken it, and would be given it a second time.
    """
    said = dict(message.headers)
    topic = said.get("x-topic", b"").decode(errors="replace")
    if topic not in [known.value for known in Topic]:
        raise ValueError(f"it does not say which topic it was read from, but {topic!r}")
    if topic == Topic.CONTROL:
        raise ValueError(
            "it is a record of control, which every service reads: the others have taken it, and it was impossible in "
            "the state of this one, where it still is. What happened before is in the story of its subject"
        )
    headers = [(name, value) for name, value in message.headers if name not in ABOUT]
    return Outgoing(topic=Topic(topic), key=message.key, headers=headers, value=message.value)


@dataclass(frozen=True)
class Letter:
    """What a dead letter says, from its headers alone: its value may be what could not be read."""

    offset: int
    """On the dead-letter topic."""
    time_s: float
    """When it was put there, seconds since the epoch."""
    service: str
    """The consumer that could not take the record."""
    error: str
    """Why, as a sentence."""
    record: str
    """Where the record stands, as `control/0@17`. With `service` it names the letter: a position that the log has
    forgotten may put the same record aside twice."""
    event_id: str
    event_type: str
    """Wire name; empty when the record does not say it."""
    subject: str
    """What the record is about: id of a job, a node, a tenant."""

    @property
    def job_id(self) -> str | None:
        """The job that the record is about; None when it is about something else."""
        return self.subject if subject_field_of(self.event_type) == "job_id" else None


def letter(message: Message) -> Letter:
    """A message of the dead-letter topic, read. What it lacks is empty."""
    said = {name: value.decode(errors="replace") for name, value in message.headers}
    return Letter(
        offset=message.offset,
        time_s=message.appended_at_s,
        service=said.get("x-service", ""),
        error=said.get("x-error", ""),
        record=f"{said.get('x-topic', '')}/{said.get('x-partition', '')}@{said.get('x-offset', '')}",
        event_id=said.get("ce_id", ""),
        event_type=said.get("ce_type", ""),
        subject=said.get("ce_subject", message.key),
    )
