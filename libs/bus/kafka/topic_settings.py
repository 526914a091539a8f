"""What a cell's topics are created with (DESIGN section 2): stated in full, nothing is left to the broker."""

from __future__ import annotations

from libs.bus.kafka.connection import REQUEST_BYTES
from libs.contracts.base import Topic

FOR_EVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""No compaction: it would destroy the audit. What is archived is deleted by offset, never by age or size."""

DAY_MS = 24 * 3600 * 1000
A_WEEK = {
    "cleanup.policy": "delete",
    "retention.ms": str(7 * DAY_MS),
    "retention.bytes": "-1",
    "segment.ms": str(DAY_MS),  # a segment that is still written is never deleted, however old its records are
}

BY_BROKER = {"message.timestamp.type": "LogAppendTime"}
"""The broker dates records when it takes them: that is the log's clock. By default their producers would."""

KEPT = (Topic.CONTROL, Topic.ORDERS, Topic.DEADLETTER)
"""Never deleted by the broker: `orders` too, for the audit and the archive hold every order against its decision."""


def settings_of(topic: Topic, replicas: int) -> dict[str, str]:
    """The settings of a new topic.

    Args:
        topic: of a cell.
        replicas: how many brokers keep each of its records.
    """
    return stated(FOR_EVER if topic in KEPT else A_WEEK, replicas)


def stated(retention: dict[str, str], replicas: int) -> dict[str, str]:
    """All settings of a topic that is kept for so long; for those of no `Topic`, too."""
    return {
        **retention,
        **BY_BROKER,
        "min.insync.replicas": str(most_in_sync(replicas)),
        "unclean.leader.election.enable": "false",
        "max.message.bytes": str(REQUEST_BYTES),
    }


def most_in_sync(replicas: int) -> int:
    """The largest `min.insync.replicas` with which a topic can still be written while one broker is away."""
    return max(1, replicas - 1)
