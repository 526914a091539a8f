"""Events on the wire are CloudEvents, and what was altered is noticed."""

import gc

import msgspec
import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary_event
from cloudevents.core.formats.json import JSONFormat
from hypothesis import given
from hypothesis import strategies as st

from libs.contracts import catalogue, upcast, wire
from libs.contracts.base import event_classes
from libs.contracts.envelope import Envelope, whole_microseconds
from libs.contracts.gateway import JobCancelRequested
from libs.contracts.placement import JobQueued
from libs.contracts.reasons import Reason
from libs.testing.core_case import arrival

ENVELOPE = Envelope(
    id="e-1", source="gateway", time_s=1763677.25, event=arrival("j-1", 2), causation_id="e-0", sequence=7
)


def test_round_trip():
    assert wire.decode(*wire.encode(ENVELOPE)) == ENVELOPE


def test_the_collector_of_cycles_looks_at_no_event():
    assert not gc.is_tracked(ENVELOPE)
    assert not gc.is_tracked(ENVELOPE.event)
    assert [cls for cls in event_classes() if cls.__struct_config__.gc] == []


def test_the_cloudevents_sdk_reads_what_we_write():
    headers, value = wire.encode(ENVELOPE)
    event = from_binary_event(KafkaMessage(headers=dict(headers), key=b"j-1", value=value), JSONFormat())
    assert (event.get_id(), event.get_type(), event.get_source(), event.get_subject()) == (
        "e-1",
        "job.arrived.v1",
        "/sanjaya/gateway",
        "j-1",
    )
    assert event.get_extension("causationid") == "e-0"
    assert event.get_data()["spec"]["gpus"]["count"] == 2


@pytest.mark.parametrize("name", ["ce_id", "ce_type", "ce_time", "ce_digest", "ce_source"])
def test_a_missing_header_is_named(name: str):
    headers, value = wire.encode(ENVELOPE)
    with pytest.raises(wire.Undecodable, match=name):
        wire.decode([h for h in headers if h[0] != name], value)


@pytest.mark.parametrize("time", ["yesterday", "2026-01-01T00:00:00"])
def test_a_time_that_is_no_rfc_3339_is_undecodable(time: str):
    headers, value = wire.encode(ENVELOPE)
    with pytest.raises(wire.Undecodable, match=time):
        wire.decode([(k, time.encode() if k == "ce_time" else v) for k, v in headers], value)


def test_altered_data_or_identity_is_noticed():
    headers, value = wire.encode(ENVELOPE)
    with pytest.raises(wire.Altered, match="e-1"):
        wire.decode(headers, value.replace(b'"count":2', b'"count":4'))
    moved = [(k, b"2026-01-01T00:00:00.000000Z" if k == "ce_time" else v) for k, v in headers]
    with pytest.raises(wire.Altered):
        wire.decode(moved, value)


def test_an_unknown_type_is_undecodable_and_an_unknown_field_is_ignored():
    with pytest.raises(wire.Undecodable, match=r"job\.vanished\.v1"):
        wire.decode_data("job.vanished.v1", b"{}")
    data = msgspec.json.decode(wire.encode_data(ENVELOPE.event)) | {"from_the_future": 1}
    assert wire.decode_data("job.arrived.v1", msgspec.json.encode(data)) == ENVELOPE.event


def test_data_of_the_wrong_shape_names_the_field():
    with pytest.raises(wire.Undecodable, match="job_id"):
        wire.decode_data("job.cancel_requested.v1", b'{"job_id":1,"requested_by":"u"}')


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_what_nobody_could_read_is_not_written(number: float):
    reason = Reason(code="Test", message="said by the test", numbers={"height": number})
    with pytest.raises(wire.Unencodable, match=r"job\.queued\.v1 of j-1: .*reason\.numbers"):
        wire.encode_data(JobQueued(job_id="j-1", attempt=1, reason=reason))


@given(st.floats(min_value=0, max_value=4e9))
def test_times_survive_the_wire(time_s: float):
    time_s = whole_microseconds(time_s)
    assert wire.parse_rfc3339(wire.rfc3339(time_s)) == time_s


def test_old_versions_are_read_as_todays(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(upcast, "_STEPS", {})

    @upcast.upcasts("job.cancel_requested.v0", to="job.cancel_requested.v1")
    def name_the_requester(data: dict) -> dict:
        return {"job_id": data["job"], "requested_by": data["by"]}

    event = wire.decode_data("job.cancel_requested.v0", b'{"job":"j-1","by":"ann"}')
    assert event == JobCancelRequested(job_id="j-1", requested_by="ann")


def test_every_event_has_one_owner_that_exists_and_a_versioned_name():
    for cls in event_classes():
        assert cls.owner in catalogue.OWNERS
        noun_verb, _, version = cls.wire_type.rpartition(".v")
        assert noun_verb.count(".") == 1 and version.isdigit(), cls.wire_type
