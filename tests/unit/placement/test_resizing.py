"""Elastic jobs grow when they are asked to and no other job waits, and shrink at once when one does (Gandiva)."""

from __future__ import annotations

from typing import Any

import pytest

from libs.contracts.agent import JobExited, JobMovable, JobReady, JobRestored
from libs.contracts.base import Event
from libs.contracts.gateway import JobMaxGpusChanged, JobPauseRequested, PolicyChanged
from libs.contracts.jobs import ElasticRange, GpuRequest, JobSpec
from libs.contracts.migration import MigrationStarted
from libs.contracts.placement import (
    AllocationComputed,
    DestinationReserved,
    JobMoved,
    JobPlaced,
    JobPreempted,
    JobQueued,
    JobResized,
    JobSucceeded,
    LaunchTask,
    MoveAbandoned,
    RestoreTask,
    RoundStarted,
    StopTask,
    TimeSliceStarted,
)
from libs.testing.core_case import only
from services.placement.core.mechanisms.slicing.shrinking import PATIENCE_S
from tests.unit.placement.placement_case import SAID
from tests.unit.placement.test_slices import SlicesCase


class ElasticCase(SlicesCase):
    """Agents start what they are to start, and hand over when they are asked to, unless they are `slow`."""

    slow = False

    def _carry_out(self, order: Event) -> list[Event]:
        answers = super()._carry_out(order)
        about: dict[str, Any] = {f: getattr(order, f) for f in ("job_id", "attempt", "node_id") if hasattr(order, f)}
        if isinstance(order, LaunchTask) and not order.restores and order.virtual_ranks is not None:
            return answers + self.give(JobMovable(resizable=True, **about))
        if isinstance(order, LaunchTask) and order.restores and not self.slow:
            return answers + self.give(JobReady(**about))
        if isinstance(order, RestoreTask):
            return answers + self.give(JobRestored(**about))
        if isinstance(order, StopTask):
            return answers + self.give(JobExited(exit_code=None, signal=9, outcome="stopped", **about))
        return answers

    def elastic(self, job_id: str, gpus: int = 1, least: int = 1, most: int = 4, **spec: Any) -> list[Event]:
        return self.submit(job_id, gpus, elastic=ElasticRange(min_gpus=least, max_gpus=most), **spec)

    def grow(self, job_id: str, gpus: int) -> list[Event]:
        """Migration has found idle GPUs for it."""
        job = self.replica.state.jobs[job_id]
        return self.give(
            MigrationStarted(
                migration_id=f"m-{job.attempt}",
                job_id=job_id,
                attempt=job.attempt,
                from_nodes=["n1"],
                to_nodes=["n1"],
                must_leave=False,
                gpus=gpus,
                reason=SAID,
            )
        )

    def gpus(self, job_id: str) -> list[int]:
        """That it has."""
        return [index for task in self.replica.state.jobs[job_id].gang for index in task.gpu_indices]


@pytest.mark.parametrize(
    ("asked", "least", "most", "widths"),
    [(1, 1, 4, [1, 2, 4]), (4, 2, 8, [2, 4, 8]), (6, 1, 24, [3, 6, 12, 24]), (2, 2, 3, [2]), (3, 1, 5, [3])],
)
def test_a_job_may_have_twice_or_half_as_many_gpus_as_it_asked_for(
    asked: int, least: int, most: int, widths: list[int]
):
    elastic = ElasticRange(min_gpus=least, max_gpus=most)
    spec = JobSpec(name="a", command=["x"], gpus=GpuRequest(count=asked), elastic=elastic)
    assert spec.widths == widths


def test_it_grows_where_it_is_and_keeps_the_gpus_that_it_has():
    case = ElasticCase(n1=4)
    assert only(case.elastic("a"), LaunchTask).virtual_ranks == 4
    said = case.grow("a", 2)
    reserved, launched = only(said, DestinationReserved), only(said, LaunchTask)
    assert reserved.gang[0].gpu_indices == [0, 1]
    assert (launched.world_size, launched.virtual_ranks, launched.restores) == (2, 4, True)
    assert only(said, RestoreTask).ranks == 1
    resized = only(said, JobResized)
    assert (resized.from_gpus, resized.gpus, resized.attempt) == (1, 2, 2)
    case.grow("a", 4)
    assert case.gpus("a") == [0, 1, 2, 3]
    assert [gpu.holders for gpu in case.replica.state.nodes["n1"].gpus] == [["a"]] * 4


