"""What is known of the past, from a record on which an earlier gateway has left it at."""

from __future__ import annotations

import msgspec

from libs.forecast.past import Kept, Past
from tests.unit.forecast.crowded_cell import stopped_at


def test_what_was_kept_goes_on_where_it_was_left():
    records = list(stopped_at(200.0).records())
    whole, first = Past(), Past()
    for record in records[:40]:
        whole.take(record)
        first.take(record)
    for past in (whole, first):
        past.track.said("job-6", 60.0, 100.0, "time_limit")
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(first.kept), type=Kept)
    again = Past(kept)
    for record in records[20:]:
        again.take(record)
    for record in records[40:]:
        whole.take(record)
    assert again.kept == whole.kept
    assert again.next_offset == len(records)
    assert [each.event.job_id for each in again.arrivals.latest][:2] == ["job-0", "job-1"]


def test_the_end_of_a_job_ends_what_was_said_of_it():
    simulation = stopped_at(400.0)
    past = Past()
    past.track.said("job-5", 0.0, 10.0)
    past.track.said("gone", 0.0, 10.0)
    for record in simulation.records():
        past.take(record)
    assert list(past.track.kept.said) == ["gone"], "job-5 has started"
    assert len(past.track.kept.errors) == 1


def test_of_what_was_said_before_a_gap_nothing_is_counted():
    first = Past()
    for record in stopped_at(60.0).records():
        first.take(record)
    first.track.said("job-6", 60.0, 100.0)
    first.track.said("job-2", 0.0, 1.0)
    first.track.started("job-2", 2.0)
    near, far = Past.since(first.kept, first.next_offset), Past.since(first.kept, first.next_offset + 1)
    assert near.kept == first.kept
    assert far.kept.track.said == {} and far.kept.track.errors == first.kept.track.errors
    assert (far.next_offset, Past.since(None, 7).next_offset) == (first.next_offset + 1, 0)
