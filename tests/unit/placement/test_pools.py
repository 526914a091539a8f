"""Nodes that are set apart for trials: trials go there first, and no other job."""

from __future__ import annotations

import pytest

from libs.contracts.admission import TrialPassed, TrialSkipped
from libs.contracts.base import Event
from libs.contracts.failure_analysis import NodeSuspected, RetryScheduled
from libs.contracts.features import TRIALS, pool
from libs.contracts.gateway import NodeDrainRequested, NodeUndrainRequested, PolicyChanged
from libs.contracts.introspection import NodeLost
from libs.contracts.jobs import GpuRequest
from libs.contracts.placement import JobPlaced, JobQueued
from libs.contracts.reasons import PendingReason
from libs.testing.core_case import node, only
from services.placement.core.mechanisms.rounds.question import competitors, offered, shared
from tests.unit.placement.guests_case import GuestsCase
from tests.unit.placement.placement_case import SAID, PlacementCase
from tests.unit.placement.rounds_case import RoundsCase
from tests.unit.placement.test_avoiding import case_of
from tests.unit.placement.test_trials import with_trial


class PooledCase(PlacementCase):
    """Node n1 with 4 GPUs, and node p1 with 2 that are set apart."""

    def __init__(self, *, n1: int = 4, p1: int = 2) -> None:
        super().__init__(n1=n1)
        self.give(pooled("p1", p1))


def pooled(node_id: str, gpus: int, **fields: object) -> Event:
    return node(node_id, gpus, features=[pool(TRIALS)], **fields)  # type: ignore[arg-type]


def lost(node_id: str) -> NodeLost:
    return NodeLost(node_id=node_id, incarnation=1, silent_s=30.0)


def test_a_trial_goes_to_the_pool_although_a_fuller_server_has_room():
    case = PooledCase()
    case.submit("b", 3)
    with_trial(case)
    assert (case.where("b"), case.where("a")) == ({"n1": [0, 1, 2]}, {"p1": [0]})
    first, second = (placed.reason.message for placed in case.decided(JobPlaced))
    assert second.endswith("; in the pool 'trial', where trials go first") and "pool" not in first


def test_no_other_job_goes_to_the_pool_whatever_is_free_there():
    case = PooledCase()
    case.submit("b", 4)
    queued = only(case.submit("c", 1), JobQueued)
    assert queued.reason.code == PendingReason.INSUFFICIENT_GPUS
    assert queued.reason.message == "needs 1 GPU outside the pool for trials; 0 are free"


def test_a_gang_that_only_the_pool_could_take_is_told_what_is_missing():
    queued = only(PooledCase(n1=2, p1=4).submit("b", 4), JobQueued)
    assert queued.reason.code == PendingReason.FEATURE_MISSING
    assert "a place for jobs that are no trials" in queued.reason.message
    assert [each.what for each in queued.reason.rejected] == ["p1"]


def test_a_passed_trial_is_followed_by_its_gang_outside_the_pool():
    case = PooledCase(p1=8)
    with_trial(case)
    case.exit("a", "p1")
    case.give(TrialPassed(job_id="a", attempt=1, steps=3, gpu_s=3.0, checkpoint=False, reason=SAID))
    assert case.where("a") == {"n1": [0, 1, 2, 3]}


def test_a_trial_waits_for_a_full_pool_and_says_so_although_gpus_are_free_elsewhere():
    case = PooledCase(p1=1)
    with_trial(case, "b")
    queued = only(with_trial(case), JobQueued)
    assert (queued.reason.code, queued.waits_for) == (PendingReason.TRIAL_PENDING, PendingReason.INSUFFICIENT_GPUS)
    assert queued.reason.message == "its trial waits: needs 1 GPU of the pool 'trial'; 0 are free"
    assert only(case.exit("b", "p1"), JobPlaced).job_id == "a"
    assert case.where("a") == {"p1": [0]}


def test_a_skipped_trial_competes_for_its_gang_outside_the_pool():
    case = PooledCase(p1=1)
    with_trial(case, "b")
    with_trial(case)
    case.give(TrialSkipped(job_id="a", reason=SAID))
    assert case.where("a") == {"n1": [0, 1, 2, 3]}


def drained(case: PooledCase) -> None:
    case.give(NodeDrainRequested(node_id="p1", note="", requested_by="op"))


def gone(case: PooledCase) -> None:
    case.give(lost("p1"))


def suspected(case: PooledCase) -> None:
    case.give(NodeSuspected(node_id="p1", jobs=[], causes=[], reason=SAID))


@pytest.mark.parametrize("closed", [drained, gone, suspected])
def test_while_no_node_of_the_pool_can_take_trials_they_run_anywhere(closed):
    case = PooledCase()
    closed(case)
    with_trial(case)
    assert case.where("a") == {"n1": [0]}


def test_a_trial_that_waits_for_the_pool_goes_elsewhere_when_that_is_lost():
    case = PooledCase(p1=1)
    with_trial(case, "b")
    with_trial(case)
    case.give(lost("p1"))
    assert case.where("a").keys() == {"n1"}


