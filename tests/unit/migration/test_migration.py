"""Draining a node: every job there moves, and the end is reported."""

from libs.contracts.agent import JobMovable
from libs.contracts.cluster import TaskPlacement
from libs.contracts.gateway import JobPauseRequested, JobResumeRequested, NodeDrainRequested, NodeUndrainRequested
from libs.contracts.migration import MigrationCompleted, MigrationFailed, MigrationStarted, NodeDrained
from libs.contracts.placement import JobPlaced, JobQueued, JobSucceeded, MoveAbandoned
from libs.contracts.reasons import Reason
from libs.testing.core_case import CoreCase, arrival, only
from services.migration.service import SERVICE

SAID = Reason(code="Test", message="said by the test")
DRAIN = NodeDrainRequested(node_id="n1", note="ecc", requested_by="op")
GENTLY = NodeDrainRequested(node_id="n1", note="ecc", requested_by="op", now=False)
MOVABLE = JobMovable(node_id="n1", job_id="a", attempt=1)


def placed(job_id: str, node_id: str, attempt: int = 1) -> JobPlaced:
    gang = [TaskPlacement(node_id=node_id, gpu_indices=[0], first_rank=0)]
    return JobPlaced(job_id=job_id, attempt=attempt, gang=gang, reason=SAID)


def test_an_empty_node_is_drained_at_once():
    assert [type(e) for e in CoreCase(SERVICE).give(DRAIN)] == [NodeDrained]


def test_jobs_move_and_then_the_node_is_drained():
    case = CoreCase(SERVICE)
    case.give(placed("a", "n1"))
    case.give(placed("b", "n2"))
    started = only(case.give(DRAIN), MigrationStarted)
    assert (started.job_id, started.from_nodes) == ("a", ["n1"])
    assert only(case.give(JobQueued(job_id="a", attempt=2, reason=SAID)), NodeDrained).node_id == "n1"
    completed = only(case.give(placed("a", "n2", attempt=2)), MigrationCompleted)
    assert (completed.migration_id, completed.to_nodes) == (started.migration_id, ["n2"])


def test_a_job_that_ends_first_fails_its_move_but_frees_the_node():
    case = CoreCase(SERVICE)
    case.give(placed("a", "n1"))
    case.give(DRAIN)
    outputs = case.give(JobSucceeded(job_id="a", attempt=1))
    assert [type(e) for e in outputs] == [MigrationFailed, NodeDrained]


def test_a_job_placed_in_ignorance_of_the_drain_moves_on():
    case = CoreCase(SERVICE)
    case.give(DRAIN)
    assert only(case.give(placed("a", "n1")), MigrationStarted).attempt == 1


def test_after_an_undrain_nothing_moves():
    case = CoreCase(SERVICE)
    case.give(DRAIN)
    case.give(NodeUndrainRequested(node_id="n1", requested_by="op"))
    assert case.give(placed("a", "n1")) == []


def test_a_gentle_drain_lets_a_job_that_would_start_from_zero_run_on():
    case = CoreCase(SERVICE)
    case.give(arrival("a"))
    case.give(placed("a", "n1"))
    assert case.give(GENTLY) == []
    assert [type(e) for e in case.give(JobSucceeded(job_id="a", attempt=1))] == [NodeDrained]


def test_a_job_with_checkpoints_leaves_at_once():
    case = CoreCase(SERVICE)
    case.give(arrival("a", restartable=True))
    case.give(placed("a", "n1"))
    assert only(case.give(GENTLY), MigrationStarted).must_leave


def test_a_job_that_hands_over_its_state_leaves_with_it_as_soon_as_it_can():
    case = CoreCase(SERVICE)
    case.give(placed("a", "n1"))
    assert case.give(GENTLY) == []
    assert not only(case.give(MOVABLE), MigrationStarted).must_leave
    case = CoreCase(SERVICE)
    case.give(placed("a", "n1"))
    case.give(MOVABLE)
    assert not only(case.give(GENTLY), MigrationStarted).must_leave


def test_a_second_drain_in_a_hurry_takes_the_others_off_too():
    case = CoreCase(SERVICE)
    case.give(placed("a", "n1"))
    case.give(GENTLY)
    assert only(case.give(DRAIN), MigrationStarted).must_leave


def test_a_job_whose_move_fails_stays_unless_it_must_leave():
    case = CoreCase(SERVICE)
    case.give(placed("a", "n1"))
    case.give(MOVABLE)
    started = only(case.give(GENTLY), MigrationStarted)
    failed = MoveAbandoned(migration_id=started.migration_id, job_id="a", from_attempt=1, reason=SAID)
    assert [type(e) for e in case.give(failed)] == [MigrationFailed]
    case = CoreCase(SERVICE)
    case.give(placed("a", "n1"))
    case.give(MOVABLE)
    case.give(GENTLY)
    assert case.give(DRAIN) == [], "the move that is under way may do"
    outputs = case.give(failed)
    assert [type(e) for e in outputs] == [MigrationFailed, MigrationStarted] and outputs[1].must_leave


def test_a_paused_job_leaves_when_it_is_resumed_and_holds_no_gpus_elsewhere_before():
    case = CoreCase(SERVICE)
    case.give(placed("a", "n1"))
    case.give(MOVABLE)
    case.give(JobPauseRequested(job_id="a", requested_by="u"))
    assert case.give(GENTLY) == []
    assert not only(case.give(JobResumeRequested(job_id="a", requested_by="u")), MigrationStarted).must_leave
