"""A paused job gives its GPUs up once its memory is off them, and goes on in its turn where its memory is."""

from __future__ import annotations

from typing import Any

import pytest

from libs.contracts.agent import JobMovable, JobResumed, JobStarted, JobSuspended, NodeLeaving
from libs.contracts.base import Event
from libs.contracts.gateway import JobCancelRequested, JobPauseRequested, JobResumeRequested, PolicyChanged
from libs.contracts.introspection import NodeLost
from libs.contracts.migration import MigrationStarted
from libs.contracts.placement import (
    AllocationComputed,
    AttemptFailed,
    DestinationReserved,
    GangReleased,
    GangReserved,
    JobCancelled,
    JobPlaced,
    JobPreempted,
    JobQueued,
    JobSucceeded,
    LaunchTask,
    MoveAbandoned,
    ResumeTask,
    StopTask,
    SuspendTask,
    TimeSliceStarted,
)
from libs.contracts.reasons import PendingReason
from libs.kernel.replica import Replica
from libs.testing.core_case import node, only
from services.placement.core.lifecycle.standing import Standing, standing
from services.placement.service import SERVICE
from tests.unit.placement.placement_case import SAID, PlacementCase


class PausingCase(PlacementCase):
    """Placement with agents that carry out orders at once, but for ends of tasks."""

    def __init__(self, policy: str = "backfill", *, parks: bool = True, remaps: bool = True, **nodes: int) -> None:
        self.parks = parks
        super().__init__()
        for node_id, gpus in nodes.items():
            self.give(node(node_id, gpus, remaps=remaps))
        self.give(PolicyChanged(policy=policy, requested_by="op"))

    def give(self, event: Event, *, at: float | None = None) -> list[Event]:
        said = super().give(event, at=at)
        return said + [answer for order in said for answer in self._carry_out(order)]

    def _carry_out(self, order: Event) -> list[Event]:
        about: dict[str, Any] = {f: getattr(order, f) for f in ("job_id", "attempt", "node_id") if hasattr(order, f)}
        if isinstance(order, AllocationComputed):
            return self.give(order)
        if isinstance(order, LaunchTask) and not order.restores:
            return self.give(JobStarted(pid=1, **about))
        if isinstance(order, SuspendTask):
            return self.give(JobSuspended(parked=self.parks, note="" if self.parks else "no room", **about))
        if isinstance(order, ResumeTask):
            return self.give(JobResumed(gpu_indices=order.gpu_indices, **about))
        return []

    def pause(self, job_id: str, *, at: float | None = None) -> list[Event]:
        return self.give(JobPauseRequested(job_id=job_id, requested_by="u"), at=at)

    def resume(self, job_id: str, *, at: float | None = None) -> list[Event]:
        return self.give(JobResumeRequested(job_id=job_id, requested_by="u"), at=at)

    def standing(self, job_id: str) -> Standing:
        return standing(self.replica.state.jobs.get(job_id))

    @property
    def running(self) -> dict[str, list[int]]:
        """{job: GPUs of its first server} of the jobs that hold GPUs, in order of arrival."""
        jobs = self.replica.state.jobs.values()
        return {job.job_id: job.gang[0].gpu_indices for job in jobs if job.gang and not job.suspended}


QUEUES = ("backfill", "strict_fifo")


@pytest.mark.parametrize("policy", QUEUES)
def test_a_paused_job_gives_its_gpus_to_the_next_and_goes_on_when_they_are_free(policy: str):
    case = PausingCase(policy, n1=1)
    case.submit("a")
    case.submit("b")
    said = case.pause("a")
    gives_up = only(said, TimeSliceStarted)
    assert gives_up.suspended == ["a"] and gives_up.reason.code == PendingReason.ON_HOLD
    assert [type(event) for event in said] == [SuspendTask, TimeSliceStarted, JobPlaced, LaunchTask]
    assert (case.standing("a"), case.running) == (Standing.SUSPENDED, {"b": [0]})
    waits = only(case.resume("a", at=10.0), JobQueued)
    assert (waits.attempt, waits.reason.code) == (1, PendingReason.INSUFFICIENT_GPUS)
    assert waits.reason.message == "goes on where its memory is parked, and needs 1 GPU of n1; 0 are free"
    said = case.exit("b", at=20.0)
    assert [type(event) for event in said] == [JobSucceeded, TimeSliceStarted, ResumeTask]
    assert case.running == {"a": [0]}
    case.exit("a", at=30.0)
    assert case.replica.state.jobs == {}


