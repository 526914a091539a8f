"""Draining a node: every job there moves, and the end is reported."""

from libs.contracts.cluster import TaskPlacement
from libs.contracts.gateway import NodeDrainRequested, NodeUndrainRequested
from libs.contracts.migration import MigrationCompleted, MigrationFailed, MigrationStarted, NodeDrained
from libs.contracts.placement import JobPlaced, JobQueued, JobSucceeded
from libs.contracts.reasons import Reason
from libs.testing.core_case import CoreCase, only
from services.migration.service import SERVICE

SAID = Reason(code="Test", message="said by the test")
DRAIN = NodeDrainRequested(node_id="n1", note="ecc", requested_by="op")


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