@pytest.mark.parametrize(
    ("gpus", "code"),
    [(3, "NotElastic"), (8, "NotElastic"), (4, "NoRoom")],
)
def test_it_does_not_grow_beyond_what_is_possible(gpus: int, code: str):
    case = ElasticCase(n1=3)
    case.elastic("a")
    assert only(case.grow("a", gpus), MoveAbandoned).reason.code == code


def test_a_script_that_cannot_change_its_number_of_processes_is_left_alone():
    case = ElasticCase(n1=4)
    case.submit("a")
    case.give(JobMovable(job_id="a", attempt=1, node_id="n1"))
    assert only(case.grow("a", 2), MoveAbandoned).reason.code == "NotResizable"


def test_a_paused_job_does_not_grow():
    case = ElasticCase(n1=4)
    case.elastic("a")
    case.give(JobPauseRequested(job_id="a", requested_by="ada"))
    assert only(case.grow("a", 2), MoveAbandoned).reason.code == "OnHold"


def test_it_shrinks_at_once_for_a_newcomer_and_no_job_takes_turns():
    case = ElasticCase(n1=4)
    case.elastic("a")
    case.grow("a", 4)
    said = case.submit("b")
    assert only(said, JobResized).gpus == 2
    assert only(said, JobPlaced).gang[0].gpu_indices == [2]
    assert case.gpus("a") == [0, 1]
    case.submit("c")
    said = case.submit("d", 1)
    assert only(said, JobResized).gpus == 1
    assert case.gpus("d") == [1]
    assert case.decided(TimeSliceStarted) == []
    case.submit("e")
    assert only(case.all, TimeSliceStarted).started == ["e"]


def test_it_gives_back_as_few_as_suffice_even_of_what_it_asked_for():
    case = ElasticCase(n1=8)
    case.elastic("a", 4, least=1, most=8)
    case.grow("a", 8)
    case.submit("b", 3)
    assert len(case.gpus("a")) == 4
    case.submit("c", 2)
    assert len(case.gpus("a")) == 2


def test_what_it_asked_for_goes_to_no_lower_priority():
    case = ElasticCase(n1=4)
    case.elastic("a", 4, priority=1)
    waits = only(case.submit("b", 2), JobQueued)
    assert waits.reason.code == "FairShare"
    assert case.decided(JobResized) == []


def test_several_jobs_make_room_together():
    case = ElasticCase(n1=4)
    case.elastic("a")
    case.elastic("b")
    case.grow("a", 2)
    case.grow("b", 2)
    case.submit("c", 2)
    assert [len(case.gpus(job_id)) for job_id in "abc"] == [1, 1, 2]


def test_no_job_grows_while_others_wait():
    case = ElasticCase(n1=4)
    case.elastic("a")
    case.submit("b", 8)
    assert only(case.grow("a", 2), MoveAbandoned).reason.code == "OthersWait"


def test_growth_that_is_under_way_is_given_up_for_a_newcomer():
    case = ElasticCase(n1=2)
    case.elastic("a")
    case.slow = True
    case.grow("a", 2)
    said = case.submit("b")
    assert only(said, MoveAbandoned).reason.code == "GpusNeeded"
    assert only(said, JobPlaced).gang[0].gpu_indices == [1]
    assert case.gpus("a") == [0]
    assert case.replica.state.jobs["a"].tasks.resizable


def test_a_job_that_does_not_shrink_in_time_goes_on_and_takes_turns():
    case = ElasticCase(n1=2)
    case.elastic("a")
    case.grow("a", 2)
    case.slow = True
    case.submit("b", at=10.0)
    waits = only(case.all, JobQueued)
    assert "shrink to make room" in waits.reason.message
    said = case.wake()
    assert case.now_s == 10.0 + PATIENCE_S
    assert only(said, MoveAbandoned).reason.code == "DestinationFailed"
    turn = only(said, TimeSliceStarted)
    assert (turn.suspended, turn.started) == (["a"], ["b"])
    case.exit("b")
    assert case.gpus("a") == [0, 1]
    assert only(case.grow("a", 2), MoveAbandoned).reason.code == "NotResizable"


