"""A job moves live: prepared elsewhere, halted, taken over; or it stays, whatever goes wrong on the way."""

from __future__ import annotations

import pytest

from libs.contracts.agent import (
    JobExited,
    JobMovable,
    JobReady,
    JobRestored,
    JobResumed,
    JobSuspended,
    NodeLeft,
)
from libs.contracts.base import Event
from libs.contracts.gateway import JobCancelRequested, JobPauseRequested, JobResumeRequested, PolicyChanged
from libs.contracts.introspection import NodeLost
from libs.contracts.migration import MigrationStarted
from libs.contracts.placement import (
    AttemptFailed,
    DestinationReserved,
    JobCancelled,
    JobMoved,
    JobPlaced,
    JobPreempted,
    JobQueued,
    JobSucceeded,
    LaunchTask,
    MoveAbandoned,
    RestoreTask,
    ResumeTask,
    StopTask,
    SuspendTask,
)
from libs.contracts.reasons import PendingReason
from libs.testing.core_case import only
from tests.unit.placement.placement_case import SAID, PlacementCase


class MoveCase(PlacementCase):
    """Job `a` runs on n1 and can be moved."""

    def __init__(self, gpus: int = 1, *, movable: bool = True, **nodes: int) -> None:
        super().__init__(**(nodes or {"n1": 2, "n2": 2}))
        self.submit("a", gpus)
        self.sources = list(self.where("a"))
        for node_id in self.sources:
            self.start("a", node_id)
            if movable:
                self.give(JobMovable(job_id="a", attempt=1, node_id=node_id))

    def ask(self, *to_nodes: str, must_leave: bool = False) -> list[Event]:
        """Migration wants the job moved."""
        return self.give(
            MigrationStarted(
                migration_id="m-1",
                job_id="a",
                attempt=1,
                from_nodes=self.sources,
                to_nodes=list(to_nodes),
                must_leave=must_leave,
                reason=SAID,
            )
        )

    def warm(self) -> list[Event]:
        """Up to where the destination waits for the state."""
        self.ask()
        self.start("a", "n2", attempt=2)
        return self.give(JobReady(job_id="a", attempt=2, node_id="n2"))

    def still(self) -> list[Event]:
        """The source stands still."""
        outputs: list[Event] = []
        for node_id in self.sources:
            outputs += self.give(JobSuspended(job_id="a", attempt=1, node_id=node_id, parked=True))
        return outputs

    def restored(self) -> list[Event]:
        """The destination has the state."""
        return self.give(JobRestored(job_id="a", attempt=2, node_id="n2"))

    @property
    def state_of(self) -> dict[str, list[list[str]]]:
        """{node: holders of its GPUs}."""
        return {n: [gpu.holders for gpu in node.gpus] for n, node in self.replica.state.nodes.items()}


def orders(outputs: list[Event]) -> list[tuple[str, str, int]]:
    """(Order, node, attempt)."""
    kinds = (LaunchTask, StopTask, SuspendTask, ResumeTask, RestoreTask)
    return [(type(e).__name__, e.node_id, e.attempt) for e in outputs if isinstance(e, kinds)]


def test_the_destination_is_made_ready_while_the_source_trains():
    case = MoveCase()
    outputs = case.ask()
    reserved = only(outputs, DestinationReserved)
    assert (reserved.from_attempt, reserved.attempt) == (1, 2)
    launched = only(outputs, LaunchTask)
    assert (launched.node_id, launched.attempt, launched.restores) == ("n2", 2, True)
    assert case.state_of == {"n1": [["a"], []], "n2": [["a"], []]}


def test_a_gang_that_waits_is_told_that_the_destination_has_become_less_free():
    case = MoveCase()
    case.submit("beside")
    case.submit("there")
    case.exit("beside")
    waits = only(case.submit("gang", 2), JobQueued)
    assert waits.reason.code == PendingReason.LOCALITY_RELAXING, "one GPU is free on each server"
    told = [event for event in case.ask("n2") if isinstance(event, JobQueued)]
    assert [(event.job_id, event.reason.code) for event in told] == [("gang", PendingReason.INSUFFICIENT_GPUS)]


