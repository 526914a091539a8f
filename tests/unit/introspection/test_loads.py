"""Samples of GPUs, condensed to the changes that matter for guests."""

from __future__ import annotations

from libs.contracts.agent import GpuSampled
from libs.node.loads import Loads


def take(loads: Loads, ratio: float, time_s: float, told: dict[str, float] | None = None) -> float | None:
    sample = GpuSampled(node_id="n1", index=0, utilisation_ratio=ratio, memory_used_bytes=1)
    change = loads.take(sample, time_s, told or {})
    return change.utilisation_ratio if change is not None else None


def test_the_first_load_of_a_gpu_is_told_and_small_changes_are_not():
    loads = Loads()
    assert take(loads, 0.5, 0.0) == 0.5
    assert take(loads, 0.55, 2.0) is None
    assert take(loads, 0.9, 4.0) == 0.65


def test_a_load_is_a_mean_of_ten_seconds():
    loads = Loads()
    take(loads, 1.0, 0.0)
    assert take(loads, 0.0, 9.0) == 0.5
    assert take(loads, 0.0, 11.0) == 0.0


def test_the_bound_for_guests_is_told_however_small_the_change():
    loads = Loads()
    assert take(loads, 0.82, 0.0) == 0.82
    assert take(loads, 0.76, 2.0) == 0.79


def test_what_the_log_has_is_not_told_again():
    assert take(Loads(), 0.5, 0.0, {"n1:0": 0.52}) is None


def test_a_node_that_is_gone_is_forgotten():
    loads = Loads()
    take(loads, 0.5, 0.0)
    loads.forget_all_but({})
    assert take(loads, 0.5, 2.0) == 0.5


def test_a_clock_that_is_set_back_begins_anew():
    loads = Loads()
    take(loads, 1.0, 100.0)
    assert take(loads, 0.2, 50.0) == 0.2


def test_other_jobs_on_a_gpu_are_told_even_if_it_is_as_busy_as_before():
    loads = Loads()
    sample = GpuSampled(node_id="n", index=0, utilisation_ratio=0.5, memory_used_bytes=0)
    assert loads.take(sample, 0.0, {}) is not None
    assert loads.take(sample, 20.0, {}) is None
    loads.forget("n:0")
    assert loads.take(sample, 40.0, {}) is not None
