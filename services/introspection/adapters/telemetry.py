"""Telemetry messages into closed windows: the part of the windows shells that both buses share."""

from __future__ import annotations

import logging

from libs.bus import codec
from libs.bus.port import Message, Outgoing
from libs.contracts.agent import GpuSampled, MinibatchProfiled, NodeHeartbeat, TaskSampled
from libs.contracts.introspection import OWNER, WindowClosed
from libs.contracts.wire import Undecodable
from libs.runtime.deadletter import dead_letter
from libs.runtime.log import fields
from libs.runtime.messages import wire_type
from services.introspection.core import windows
from services.introspection.core.folding import Folding
from services.introspection.core.windows import Rules

log = logging.getLogger(__name__)

MINIBATCHES = MinibatchProfiled.wire_type.encode()
HEARTBEAT = NodeHeartbeat.wire_type.encode()
GPU = GpuSampled.wire_type.encode()
TASK = TaskSampled.wire_type.encode()


class TelemetryFold:
    """Messages in, messages out: closed windows for profiles, and dead letters."""

    def __init__(self, rules: Rules) -> None:
        self.folding = Folding(rules)

    def take(self, message: Message, now_s: float) -> list[Outgoing]:
        """Take one message of telemetry; `now_s` is when it was read."""
        if wire_type(message) != MINIBATCHES:
            return []
        try:
            envelope = codec.record(message).envelope
        except Undecodable as error:
            log.warning("telemetry record goes to the dead letters", extra=fields(error=error))
            return [dead_letter(message, OWNER, error)]
        event = envelope.event
        assert isinstance(event, MinibatchProfiled)
        partition, offset = message.partition.index, message.offset
        return _outgoing(self.folding.take(event, envelope.time_s, partition, offset, now_s))

    def tick(self, now_s: float) -> list[Outgoing]:
        """Close the windows of jobs from which nothing comes any more."""
        return _outgoing(self.folding.tick(now_s))


def _outgoing(closed: list[WindowClosed]) -> list[Outgoing]:
    return [codec.outgoing(windows.envelope(window)) for window in closed]