def test_a_move_goes_from_step_to_step_and_the_source_ends_without_another_one():
    case = MoveCase()
    assert orders(case.warm()) == [("SuspendTask", "n1", 1)]
    assert orders(case.still()) == [("RestoreTask", "n2", 2)]
    outputs = case.restored()
    moved = only(outputs, JobMoved)
    assert (moved.from_attempt, moved.attempt, moved.gang[0].node_id) == (1, 2, "n2")
    assert orders(outputs) == [("StopTask", "n1", 1), ("ResumeTask", "n2", 2)]
    assert only(outputs, StopTask).grace_s == 0
    assert case.state_of == {"n1": [[], []], "n2": [["a"], []]}
    assert case.exit("a", "n1", attempt=1, code=None, signal=9, outcome="stopped") == []
    case.give(JobResumed(job_id="a", attempt=2, node_id="n2", gpu_indices=[0]))
    assert only(case.exit("a", "n2", attempt=2), JobSucceeded).attempt == 2


def test_the_states_of_all_ranks_are_fetched_from_where_they_are():
    case = MoveCase(4, n1=2, n2=2, n3=4)
    assert case.sources == ["n3"]
    case.ask("n1", "n2")
    for node_id in ("n1", "n2"):
        case.start("a", node_id, attempt=2)
        case.give(JobReady(job_id="a", attempt=2, node_id=node_id))
    restores = [order for order in case.still() if isinstance(order, RestoreTask)]
    assert sorted(order.node_id for order in restores) == ["n1", "n2"]
    assert [(s.node_id, s.first_rank) for order in restores for s in order.sources] == [("n3", 0), ("n3", 0)]
    assert case.give(JobRestored(job_id="a", attempt=2, node_id="n1")) == []
    assert only(case.restored(), JobMoved).attempt == 2


def test_what_cannot_hand_over_its_state_is_restarted_elsewhere_if_it_must_leave():
    case = MoveCase(movable=False)
    refused = only(case.ask(), MoveAbandoned)
    assert refused.reason.code == "NotMovable"
    assert only(case.ask(must_leave=True), JobPreempted).attempt == 1


def test_without_room_it_stays_or_is_queued():
    case = MoveCase(n1=1, n2=1)
    case.submit("b")
    assert only(case.ask(), MoveAbandoned).reason.code == "NoRoom"
    assert only(case.ask(must_leave=True), JobPreempted)


def test_under_a_policy_with_rounds_no_job_is_moved_live():
    case = MoveCase()
    case.give(PolicyChanged(policy="max_min_fairness", requested_by="op"))
    assert only(case.ask(), MoveAbandoned).reason.code == "RoundsMoveJobs"


def test_when_the_destination_fails_the_source_goes_on():
    case = MoveCase()
    case.warm()
    case.still()
    outputs = case.exit("a", "n2", attempt=2, code=1, outcome="restore_failed")
    assert only(outputs, MoveAbandoned).reason.code == "DestinationFailed"
    assert orders(outputs) == [("ResumeTask", "n1", 1)]
    assert case.state_of == {"n1": [["a"], []], "n2": [[], []]}


def test_a_destination_that_fails_before_the_source_was_halted_is_not_felt():
    case = MoveCase()
    case.ask()
    outputs = case.exit("a", "n2", attempt=2, code=1, outcome="restore_failed")
    assert orders(outputs) == []


def test_a_job_that_must_leave_is_restarted_when_the_live_move_fails():
    case = MoveCase()
    case.ask(must_leave=True)
    outputs = case.exit("a", "n2", attempt=2, code=1, outcome="restore_failed")
    assert only(outputs, JobPreempted).attempt == 1
    assert orders(outputs) == [("StopTask", "n1", 1)]
    queued = only(case.exit("a", "n1", code=None, signal=15, outcome="stopped"), JobQueued)
    assert queued.attempt == 3, "agents remember the number of the move"


@pytest.mark.parametrize(
    "gone", [NodeLost(node_id="n2", silent_s=30.0, incarnation=1), NodeLeft(node_id="n2", incarnation=1)]
)
def test_when_the_destinations_node_is_lost_the_source_goes_on(gone: Event):
    case = MoveCase()
    case.warm()
    outputs = case.give(gone)
    assert only(outputs, MoveAbandoned)
    assert ("ResumeTask", "n1", 1) in orders(outputs)


def test_when_the_sources_node_is_lost_before_the_end_the_job_starts_again():
    case = MoveCase()
    case.warm()
    case.still()
    outputs = case.give(NodeLost(node_id="n1", silent_s=30.0, incarnation=1))
    assert only(outputs, MoveAbandoned)
    assert ("StopTask", "n2", 2) in orders(outputs)
    assert only(outputs, JobPlaced).attempt == 3


