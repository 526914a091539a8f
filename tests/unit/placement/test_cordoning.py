"""GPUs under suspicion get nothing new until their test has passed, or an operator gives them back."""

from __future__ import annotations

from libs.contracts.agent import GpuRecovered, GpuUnhealthy, NodeTested
from libs.contracts.failure_analysis import GpuSuspected, NodeSuspected
from libs.contracts.gateway import NodeUndrainRequested
from libs.contracts.placement import CheckGpus, JobPlaced, JobQueued, NodeCordoned, NodeReturned
from libs.contracts.reasons import PendingReason
from libs.testing.core_case import node, only
from tests.unit.placement.placement_case import SAID, PlacementCase


def suspected(index: int) -> GpuSuspected:
    return GpuSuspected(node_id="n1", index=index, jobs=["x", "y", "z"], causes=["xid_79"], reason=SAID)


def outcome_of(*indices: int, failed: tuple[int, ...] = ()) -> NodeTested:
    return NodeTested(node_id="n1", gpu_indices=list(indices), failed=list(failed), took_s=1.5)


def test_nothing_new_goes_there_and_what_runs_goes_on_until_the_test_has_passed():
    case = PlacementCase(n1=2)
    case.submit("a")
    cordoned, check = case.give(suspected(0))
    assert isinstance(cordoned, NodeCordoned) and isinstance(check, CheckGpus)
    assert (cordoned.gpu_indices, check.gpu_indices) == ([0], [0])
    assert only(case.submit("b", 2), JobQueued).reason.code == PendingReason.HEALTHY_GPUS_MISSING
    case.submit("c")
    assert case.where("c") == {"n1": [1]} and "b" not in case.placed
    assert case.give(suspected(0)) == []
    case.exit("a")
    case.exit("c")
    said = case.give(outcome_of(0))
    assert only(said, NodeReturned).gpu_indices == [0]
    assert only(said, JobPlaced).job_id == "b"


def test_a_node_is_cordoned_whole_and_comes_back_in_parts():
    case = PlacementCase(n1=2)
    whole = NodeSuspected(node_id="n1", jobs=["x", "y", "z"], causes=["ib_port_down"], reason=SAID)
    assert only(case.give(whole), NodeCordoned).gpu_indices == [0, 1]
    assert only(case.give(outcome_of(0, 1, failed=(1,))), NodeReturned).gpu_indices == [0]
    case.submit("a")
    assert case.where("a") == {"n1": [0]}
    case.submit("b")
    assert "b" not in case.placed


def test_an_operator_gives_it_back():
    case = PlacementCase(n1=1)
    case.give(suspected(0))
    case.give(outcome_of(0, failed=(0,)))
    returned = only(case.give(NodeUndrainRequested(node_id="n1", requested_by="op")), NodeReturned)
    assert (returned.gpu_indices, returned.reason.message) == ([0], "op has given it back")
    case.submit("a")
    assert case.placed == ["a"]
    assert case.give(NodeUndrainRequested(node_id="n1", requested_by="op")) == []


def test_a_new_start_of_the_agent_changes_nothing_but_that_the_test_is_asked_for_again():
    case = PlacementCase(n1=1)
    case.give(suspected(0))
    assert only(case.give(node("n1", 1, incarnation=2)), CheckGpus).gpu_indices == [0]
    case.submit("a")
    assert case.placed == []


def test_a_gpu_that_its_agent_calls_unhealthy_stays_so_after_its_return():
    case = PlacementCase(n1=1)
    case.give(suspected(0))
    case.give(GpuUnhealthy(node_id="n1", index=0, note="fallen off the bus"))
    case.give(outcome_of(0))
    case.submit("a")
    assert case.placed == []
    assert only(case.give(GpuRecovered(node_id="n1", index=0)), JobPlaced).job_id == "a"


def test_a_gpu_that_recovers_stays_cordoned():
    case = PlacementCase(n1=1)
    case.give(GpuUnhealthy(node_id="n1", index=0, note="hot"))
    case.give(suspected(0))
    case.give(GpuRecovered(node_id="n1", index=0))
    case.submit("a")
    assert case.placed == []
    assert only(case.give(outcome_of(0)), JobPlaced).job_id == "a"


def test_what_is_not_known_is_passed_over():
    case = PlacementCase(n1=1)
    assert case.give(suspected(7)) == []
    assert case.give(outcome_of(0)) == []
    stranger = GpuSuspected(node_id="n9", index=0, jobs=[], causes=[], reason=SAID)
    assert case.give(stranger) == []
