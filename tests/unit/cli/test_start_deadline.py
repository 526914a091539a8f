"""How long a cell waits for its broker."""

from __future__ import annotations

from libs.cli.cell.start_deadline import FETCHED_WITHIN_S, READY_WITHIN_S, StartDeadline

BEGAN_S = 1000.0


def test_a_broker_has_its_time_from_the_beginning():
    deadline = StartDeadline(BEGAN_S)
    assert not deadline.is_over(BEGAN_S + READY_WITHIN_S, fetches=False)
    assert deadline.is_over(BEGAN_S + READY_WITHIN_S + 0.1, fetches=False)


def test_one_that_is_fetched_has_it_from_the_last_moment_at_which_it_was():
    deadline = StartDeadline(BEGAN_S)
    fetched_s = BEGAN_S + 4 * READY_WITHIN_S
    assert not deadline.is_over(fetched_s, fetches=True)
    assert not deadline.is_over(fetched_s + READY_WITHIN_S, fetches=False)
    assert deadline.is_over(fetched_s + READY_WITHIN_S + 0.1, fetches=False)


def test_a_download_that_does_not_end_is_not_waited_for_without_end():
    deadline = StartDeadline(BEGAN_S)
    last_s = BEGAN_S + FETCHED_WITHIN_S
    assert not deadline.is_over(last_s - 0.1, fetches=True)
    assert not deadline.is_over(last_s, fetches=True)
    assert deadline.is_over(last_s + READY_WITHIN_S, fetches=True)