def test_a_paused_job_alone_goes_on_at_once():
    case = PausingCase(n1=1)
    case.submit("a")
    case.pause("a")
    assert case.running == {}
    assert only(case.resume("a"), ResumeTask).job_id == "a"
    assert case.running == {"a": [0]}


def test_a_job_that_is_resumed_before_it_stands_still_has_lost_nothing():
    case = PlacementCase(n1=1)
    case.submit("a")
    case.submit("b")
    case.start("a")
    case.give(JobPauseRequested(job_id="a", requested_by="u"))
    case.give(JobResumeRequested(job_id="a", requested_by="u"))
    assert case.give(JobSuspended(job_id="a", attempt=1, node_id="n1", parked=True)) == []


def test_a_gang_gives_its_gpus_up_when_the_last_of_its_tasks_stands_still():
    case = PlacementCase(n1=1, n2=1)
    case.submit("a", 2)
    case.submit("b")
    for node_id in ("n1", "n2"):
        case.start("a", node_id)
    case.give(JobPauseRequested(job_id="a", requested_by="u"))
    assert case.give(JobSuspended(job_id="a", attempt=1, node_id="n1", parked=True)) == []
    said = case.give(JobSuspended(job_id="a", attempt=1, node_id="n2", parked=True))
    assert only(said, TimeSliceStarted).nodes == ["n1", "n2"] and only(said, JobPlaced).job_id == "b"


def untrained(node_id: str) -> JobSuspended:
    note = "its processes do not listen at mini-batch boundaries"
    return JobSuspended(job_id="a", attempt=1, node_id=node_id, note=note, untrained=True)


def begun_on_two_nodes() -> PlacementCase:
    case = PlacementCase(n1=1, n2=1)
    case.submit("a", 2)
    for node_id in ("n1", "n2"):
        case.start("a", node_id)
    case.submit("b")
    case.give(JobPauseRequested(job_id="a", requested_by="u"))
    return case


def ends_stopped(case: PlacementCase, *nodes: str) -> list[Event]:
    return [said for node_id in nodes for said in case.exit("a", node_id, code=None, signal=15, outcome="stopped")]


def test_a_job_that_is_paused_before_its_first_mini_batch_is_stopped_and_queued_again():
    case = begun_on_two_nodes()
    assert case.give(untrained("n1")) == []
    said = case.give(untrained("n2"))
    assert [type(event) for event in said] == [JobPreempted, StopTask, StopTask]
    assert only(said, JobPreempted).reason.code == "PausedBeforeItBegan"
    said = ends_stopped(case, "n1", "n2")
    waits = only(said, JobQueued)
    assert (waits.attempt, waits.reason.code) == (2, PendingReason.ON_HOLD)
    assert only(said, JobPlaced).job_id == "b", "its GPUs are free"
    assert case.decided(AttemptFailed) == [], "it uses up no retry"
    case.exit("b", *case.where("b"))
    assert case.placed == ["a", "b"], "it waits for its user"
    assert only(case.give(JobResumeRequested(job_id="a", requested_by="u")), JobPlaced).attempt == 2


def test_one_that_is_resumed_while_it_is_stopped_begins_anew():
    case = begun_on_two_nodes()
    case.give(untrained("n1"))
    case.give(untrained("n2"))
    case.give(JobResumeRequested(job_id="a", requested_by="u"))
    said = ends_stopped(case, "n1", "n2")
    assert next(event for event in said if isinstance(event, JobQueued)).reason.code == "PausedBeforeItBegan"
    assert only(said, JobPlaced).job_id == "a"


