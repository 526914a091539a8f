"""The seconds of a job that is behind another one are those that the other one has gained."""

from __future__ import annotations

import pytest

from libs.contracts.reasons import PendingReason
from libs.lifecycle.waits import Wait


def test_what_adding_seconds_leaves_over_is_booked_for_no_cause():
    """The sums of both differ by 1e-14 s, and the first one does not wait any more."""
    first, behind = Wait(job_id="first"), Wait(job_id="behind")
    first.waits(PendingReason.INSUFFICIENT_GPUS, 3.06)
    behind.waits(PendingReason.BEHIND, 22.88, first)
    first.waits(PendingReason.GANG_FRAGMENTED, 90.14)
    first.waits("", 94.53)
    assert behind.sums(94.53) == pytest.approx(
        {PendingReason.INSUFFICIENT_GPUS: 67.26, PendingReason.GANG_FRAGMENTED: 4.39}
    )


def test_what_the_first_one_has_not_waited_by_its_own_clock_is_not_evaluated_yet():
    first, behind = Wait(job_id="first"), Wait(job_id="behind")
    first.waits(PendingReason.INSUFFICIENT_GPUS, 0.0)
    behind.waits(PendingReason.BEHIND, 0.0, first)
    first.waits("", 10.0)
    assert behind.sums(12.0) == {PendingReason.INSUFFICIENT_GPUS: 10.0, PendingReason.NOT_YET_EVALUATED: 2.0}


def test_seconds_of_a_cause_that_is_heard_of_late_are_not_counted_twice():
    """The first of the line is paused by a clock that is ahead of the others, and the log tells of that before."""
    first, line, behind = Wait(job_id="first"), Wait(), Wait(job_id="behind")
    first.waits(PendingReason.INSUFFICIENT_GPUS, 46.0)
    line.waits(PendingReason.INSUFFICIENT_GPUS, 46.0, first)
    first.hold(81.0, held=True)
    line.waits(PendingReason.INSUFFICIENT_GPUS, 47.0, first)
    first.hold(82.0, held=False)
    behind.waits(PendingReason.BEHIND, 55.0, line)
    first.waits(PendingReason.ON_HOLD, 81.0)
    assert sum(behind.sums(81.0).values()) == pytest.approx(81.0 - 55.0)
