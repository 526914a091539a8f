"""Which telemetry records are still needed, and when silence closes a window."""

from libs.kernel.held import Held
from libs.testing.introspection import minibatches
from services.introspection.core.folding import FORGOTTEN_AFTER_S, Folding
from services.introspection.core.windows import Rules

RULES = Rules(window_s=2.0, grace_s=1.0)


def test_the_position_waits_for_open_windows():
    folding = Folding(RULES)
    folding.take(minibatches("a", 5), 10.5, partition=0, offset=7, now_s=0.0)
    folding.take(minibatches("b", 5), 10.5, partition=0, offset=8, now_s=0.0)
    folding.take(minibatches("c", 5), 10.5, partition=1, offset=3, now_s=0.0)
    assert folding.position(0, 9) == 7
    assert folding.position(1, 4) == 3
    assert folding.position(2, 20) == 20
    [closed] = folding.take(minibatches("a", 10), 13.0, partition=0, offset=9, now_s=0.0)
    assert closed.job_id == "a"
    assert folding.position(0, 10) == 8  # b still needs its record
    folding.take(minibatches("b", 10), 13.0, partition=0, offset=10, now_s=0.0)
    assert folding.position(0, 11) == 9  # the open windows of a and b begin at 9 and 10


def test_a_silent_job_is_closed_by_the_readers_clock():
    folding = Folding(RULES)
    folding.take(minibatches("a", 5), 10.5, partition=0, offset=0, now_s=500.0)
    assert folding.tick(502.9) == []
    [closed] = folding.tick(503.0)
    assert closed.minibatches_total == 5
    assert folding.position(0, 1) == 1


def test_a_record_after_silence_opens_the_next_window():
    folding = Folding(RULES)
    folding.take(minibatches("a", 5), 10.5, partition=0, offset=0, now_s=500.0)
    folding.tick(503.0)
    folding.take(minibatches("a", 8), 10.9, partition=0, offset=1, now_s=504.0)
    [closed] = folding.tick(507.0)
    assert (closed.window_start_s, closed.minibatches) == (12.0, 3)


def test_a_repeated_record_holds_nothing_back():
    folding = Folding(RULES)
    folding.take(minibatches("a", 5), 10.5, partition=0, offset=0, now_s=500.0)
    folding.tick(503.0)
    folding.take(minibatches("a", 5), 10.5, partition=0, offset=1, now_s=504.0)
    assert folding.position(0, 2) == 2


def test_silent_jobs_are_forgotten():
    folding = Folding(RULES)
    folding.take(minibatches("a", 5), 10.5, partition=0, offset=0, now_s=0.0)
    folding.tick(10.0)
    folding.tick(FORGOTTEN_AFTER_S)
    assert folding.jobs == 0


def test_held_messages_are_counted_once():
    held = Held()
    held.hold("a", 0, 5)
    held.hold("a", 0, 6)
    held.hold("b", 0, 7)
    assert held.position(0, 9) == 5
    held.release("a")
    held.release("a")
    assert held.position(0, 9) == 7
    held.release("b")
    assert held.position(0, 9) == 9