def test_a_gang_with_a_task_that_has_trained_keeps_its_gpus():
    case = begun_on_two_nodes()
    case.give(untrained("n1"))
    assert case.give(JobSuspended(job_id="a", attempt=1, node_id="n2", note="no room")) == []


def test_a_job_with_a_task_that_has_not_started_is_stopped_when_it_is_paused():
    case = PlacementCase(n1=1, n2=1)
    case.submit("a", 2)
    case.start("a")
    said = case.give(JobPauseRequested(job_id="a", requested_by="u"))
    assert [type(event) for event in said] == [JobPreempted, StopTask, StopTask]
    assert only(ends_stopped(case, "n1", "n2"), JobQueued).reason.code == PendingReason.ON_HOLD


def test_between_turns_it_stays_where_it_is():
    """Others have the GPUs for a turn, as ever; nobody has asked for a pause."""
    case = PlacementCase(n1=1)
    case.submit("a")
    case.start("a")
    assert case.give(untrained("n1")) == []


@pytest.mark.parametrize("policy", QUEUES)
def test_what_cannot_be_parked_keeps_its_gpus(policy: str):
    case = PausingCase(policy, parks=False, n1=1)
    case.submit("a")
    case.submit("b")
    assert [type(event) for event in case.pause("a")] == [SuspendTask]
    assert case.running == {"a": [0]}
    assert [type(event) for event in case.resume("a")] == [ResumeTask]
    case.parks = True
    case.pause("a")
    assert case.running == {"b": [0]}, "at another boundary its memory could be moved"


def test_one_task_that_cannot_be_parked_keeps_the_gpus_of_the_whole_gang():
    case = PlacementCase(n1=1, n2=1)
    case.submit("a", 2)
    case.submit("b")
    case.give(JobPauseRequested(job_id="a", requested_by="u"))
    case.give(JobSuspended(job_id="a", attempt=1, node_id="n1", parked=False))
    assert case.give(JobSuspended(job_id="a", attempt=1, node_id="n2", parked=True)) == []


def test_a_resumed_job_goes_before_those_that_came_after_it():
    case = PausingCase(n1=1)
    for job_id in "abc":
        case.submit(job_id)
    case.pause("a")
    case.resume("a")
    case.exit("b")
    assert case.running == {"a": [0]}


def test_a_resumed_job_waits_for_those_that_go_before_it():
    case = PausingCase(n1=1)
    case.submit("a")
    case.submit("b")
    case.submit("urgent", priority=5)
    case.pause("a")
    assert case.running == {"urgent": [0]}
    case.submit("more urgent", priority=9)
    case.resume("a")
    case.exit("urgent")
    assert case.running == {"more urgent": [0]}
    case.exit("more urgent")
    assert case.running == {"a": [0]}


def test_under_strict_fifo_no_job_passes_one_that_waits_to_go_on():
    for policy, passes in (("strict_fifo", False), ("backfill", True)):
        case = PausingCase(policy, n1=1, n2=1)
        case.submit("a")
        case.submit("b")
        case.pause("a")
        case.submit("c")
        case.resume("a")
        case.submit("d")
        case.exit("b", "n2")
        assert ("d" in case.running) is passes


def test_other_gpus_of_its_server_do_where_tasks_can_change_them():
    for remaps, gpus in ((True, [1]), (False, None)):
        case = PausingCase(remaps=remaps, n1=2)
        case.submit("a")
        case.submit("b")
        case.pause("a")
        case.submit("c")
        case.resume("a")
        case.exit("b")
        assert case.running.get("a") == gpus
    waits = [event for event in case.decided(JobQueued) if event.job_id == "a"]
    assert "needs GPU 0 of n1" in waits[-1].reason.message


