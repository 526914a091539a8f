"""Records that a consumer could not take go to the dead-letter topic, whole, with what went wrong.

For telemetry and logs only. A control record that a core cannot take stops the core: skipping it would break
replay.
"""

from __future__ import annotations

from libs.bus.port import Message, Outgoing
from libs.contracts.base import Topic


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