def test_after_the_end_the_sources_node_does_not_matter():
    case = MoveCase()
    case.warm()
    case.still()
    case.restored()
    assert case.give(NodeLost(node_id="n1", silent_s=30.0, incarnation=1)) == []


def test_a_job_that_ends_meanwhile_has_ended():
    case = MoveCase()
    case.ask()
    outputs = case.exit("a", "n1")
    assert only(outputs, MoveAbandoned).reason.code == "Ended"
    assert orders(outputs) == [("StopTask", "n2", 2)]
    assert only(outputs, JobSucceeded).attempt == 1


def test_a_failure_meanwhile_says_which_numbers_are_used_up():
    case = MoveCase()
    case.ask()
    outputs = case.exit("a", "n1", code=1)
    assert only(outputs, AttemptFailed).last_attempt == 2


def test_a_cancelled_job_does_not_move():
    case = MoveCase()
    case.warm()
    outputs = case.give(JobCancelRequested(job_id="a", requested_by="ada"))
    assert only(outputs, MoveAbandoned).reason.code == "CancelRequested"
    assert ("StopTask", "n2", 2) in orders(outputs)
    assert only(case.exit("a", "n1", code=None, signal=15, outcome="stopped"), JobCancelled)


def test_a_paused_job_moves_and_stands_still_there_until_it_is_resumed():
    case = MoveCase()
    case.ask()
    case.give(JobPauseRequested(job_id="a", requested_by="ada"))
    case.still()
    case.start("a", "n2", attempt=2)
    assert orders(case.give(JobReady(job_id="a", attempt=2, node_id="n2"))) == [("RestoreTask", "n2", 2)]
    assert orders(case.restored()) == [("StopTask", "n1", 1)]
    assert orders(case.give(JobResumeRequested(job_id="a", requested_by="ada"))) == [("ResumeTask", "n2", 2)]


def test_a_job_that_is_resumed_during_the_takeover_goes_on_at_the_destination():
    case = MoveCase()
    case.ask()
    case.give(JobPauseRequested(job_id="a", requested_by="ada"))
    case.still()
    case.start("a", "n2", attempt=2)
    case.give(JobReady(job_id="a", attempt=2, node_id="n2"))
    assert orders(case.give(JobResumeRequested(job_id="a", requested_by="ada"))) == []
    assert ("ResumeTask", "n2", 2) in orders(case.restored())


def test_a_task_that_comes_back_after_its_move_was_abandoned_is_stopped():
    case = MoveCase()
    case.ask()
    case.exit("a", "n1")
    outputs = case.rejoin("n2", 2, [("a", 2)])
    assert orders(outputs) == [("StopTask", "n2", 2)]


def test_a_destination_agent_that_restarts_keeps_its_part():
    case = MoveCase()
    case.warm()
    case.still()
    assert orders(case.rejoin("n2", 2, [("a", 2)])) == []
    assert only(case.restored(), JobMoved)


def test_a_destination_agent_that_has_lost_its_part_ends_the_move():
    case = MoveCase()
    case.warm()
    case.still()
    outputs = case.rejoin("n2", 2, [])
    assert only(outputs, MoveAbandoned)
    assert ("ResumeTask", "n1", 1) in orders(outputs)


def test_the_end_of_an_attempt_that_is_over_is_no_end_of_the_move():
    case = MoveCase()
    case.ask()
    late = JobExited(job_id="a", attempt=0, node_id="n2", exit_code=0, signal=None, outcome="exited")
    assert case.give(late) == []


def test_what_one_node_of_a_gang_says_twice_does_not_speak_for_the_others():
    case = MoveCase(4, n1=2, n2=2, n3=2, n4=2)
    case.ask()
    for _ in range(2):
        case.start("a", "n3", attempt=2)
        assert orders(case.give(JobReady(job_id="a", attempt=2, node_id="n3"))) == []
    case.start("a", "n4", attempt=2)
    halted = orders(case.give(JobReady(job_id="a", attempt=2, node_id="n4")))
    assert halted == [("SuspendTask", "n1", 1), ("SuspendTask", "n2", 1)]
    assert orders(case.still())[0] == ("RestoreTask", "n3", 2)
    for _ in range(2):
        assert case.give(JobRestored(job_id="a", attempt=2, node_id="n3")) == []
    assert only(case.give(JobRestored(job_id="a", attempt=2, node_id="n4")), JobMoved)
