"""Records that older versions have written say today what they were meant to say."""

from collections.abc import Sequence

import msgspec
import pytest

from libs.contracts import wire
from libs.contracts.envelope import Envelope
from libs.contracts.gateway import JobCancelRequested, PolicyChanged


def policy(wire_type: str, **fields: object) -> PolicyChanged:
    event = wire.decode_data(wire_type, msgspec.json.encode({"requested_by": "ann", "note": "", **fields}))
    assert isinstance(event, PolicyChanged)
    return event


OPTIONS = {"space_sharing": False, "heterogeneity_aware": True, "water_filling": False, "cost_per_hour": {}}


def test_the_first_fifo_was_a_queue():
    assert policy("policy.changed.v1", policy="fifo") == PolicyChanged(policy="strict_fifo", requested_by="ann")


@pytest.mark.parametrize(
    ("wire_type", "fields", "expected"),
    [
        ("policy.changed.v1", {"policy": "fifo", **OPTIONS}, "fifo"),
        ("policy.changed.v1", {"policy": "strict_fifo", **OPTIONS}, "strict_fifo"),
        ("policy.changed.v1", {"policy": "backfill"}, "backfill"),
        ("policy.changed.v2", {"policy": "fifo"}, "fifo"),
    ],
)
def test_every_other_policy_keeps_its_name(wire_type: str, fields: dict[str, object], expected: str):
    assert policy(wire_type, **fields).policy == expected


def with_first_digest(envelope: Envelope) -> tuple[wire.Headers, bytes]:
    """The record as the first logs have it: its digest covers neither the cause nor the source."""
    return _older(envelope, wire.DIGESTED_AT_FIRST)


def _older(envelope: Envelope, digested: Sequence[str]) -> tuple[wire.Headers, bytes]:
    headers, value = wire.encode(envelope)
    undated = [(name, text) for name, text in headers if name != wire.CLOCK]
    found = wire.digest(dict(undated), value, digested).encode()
    return [(name, found if name == "ce_digest" else text) for name, text in undated], value


ENVELOPE = Envelope(
    id="e-1",
    source="gateway",
    time_s=1.0,
    event=JobCancelRequested(job_id="j-1", requested_by="ann"),
    causation_id="e-0",
)


def test_records_with_the_first_digest_are_read():
    assert wire.decode(*with_first_digest(ENVELOPE)) == ENVELOPE


def test_records_of_a_log_without_a_clock_keep_the_date_of_their_source():
    headers, value = _older(ENVELOPE, wire.DIGESTED_UNDATED)
    assert wire.decode(headers, value, appended_at_s=70.0) == ENVELOPE


def test_a_record_is_dated_by_the_log_and_shows_what_its_source_said():
    found = wire.decode(*wire.encode(ENVELOPE), appended_at_s=70.0)
    assert (found.time_s, found.source_time_s) == (70.0, ENVELOPE.time_s)
    assert found.as_sent() == ENVELOPE
    assert wire.encode(found) == wire.encode(ENVELOPE)


@pytest.mark.parametrize("digested", [wire.DIGESTED_UNDATED, wire.DIGESTED_AT_FIRST])
def test_a_record_cannot_be_made_one_that_the_log_dates_nor_the_other_way_round(digested: Sequence[str]):
    headers, value = _older(ENVELOPE, digested)
    with pytest.raises(wire.Altered):
        wire.decode([*headers, (wire.CLOCK, wire.BY_LOG)], value, 70.0)
    dated, value = wire.encode(ENVELOPE)
    with pytest.raises(wire.Altered):
        wire.decode([(name, text) for name, text in dated if name != wire.CLOCK], value, 70.0)


def test_what_an_older_agent_sends_is_dated_by_the_log():
    headers, value = _older(ENVELOPE, wire.DIGESTED_UNDATED)
    assert wire.decode(wire.dated_by_log(headers, value), value, 70.0).time_s == 70.0
    today, value = wire.encode(ENVELOPE)
    assert wire.dated_by_log(today, value) is today


@pytest.mark.parametrize("name", ["ce_id", "ce_time"])
def test_the_first_digest_shows_an_alteration(name: str):
    headers, value = with_first_digest(ENVELOPE)
    changed = {"ce_id": b"e-2", "ce_time": b"1970-01-01T00:00:02.000000Z"}[name]
    with pytest.raises(wire.Altered):
        wire.decode([(n, changed if n == name else text) for n, text in headers], value)
    with pytest.raises(wire.Altered):
        wire.decode(headers, value.replace(b"ann", b"bob"))


def test_what_todays_digest_covers_cannot_be_altered_under_it():
    """A record of today is not taken for one of the first logs."""
    headers, value = wire.encode(ENVELOPE)
    with pytest.raises(wire.Altered):
        wire.decode([(n, b"e-9" if n == "ce_causationid" else text) for n, text in headers], value)
