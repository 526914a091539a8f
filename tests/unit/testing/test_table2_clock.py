"""The clock of the live runs of table 2: a GPU that no process uses but the two jobs."""

from __future__ import annotations

import pytest

from tests.bench._modelled_job import Minibatch
from tests.bench._table2 import Way, _times


def minibatch(at_s: float, *, took_s: float = 1.0, own_s: float = 0.5, beside_s: float = 0.0) -> Minibatch:
    """Of half a second of work, and as long a wait for data."""
    return Minibatch(at_s, took_s, own_s, beside_s, work_s=0.5, waits_s=0.5)


def test_a_busy_machine_changes_nothing():
    quiet, busy = minibatch(1.0), minibatch(9.0, took_s=9.0, own_s=0.9)
    assert quiet.on_gpu_s == busy.on_gpu_s == 1.0


def test_what_the_other_job_computes_meanwhile_counts_by_the_work_of_this_one():
    assert minibatch(1.0, own_s=1.0, beside_s=0.4).on_gpu_s == pytest.approx(1.2)


def test_in_the_order_of_arrival_the_second_job_waits_for_the_rest_of_the_first():
    a, b = [minibatch(float(at)) for at in range(1, 5)], [minibatch(float(at)) for at in range(6, 9)]
    assert _times(Way.FIFO, a, b, arrives_s=3.0) == (4.0, 4.0)
    assert _times(Way.PREEMPT, a[:3], b, arrives_s=3.0) == (3.0, 3.0)


def test_while_both_are_there_the_first_ends_by_the_clock_of_the_second():
    a = [minibatch(1.0), minibatch(2.0), minibatch(13.0, took_s=10.0)]
    b = [minibatch(at, beside_s=0.1) for at in (11.0, 12.0, 13.0, 14.0)]
    a_s, b_s = _times(Way.ANTMAN, a, b, arrives_s=2.0)
    assert a_s == pytest.approx(2.0 + 3 * 1.1) and b_s == pytest.approx(4 * 1.1)
