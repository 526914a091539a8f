"""A core's present is the log's: no source can move it, and an operator can bring it back."""

import msgspec
import pytest

from libs.contracts.base import Event
from libs.contracts.envelope import Envelope
from libs.contracts.runtime import ClockRepaired, TimerFired
from libs.kernel.replica import Replica
from libs.testing.core_case import arrival
from libs.testing.toy import PATIENCE_S, TOY, ToyState

IN_2099 = 4_070_908_800.0
NOW_S = 1_800_000_000.0


def record(event: Event, log_s: float, said_s: float | None, *, number: int = 0) -> Envelope:
    return Envelope(id=f"{event.wire_type}/{number}", source="test", time_s=log_s, said_s=said_s, event=event)


def replica() -> Replica[ToyState]:
    return Replica(TOY)


@pytest.mark.parametrize("said_s", [IN_2099, NOW_S - 3600.0, NOW_S + 86_400.0, 0.0])
def test_what_a_source_says_of_its_clock_moves_nothing(said_s: float):
    core = replica()
    [queued] = core.take(record(arrival("a"), NOW_S, said_s))
    assert (core.now_s, queued.time_s) == (NOW_S, NOW_S)
    assert core.next_wakeup == NOW_S + PATIENCE_S


def test_a_log_whose_clock_was_set_back_does_not_take_the_core_back():
    core = replica()
    core.take(record(arrival("a"), NOW_S, NOW_S, number=1))
    core.take(record(arrival("b"), NOW_S - 3600.0, NOW_S, number=2))
    assert core.now_s == NOW_S


def test_a_timer_brings_its_own_time_where_the_log_is_behind():
    core = replica()
    core.take(record(arrival("a"), NOW_S, NOW_S))
    due_s = core.next_wakeup
    assert due_s is not None
    core.take(record(TimerFired(service=TOY.name, due_s=due_s), due_s - 0.002, NOW_S))
    assert core.now_s == due_s
    assert core.next_wakeup is None, "the job was due"


def test_a_record_of_an_older_agent_moves_nothing_once_the_log_has_a_clock():
    core = replica()
    core.take(record(arrival("a"), NOW_S, NOW_S, number=1))
    core.take(record(arrival("b"), IN_2099, None, number=2))
    assert core.now_s == NOW_S
    again = Replica.restore(TOY, core.snapshot())
    again.take(record(arrival("c"), IN_2099, None, number=3))
    assert again.now_s == NOW_S


def test_an_old_log_keeps_the_dates_of_its_sources():
    core = replica()
    core.take(record(arrival("a"), NOW_S, None))
    assert core.now_s == NOW_S


def test_a_poisoned_core_goes_back_and_what_was_due_in_so_many_seconds_still_is():
    core = replica()
    core.take(record(arrival("before"), NOW_S, None, number=1))
    core.take(record(arrival("after"), IN_2099, None, number=2))
    core.take(record(ClockRepaired(log="t", requested_by="op"), NOW_S + 60.0, NOW_S + 60.0))
    assert core.now_s == NOW_S + 60.0
    assert core.state.due_s == {"before": NOW_S + PATIENCE_S, "after": NOW_S + 60.0 + PATIENCE_S}
    core.take(record(arrival("c"), NOW_S + 61.0, IN_2099, number=3))
    assert core.now_s == NOW_S + 61.0


def test_a_repair_without_need_changes_nothing():
    core = replica()
    core.take(record(arrival("a"), NOW_S, NOW_S))
    before = core.state_bytes
    assert core.take(record(ClockRepaired(log="t", requested_by="op"), NOW_S + 1.0, NOW_S)) == []
    assert (core.state_bytes, core.now_s) == (before, NOW_S + 1.0)


def test_a_refold_takes_the_same_way_back():
    records = [
        record(arrival("a"), IN_2099, None),
        record(ClockRepaired(log="t", requested_by="op"), NOW_S, NOW_S),
    ]
    live, refolded = replica(), replica()
    for each in records:
        refolded.refold(each, live.take(each))
    assert refolded.state_hash == live.state_hash
    assert refolded.now_s == live.now_s == NOW_S


def test_snapshots_of_before_have_no_clock_of_the_log():
    stored = msgspec.to_builtins(replica().snapshot())
    del stored["log_dates"]
    assert msgspec.convert(stored, type=type(replica().snapshot())).log_dates is False
