"""The clock of the live runs of table 2, a GPU that no process uses but the two jobs; and how much they compute."""

from __future__ import annotations

import pytest
from torch_agent.options import parse

from tests.bench._modelled_job import FIT_OF, FITS, Layers, Minibatch
from tests.bench._table2 import Way, _busy_ratio, _times


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


@pytest.mark.parametrize(("beside_s", "found"), [(0.0, 10), (0.0006, 4), (0.002, 1)])
def test_layers_are_fitted_to_what_a_minibatch_costs_beside_them(beside_s: float, found: int):
    layers, counts = Layers(10, work_s=0.001, fits=FITS), list[int]()
    for _ in range(FITS * FIT_OF + FIT_OF):
        counts.append(layers.count)
        layers.took(beside_s + layers.count * 0.0001)
    assert set(counts[:FIT_OF]) == {10} and set(counts[FIT_OF:]) == {found}


def test_layers_stay_where_they_are_not_fitted():
    layers = Layers(10, work_s=0.001)
    for _ in range(2 * FIT_OF):
        layers.took(1.0)
    assert layers.count == 10


def test_how_busy_a_job_is_does_not_depend_on_how_long_it_was_kept_waiting():
    done = [minibatch(1.0), minibatch(2.0), minibatch(10.0, took_s=8.0)]
    assert (_busy_ratio(done), _busy_ratio([])) == (0.5, 0.0)


def test_one_way_says_what_a_guest_may_cost_and_the_others_leave_that_to_the_agent(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SANJAYA_INTERFERENCE_TARGET", raising=False)
    found = {}
    for way in Way:
        with monkeypatch.context() as patched:
            for name, value in way.environment.items():
                patched.setenv(name, value)
            found[way] = parse(["--bus", "sqlite:///log.db"]).interference_target
    assert found.pop(Way.ANTMAN_4) == 0.04
    assert set(found.values()) == {0.01}
