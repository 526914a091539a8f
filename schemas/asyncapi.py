"""The AsyncAPI 3.0 document of one cell: its topics, what is on them, and which service sends and receives what."""

from __future__ import annotations

from typing import Any

from libs.bus.port import TopicLayout
from libs.contracts import agent
from libs.contracts.base import Event, Topic, event_classes
from services.roster import SERVICES

DESCRIPTION = """\
Every fact and decision of a cell is a CloudEvent 1.0 in Kafka's binary mode: attributes in `ce_*` headers, the data as
JSON in the value. Read with `isolation_level=read_committed` and `auto_offset_reset=earliest`; offsets have gaps
(transaction markers). `ce_causationid` names the event that caused this one, `ce_correlationid` what both belong to.
A record with `ce_clock: log` is dated by the log (its Kafka timestamp); `ce_time` is the time of its source's clock.
Event types are short names with a version (`job.placed.v1`) rather than reverse-DNS names: they are typed by hand in
filters and are unique within the cell's topics. Consumers ignore fields that they do not know.
"""

ADDRESSES = {
    Topic.CONTROL: "Every fact and decision, in one total order, kept for ever.",
    Topic.ORDERS: "Requests to the agents, keyed by node id; committed together with the decision they carry out.",
    Topic.TELEMETRY: "Measurements, keyed by job or node id; short-lived.",
    Topic.PROFILES: "Telemetry condensed over windows, keyed by job id; short-lived.",
    Topic.LOGS: "What jobs write to stdout and stderr, keyed by job id; short-lived.",
    Topic.DEADLETTER: "Records that a consumer could not read, or that are impossible in the state of a core, as they "
    "were, with the error in `x-` headers.",
}


def document() -> dict[str, Any]:
    """The whole document."""
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "Sanjaya events", "version": "1.0.0", "description": DESCRIPTION},
        "defaultContentType": "application/json",
        "channels": {topic.value: _channel(topic) for topic in Topic},
        "operations": _operations(),
        "components": {"messages": {cls.wire_type: _message(cls) for cls in event_classes()}},
    }


def _channel(topic: Topic) -> dict[str, Any]:
    return {
        "address": f"{{cell}}.{topic.value}",
        "description": ADDRESSES[topic],
        "parameters": {"cell": {"description": "Name of the cell"}},
        "messages": {
            cls.wire_type: {"$ref": f"#/components/messages/{cls.wire_type}"}
            for cls in event_classes()
            if cls.topic is topic
        },
        "bindings": {"kafka": {"partitions": TopicLayout().partitions[topic], "bindingVersion": "0.5.0"}},
    }


def _message(cls: type[Event]) -> dict[str, Any]:
    return {
        "name": cls.wire_type,
        "title": cls.__name__,
        "summary": (cls.__doc__ or "").strip().splitlines()[0],
        "description": f"Emitted by {cls.owner} alone.",
        "payload": {"$ref": f"./events/{cls.wire_type}.schema.json"},
        "bindings": {"kafka": {"key": {"type": "string", "description": cls.subject_field}, "bindingVersion": "0.5.0"}},
    }


def _operations() -> dict[str, Any]:
    operations: dict[str, Any] = {}
    senders: dict[tuple[str, Topic], list[type[Event]]] = {}
    for cls in event_classes():
        senders.setdefault((cls.owner, cls.topic), []).append(cls)
    for (owner, topic), classes in sorted(senders.items()):
        operations[f"{owner}.sends.{topic.value}"] = _operation("send", topic, classes)
    for service in SERVICES:
        operations[f"{service.name}.reads.control"] = _operation("receive", Topic.CONTROL, service.machine.inputs)
    orders = [cls for cls in event_classes() if cls.topic is Topic.ORDERS]
    operations[f"{agent.OWNER}.reads.orders"] = _operation("receive", Topic.ORDERS, orders)
    return operations


def _operation(action: str, topic: Topic, classes: Any) -> dict[str, Any]:
    channel = f"#/channels/{topic.value}"
    return {
        "action": action,
        "channel": {"$ref": channel},
        "messages": [{"$ref": f"{channel}/messages/{cls.wire_type}"} for cls in classes],
    }
