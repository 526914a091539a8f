"""The note at the committed position knows which timers are on the log."""

import pytest

from libs.contracts.runtime import TimerFired
from libs.runtime.timers import MOST_REPEATS, Note, StuckTimer, Timers


def test_nothing_is_due_without_a_request():
    assert Timers("placement").fires_at(None, 0.0, 0.0) is None


def test_a_timer_fires_when_so_much_has_elapsed_on_the_shells_clock():
    assert Timers("placement").fires_at(1_008.0, log_s=1_000.0, then_s=5.0) == 13.0


def test_a_log_whose_clock_was_set_back_puts_nothing_off():
    timers = Timers("placement")
    assert timers.fires_at(1_008.0, log_s=1_000.0, then_s=5.0) == 13.0
    assert timers.fires_at(1_008.0, log_s=1_000.0, then_s=12.0) == 13.0


def test_a_later_look_shows_that_the_first_was_at_a_record_of_long_ago():
    timers = Timers("placement")
    assert timers.fires_at(1_008.0, log_s=1_000.0, then_s=5.0) == 13.0
    assert timers.fires_at(1_008.0, log_s=1_007.0, then_s=5.5) == 6.5


def test_another_moment_is_waited_for_anew():
    timers = Timers("placement")
    assert timers.fires_at(1_001.0, log_s=1_000.0, then_s=5.0) == 6.0
    assert timers.fires_at(1_008.0, log_s=1_000.0, then_s=5.0) == 13.0


def test_a_fired_timer_blocks_the_next_until_it_is_read_back():
    timers = Timers("placement")
    fired = timers.fire(due_s=5.0, now_s=5.5)
    assert fired.event == TimerFired(service="placement", due_s=5.0)
    assert fired.time_s == 5.5
    assert timers.fires_at(5.0, 5.0, 5.0) is None
    timers.seen(fired)
    assert timers.fires_at(7.0, 5.0, 5.0) == 7.0


def test_a_restart_knows_that_the_timer_is_on_the_log():
    fired = Timers("placement").fire(due_s=5.0, now_s=5.5)
    after = Timers("placement", Note(timers=1, pending=fired.id))
    assert after.fires_at(5.0, 5.0, 5.0) is None
    after.seen(fired)
    assert after.fires_at(9.0, 5.0, 5.0) == 9.0


def test_a_restart_before_the_commit_fires_the_same_timer():
    note = Note(timers=3)
    assert Timers("placement", note).fire(5.0, 5.5).id == Timers("placement", note).fire(5.0, 6.5).id


def test_the_same_moment_asked_for_again_is_another_timer():
    timers = Timers("placement")
    first = timers.fire(5.0, 5.5)
    timers.seen(first)
    assert timers.fire(5.0, 5.5).id != first.id


def test_services_never_share_an_id():
    assert Timers("placement").fire(5.0, 5.0).id != Timers("quota").fire(5.0, 5.0).id


def test_a_moment_that_never_passes_is_an_error():
    timers = Timers("placement")
    for _ in range(MOST_REPEATS):
        timers.seen(timers.fire(5.0, 5.5))
    with pytest.raises(StuckTimer, match="placement asked 1000 times in a row"):
        timers.fire(5.0, 5.5)


def test_the_note_fits_a_position():
    timers = Timers("failure_analysis")
    timers.fire(1e9, 1e9)
    timers.begin_epoch(timers.fire(1e9, 1e9).id)
    assert len(timers.metadata) < 200
