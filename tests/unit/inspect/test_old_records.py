"""The audit takes no record for altered because the version that wrote it knew fewer fields."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from libs.bus.port import Message
from libs.inspect.differences import Kind
from tests.unit.inspect.small_cell import audit, headers_of, messages, sealed, with_header


def of_type(wire_type: str) -> tuple[int, Message]:
    """The first record of a type, and which one it is."""
    return next((i, m) for i, m in enumerate(messages()) if headers_of(m)["ce_type"] == wire_type)


def before(message: Message, field: str, *path: str) -> Message:
    """The record as a version wrote it that did not know `field`, with a digest that fits."""
    data: Any = msgspec.json.decode(message.value)
    holder = data
    for name in path:
        holder = holder[name]
    del holder[field]
    return sealed(replace(message, value=msgspec.json.encode(data)))


def put(index: int, message: Message) -> list[Message]:
    """The small cell's log with another record at one place."""
    log = messages()
    log[index] = message
    return log


def test_a_fact_from_before_a_field_is_not_altered():
    index, joined = of_type("node.joined.v1")
    found = audit(put(index, before(joined, "state_port")))
    assert found.details == []


def test_a_request_from_before_a_field_of_its_specification_is_not_altered():
    index, arrived = of_type("job.arrived.v1")
    found = audit(put(index, before(arrived, "restartable", "spec")))
    assert found.details == []


def test_a_record_from_before_several_fields_is_not_altered():
    index, arrived = of_type("job.arrived.v1")
    older = before(before(arrived, "restartable", "spec"), "weight", "spec")
    assert audit(put(index, older)).details == []


def test_it_is_altered_when_its_digest_does_not_fit():
    index, joined = of_type("node.joined.v1")
    older = before(joined, "state_port")
    tampered = replace(older, value=older.value.replace(b'"incarnation":1', b'"incarnation":2'))
    assert tampered.value != older.value
    first = audit(put(index, tampered)).first
    assert first is not None and first.kind is Kind.ALTERED and "digest" in first.message


def test_its_other_attributes_must_still_follow_from_the_event():
    index, joined = of_type("node.joined.v1")
    older = with_header(before(joined, "state_port"), "ce_subject", "another-node")
    first = audit(put(index, older)).first
    assert first is not None and first.kind is Kind.ALTERED
    assert [field.field for field in first.fields] == ["ce:subject"]