@pytest.mark.parametrize(("remaps", "kept"), [(True, 2), (False, 4)])
def test_a_resumed_gang_is_not_starved_by_small_jobs(remaps: bool, kept: int):
    case = PausingCase(remaps=remaps, n1=4)
    case.submit("x", 2)
    case.submit("gang", 2)
    assert case.running["gang"] == [2, 3]
    case.exit("x")
    case.pause("gang", at=10.0)
    for number in range(4):
        case.submit(f"small-{number}")
    case.resume("gang", at=20.0)
    case.submit("late")
    wait_s = case.replica.state.settings.reserve_after_s
    assert case.replica.next_wakeup == 20.0 + wait_s
    reserved = only(case.wake(), GangReserved)
    assert (reserved.job_id, [part.gpus for part in reserved.parts]) == ("gang", [kept])
    for number in (0, 1, 2, 3):
        assert "late" not in case.running
        case.exit(f"small-{number}", at=case.now_s + 1)
        if "gang" in case.running:
            break
    assert case.running["gang"] in ([0, 1], [2, 3])
    assert case.replica.state.reservations == {}


def reserved_for_a_resumed_gang() -> PausingCase:
    case = PausingCase(n1=2, n2=2)
    case.submit("gang", 2)
    case.pause("gang")
    for number in range(4):
        case.submit(f"small-{number}")
    case.resume("gang")
    only(case.wake(), GangReserved)
    return case


def test_what_is_kept_for_a_resumed_gang_is_given_away_when_it_is_paused_again():
    case = reserved_for_a_resumed_gang()
    assert only(case.pause("gang"), GangReleased).reason.code == "Paused"
    assert case.replica.state.reservations == {}


def test_what_is_kept_for_a_resumed_gang_is_given_away_when_it_ends():
    case = reserved_for_a_resumed_gang()
    case.give(JobCancelRequested(job_id="gang", requested_by="u", grace_s=0.0))
    said = case.exit("gang", "n1", code=None, signal=15, outcome="stopped")
    only(said, GangReleased), only(said, JobCancelled)


def test_what_is_kept_for_a_resumed_gang_is_given_away_when_its_node_is_lost():
    case = reserved_for_a_resumed_gang()
    said = case.give(NodeLost(node_id="n1", incarnation=1, silent_s=30.0))
    assert only(said, GangReleased).job_id == "gang"
    assert case.standing("gang") is Standing.QUEUED


@pytest.mark.parametrize("policy", [*QUEUES, "max_min_fairness", "gandiva"])
def test_a_paused_job_can_be_cancelled(policy: str):
    case = PausingCase(policy, n1=1)
    case.submit("a")
    case.pause("a")
    stop = only(case.give(JobCancelRequested(job_id="a", requested_by="u", grace_s=3.0)), StopTask)
    assert (stop.job_id, stop.grace_s) == ("a", 3.0)
    only(case.exit("a", code=None, signal=15, outcome="stopped"), JobCancelled)
    case.submit("b")
    assert case.running == {"b": [0]}


def test_a_paused_job_whose_node_is_lost_is_queued_on_hold_and_begins_anew_when_it_is_resumed():
    case = PausingCase(n1=1, n2=1)
    case.submit("a")
    case.pause("a")
    said = case.give(NodeLost(node_id="n1", incarnation=1, silent_s=30.0))
    assert only(said, JobPreempted).reason.code == "NodeLost"
    held = only(said, JobQueued)
    assert (held.attempt, held.reason.code) == (2, PendingReason.ON_HOLD)
    assert only(case.resume("a"), JobPlaced).attempt == 2
    assert case.where("a") == {"n2": [0]}


def test_a_paused_job_that_cannot_be_moved_off_a_drained_node_is_queued_on_hold():
    case = PausingCase(n1=1, n2=1)
    case.submit("a")
    case.pause("a")
    leave = MigrationStarted(migration_id="m", job_id="a", attempt=1, from_nodes=["n1"], reason=SAID)
    assert [type(event) for event in case.give(leave)] == [JobPreempted, StopTask]
    held = only(case.exit("a", code=None, signal=9, outcome="stopped"), JobQueued)
    assert (held.attempt, held.reason.code) == (2, PendingReason.ON_HOLD)