def test_and_back_when_it_is_there_again():
    case = PooledCase(n1=1)
    case.submit("c", 1)
    drained(case)
    with_trial(case)
    assert "a" not in case.placed
    case.give(NodeUndrainRequested(node_id="p1", requested_by="op"))
    assert case.where("a") == {"p1": [0]}


def test_a_pool_without_the_gpu_type_of_a_job_takes_no_trial_of_it():
    case = PlacementCase(n1=4)
    case.give(pooled("p1", 2, gpu_type="k80"))
    with_trial(case, gpus=GpuRequest(count=4, types=["v100"]))
    assert case.where("a") == {"n1": [0]}


def test_jobs_that_wait_when_the_first_node_of_a_pool_joins_stay_outside_it():
    case = PlacementCase(n1=1)
    case.submit("b", 1)
    case.submit("c", 1)
    case.give(pooled("p1", 2))
    assert case.placed == ["b"]


def test_a_trial_that_has_failed_on_the_only_node_of_the_pool_is_repeated_elsewhere():
    case = PooledCase()
    with_trial(case)
    case.start("a", "p1")
    case.exit("a", "p1", code=1)
    case.give(RetryScheduled(job_id="a", attempt=2, not_before_s=case.now_s, reason=SAID, avoided_nodes=["p1"]))
    case.grant("a", 2, 4)
    assert case.where("a") == {"n1": [0]}


def test_guests_have_no_seats_in_the_pool():
    case = GuestsCase(n1=1)
    case.give(pooled("p1", 2))
    case.guest("a", 1)
    case.guest("b", 1)
    case.guest("c", 1)
    assert all(task.node_id == "n1" for placed in case.decided(JobPlaced) for task in placed.gang)


@pytest.mark.parametrize("policy", ["fifo_backfill", "max_min_fairness", "gandiva"])
def test_all_mechanisms_keep_jobs_outside_the_pool_and_trials_inside(policy: str):
    case = case_of(policy, n1=1)
    case.give(pooled("p1", 2))
    told = with_trial(case, "t", 2)
    if isinstance(case, RoundsCase):
        case.heard(told)
    for job_id in ("b", "c"):
        case.submit(job_id, 1)
    placed = {job_id: list(case.where(job_id)) for job_id in case.placed}
    assert placed.pop("t") == ["p1"]
    assert placed and all(nodes == ["n1"] for nodes in placed.values())


def test_shares_are_of_what_jobs_can_have_of_the_pool():
    case = RoundsCase(n1=4)
    case.give(pooled("p1", 4))
    case.submit("b", 1)
    state = case.replica.state
    assert shared(state, competitors(state), offered(state)) == {"v100": 4}
    case.heard(with_trial(case, "t", 2))
    assert shared(state, competitors(state), offered(state)) == {"v100": 5}, "one trial may have one of the four"


def strict(case: PooledCase) -> PooledCase:
    case.give(PolicyChanged(policy="strict_fifo", requested_by="op"))
    return case


def test_under_strict_fifo_a_trial_of_the_pool_passes_jobs_that_may_not_have_its_gpus():
    case = strict(PooledCase(n1=2, p1=1))
    case.submit("b", 2)
    case.submit("c", 2)
    with_trial(case)
    assert case.where("a") == {"p1": [0]}
    case.exit("b")
    assert case.placed == ["b", "a", "c"], "its gang has its place behind them"


def test_under_strict_fifo_no_trial_passes_another_one_and_no_other_job_does():
    case = strict(PooledCase(n1=2, p1=1))
    case.give(pooled("p2", 1, gpu_type="k80"))
    case.submit("b", 2)
    with_trial(case, "first", gpus=GpuRequest(count=4, types=["v100"]))
    waits = only(with_trial(case, "second", gpus=GpuRequest(count=4, types=["v100"])), JobQueued)
    assert (waits.waits_for, waits.line) == (PendingReason.INSUFFICIENT_GPUS, "all of trial")
    behind = only(with_trial(case, "third", gpus=GpuRequest(count=4, types=["k80"])), JobQueued)
    assert (behind.waits_for, behind.behind, behind.line) == (PendingReason.BEHIND, "second", "all of trial")
    large = only(case.submit("c", 2), JobQueued)
    assert (large.reason.code, large.line) == (PendingReason.INSUFFICIENT_GPUS, "all")
    small = only(case.submit("d", 1), JobQueued)
    assert (small.behind, small.line) == ("c", "all")
    case.exit("first", "p1")
    assert case.placed == ["b", "first", "second", "third"]


def test_under_strict_fifo_a_trial_that_the_pool_could_not_take_stands_in_the_line_of_all():
    case = strict(PooledCase(n1=2, p1=1))
    drained(case)
    case.submit("b", 1)
    case.submit("c", 2)
    assert only(with_trial(case), JobQueued).behind == "c"