def test_a_job_that_waits_for_another_to_shrink_is_not_told_that_gpus_are_lacking_while_some_are_free():
    case = ElasticCase(n1=4, n2=4)
    case.submit("b", 3)
    case.elastic("a", 2)
    case.submit("until-there-is-one-on-each")
    case.submit("h")
    case.exit("until-there-is-one-on-each")
    case.submit("g", 2)
    assert case.where("g") == {"n1": [3], "n2": [3]}
    case.slow = True
    assert only(case.submit("c", at=100.0), JobQueued).reason.code == "InsufficientGpus"
    said = case.submit("d", 2, at=100.0)
    assert only(said, TimeSliceStarted).suspended == ["h", "g"]
    assert case.replica.state.nodes["n1"].free("v100") == [3], "what one of these has left, and is theirs"
    assert only(said, JobQueued).reason.code == "FairShare"


def test_a_job_that_waits_for_another_to_shrink_is_told_when_enough_gpus_are_free_but_on_more_servers():
    case = ElasticCase(n1=3, n2=3)
    case.elastic("a", 2)
    case.submit("b", 2)
    case.slow = True
    said = case.submit("c", GpuRequest(count=2, max_nodes=1))
    assert only(said, DestinationReserved).gang[0].gpu_indices == [0]
    assert only(said, JobQueued).reason.code == "GangFragmented"


def test_a_failed_resize_leaves_the_job_where_it_is():
    case = ElasticCase(n1=2)
    case.elastic("a")
    case.slow = True
    case.grow("a", 2)
    said = case.exit("a", attempt=2, code=1)
    assert only(said, MoveAbandoned).reason.code == "DestinationFailed"
    assert case.gpus("a") == [0]
    assert only(case.exit("a"), JobSucceeded).attempt == 1


def test_it_moves_away_from_a_drained_node_in_the_middle_of_a_resize():
    case = ElasticCase(n1=4, n2=4)
    case.elastic("a")
    case.slow = True
    case.grow("a", 2)
    case.slow = False
    said = case.give(
        MigrationStarted(
            migration_id="m-9", job_id="a", attempt=1, from_nodes=["n1"], to_nodes=[], must_leave=True, reason=SAID
        )
    )
    assert only(said, MoveAbandoned).migration_id == "m-1"
    assert only(said, JobMoved).gang[0].node_id == "n2"
    assert len(case.gpus("a")) == 1


def test_under_rounds_it_gets_what_it_asked_for():
    case = ElasticCase(n1=4)
    case.elastic("a")
    case.grow("a", 4)
    case.give(PolicyChanged(policy="max_min_fairness", requested_by="op"))
    case.give(only(case.all, AllocationComputed))
    assert only(case.all, JobPreempted).attempt == 2
    assert only(case.all, RoundStarted).leases[0].gang[0].gpu_indices == [0]
    assert (case.gpus("a"), case.replica.state.jobs["a"].attempt) == ([0], 3)


def test_its_user_bounds_it_and_it_shrinks_and_does_not_grow_again():
    case = ElasticCase(n1=4)
    case.elastic("a")
    case.grow("a", 4)
    said = case.give(JobMaxGpusChanged(job_id="a", max_gpus=3, requested_by="bob"))
    assert only(said, DestinationReserved).reason.code == "MaxGpusChanged"
    assert only(said, JobResized).gpus == 2
    assert case.gpus("a") == [0, 1]
    assert only(case.grow("a", 4), MoveAbandoned).reason.message == "it may have [1, 2] GPUs, not 4"
    case.give(JobMaxGpusChanged(job_id="a", max_gpus=4, requested_by="bob"))
    case.grow("a", 4)
    assert case.gpus("a") == [0, 1, 2, 3]


def test_a_job_that_grows_beyond_a_new_bound_stays_as_it_is():
    case = ElasticCase(n1=4)
    case.slow = True
    case.elastic("a")
    case.grow("a", 4)
    said = case.give(JobMaxGpusChanged(job_id="a", max_gpus=1, requested_by="bob"))
    assert only(said, MoveAbandoned).reason.code == "MaxGpusChanged"
    assert case.gpus("a") == [0]


def test_a_bound_on_a_job_that_waits_counts_once_it_runs():
    case = ElasticCase(n1=4)
    case.submit("b", 4)
    case.elastic("a")
    case.give(JobMaxGpusChanged(job_id="a", max_gpus=1, requested_by="bob"))
    assert case.replica.state.jobs["a"].widths == [1]