def test_a_paused_job_survives_a_restart_of_its_agent():
    case = PausingCase(n1=1)
    case.submit("a")
    case.pause("a")
    case.rejoin("n1", 1, [("a", 1)])
    assert case.standing("a") is Standing.SUSPENDED
    assert only(case.resume("a"), ResumeTask).job_id == "a"


def test_a_restarted_service_knows_what_is_paused():
    case = PausingCase(n1=1)
    case.submit("a")
    case.submit("b")
    case.pause("a")
    case.replica = Replica.restore(SERVICE, case.replica.snapshot())
    assert case.standing("a") is Standing.SUSPENDED
    case.resume("a")
    assert only(case.exit("b"), ResumeTask).job_id == "a"


@pytest.mark.parametrize("restartable", [True, False])
def test_under_rounds_a_paused_job_gives_its_gpus_up_inside_the_round(restartable: bool):
    case = PausingCase("max_min_fairness", n1=1)
    case.submit("a", restartable=restartable)
    case.submit("b", restartable=restartable)
    [first] = case.running
    [other] = {"a", "b"} - {first}
    case.pause(first)
    assert list(case.running) == [other]
    for _ in range(20):
        case.wake()
    assert list(case.running) == [other]
    case.resume(first)
    case.exit(other)
    assert list(case.running) == [first]
    assert case.decided(JobPreempted) == []


def test_under_time_slices_a_paused_job_gives_its_gpus_up_where_no_job_waits_for_a_turn():
    case = PausingCase("gandiva", n1=1)
    case.submit("a")
    case.pause("a", at=10.0)
    assert case.running == {}
    assert only(case.submit("b", at=20.0), JobPlaced).reason.code == "FreeGpus"
    case.resume("a", at=30.0)
    turns = []
    for _ in range(4):
        case.wake()
        turns += case.running
    assert set(turns) == {"a", "b"}


@pytest.mark.parametrize("policy", [*QUEUES, "gandiva"])
def test_a_pause_lasts_over_a_switch_of_policies(policy: str):
    case = PausingCase("max_min_fairness", n1=1)
    case.submit("a")
    case.pause("a")
    case.give(PolicyChanged(policy=policy, requested_by="op"))
    case.submit("b")
    case.exit("b", at=50.0)
    assert case.running == {}
    case.resume("a", at=60.0)
    assert case.running == {"a": [0]}


def test_a_paused_job_that_stays_where_it_was_after_a_move_gives_its_gpus_up_there():
    case = PausingCase(n1=1, n2=1)
    case.submit("a")
    case.give(JobMovable(job_id="a", attempt=1, node_id="n1"))
    move = MigrationStarted(migration_id="m", job_id="a", attempt=1, from_nodes=["n1"], must_leave=False, reason=SAID)
    only(case.give(move), DestinationReserved)
    case.pause("a")
    assert case.running == {"a": [0]}
    said = case.exit("a", "n2", attempt=2, code=1)
    assert only(said, TimeSliceStarted).suspended == ["a"] and case.running == {}


@pytest.mark.parametrize(
    "fact",
    [
        NodeLost(node_id="n1", incarnation=1, silent_s=40.0),
        NodeLeaving(node_id="n1", incarnation=1, note="stopped"),
        node("n1", 2, incarnation=2),
    ],
    ids=["lost", "leaving", "back without its tasks"],
)
def test_a_paused_job_whose_move_within_a_node_is_given_up_with_the_node_gives_no_gpus_up_there(fact: Event):
    """Its own tasks go with those of the destination: it is queued again."""
    case = PausingCase(n1=2)
    case.submit("a")
    case.give(JobMovable(job_id="a", attempt=1, node_id="n1"))
    within = MigrationStarted(
        migration_id="m", job_id="a", attempt=1, from_nodes=["n1"], to_nodes=["n1"], must_leave=False, reason=SAID
    )
    only(case.give(within), DestinationReserved)
    case.start("a", attempt=2)
    case.pause("a")
    said = case.give(fact)
    assert only(said, MoveAbandoned) and only(said, JobPreempted)
    assert not [event for event in said if isinstance(event, TimeSliceStarted)]
