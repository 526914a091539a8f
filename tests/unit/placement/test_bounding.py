"""Bounds that an operator sets to what a job may have of its GPUs."""

from __future__ import annotations

from libs.contracts.gateway import LimitsRequested
from libs.contracts.placement import LaunchTask, SetComputeShare, SetMemoryLimit
from libs.testing.core_case import node, only
from tests.unit.placement.placement_case import PlacementCase

BOUNDS = LimitsRequested(job_id="a", memory_limit_bytes=2_000_000_000, compute_share_ratio=0.3, requested_by="op")
LIFTED = LimitsRequested(job_id="a", memory_limit_bytes=None, compute_share_ratio=None, requested_by="op")


def placed(*before: LimitsRequested) -> tuple[PlacementCase, LaunchTask]:
    case = PlacementCase()
    case.submit("a", gpus=1)
    for request in before:
        assert case.give(request) == []
    return case, only(case.give(node("n1", 1)), LaunchTask)


def test_a_running_job_is_told_at_once():
    case, launched = placed()
    assert (launched.memory_limit_bytes, launched.compute_share_ratio) == (None, None)
    case.start("a")
    about = {"node_id": "n1", "job_id": "a", "attempt": 1}
    assert case.give(BOUNDS) == [
        SetMemoryLimit(limit_bytes=2_000_000_000, **about),
        SetComputeShare(share_ratio=0.3, **about),
    ]
    assert case.give(LIFTED) == [SetMemoryLimit(limit_bytes=None, **about), SetComputeShare(share_ratio=None, **about)]


def test_a_waiting_job_begins_with_them():
    _, launched = placed(BOUNDS)
    assert (launched.memory_limit_bytes, launched.compute_share_ratio) == (2_000_000_000, 0.3)
    _, launched = placed(BOUNDS, LIFTED)
    assert (launched.memory_limit_bytes, launched.compute_share_ratio) == (None, None)


def test_a_job_that_has_ended_is_told_nothing():
    case, _ = placed()
    case.start("a")
    case.exit("a")
    assert case.give(BOUNDS) == []
