"""What introspection learns from control."""

import msgspec

from libs.contracts.agent import NodeLeft
from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.introspection import JobProfiled, JobRecovered, JobStalled, NodeLost
from libs.contracts.placement import AttemptFailed, JobCancelled, JobPlaced, JobPreempted, JobSucceeded
from libs.contracts.reasons import Reason
from libs.node.alarms import Watched
from libs.node.serving import Agent
from libs.testing.core_case import CoreCase, node
from services.introspection.core.watching import WATCH, Running, Watch

WHY = Reason(code="Test", message="test")


def state_after(*events: Event) -> Watch:
    case = CoreCase(WATCH)
    for event in events:
        assert case.give(event) == []
    return case.replica.state


def placed(attempt: int = 1) -> JobPlaced:
    gang = [TaskPlacement(node_id="n1", gpu_indices=[0], first_rank=0)]
    return JobPlaced(job_id="j", attempt=attempt, gang=gang, reason=WHY)


def profiled(start_s: float, attempt: int = 1) -> JobProfiled:
    return JobProfiled(
        job_id="j",
        attempt=attempt,
        window_start_s=start_s,
        window_s=2.0,
        minibatches_total=1,
        rate_per_s=1.0,
        loss=None,
        memory_peak_bytes=0,
        memory_min_bytes=0,
    )


def failed(attempt: int) -> AttemptFailed:
    return AttemptFailed(
        job_id="j", attempt=attempt, node_id="n1", exit_code=1, signal=None, outcome="exited", reason=WHY
    )


def test_own_facts_are_read_back():
    state = state_after(placed(), profiled(10.0), profiled(14.0), profiled(8.0))
    assert state.running == {"j": Running(attempt=1, profiled_until_s=16.0, gpus={"n1": 1})}


def test_facts_about_another_attempt_are_not_this_ones():
    assert state_after(placed(2), profiled(10.0, attempt=1)).running == {"j": Running(attempt=2, gpus={"n1": 1})}


def test_an_attempt_runs_until_it_ends():
    for end in (
        JobSucceeded(job_id="j", attempt=1),
        JobCancelled(job_id="j", attempt=1, reason=WHY),
        JobPreempted(job_id="j", attempt=1, reason=WHY),
        failed(1),
    ):
        assert state_after(placed(), end).running == {}


def test_the_end_of_an_older_attempt_does_not_end_the_next():
    assert list(state_after(placed(2), failed(1)).running) == ["j"]


def test_nodes_are_known_from_joining_to_leaving_or_loss():
    assert state_after(node("n1", 1), node("n2", 1, incarnation=3)).nodes == {"n1": 1, "n2": 3}
    assert state_after(node("n1", 1), NodeLeft(node_id="n1", incarnation=1)).nodes == {}
    assert state_after(node("n1", 1), NodeLost(node_id="n1", incarnation=1, silent_s=20.0)).nodes == {}


def test_a_late_word_about_an_older_incarnation_changes_nothing():
    joined = (node("n1", 1), node("n1", 1, incarnation=2))
    assert state_after(*joined, NodeLost(node_id="n1", incarnation=1, silent_s=20.0)).nodes == {"n1": 2}
    assert state_after(*joined, NodeLeft(node_id="n1", incarnation=1)).nodes == {"n1": 2}


def test_alarms_are_read_back_and_end_with_their_attempt():
    stalled = JobStalled(job_id="j", attempt=1, quiet_s=70.0, limit_s=60.0, p99_s=0.1, minibatches_total=40, reason=WHY)
    recovered = JobRecovered(job_id="j", attempt=1, alarm="stalled", minibatches_total=41, reason=WHY)
    running = state_after(placed(), stalled, recovered, msgspec.structs.replace(stalled, minibatches_total=50)).running[
        "j"
    ]
    assert running.watched == Watched(1, {"n1": 1}, {"stalled": 3}, 50)
    assert state_after(placed(2), stalled).running["j"].told == {}
    assert state_after(placed(), stalled, placed(2)).running["j"].told == {}


def test_it_is_known_where_agents_are_asked_until_they_are_gone():
    joined = msgspec.structs.replace(node("n1", 1), address="10.0.0.1", files_port=99)
    assert state_after(joined).agent("n1") == Agent("n1", "10.0.0.1", 99)
    assert state_after(joined, NodeLeft(node_id="n1", incarnation=1)).agent("n1").port == 0
