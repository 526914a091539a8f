"""A job that has failed on a node goes to others, while others can take it, under every mechanism."""

from __future__ import annotations

from typing import Any

import pytest

from libs.contracts.agent import GpuUnhealthy, NodeLeft
from libs.contracts.failure_analysis import RetryScheduled
from libs.contracts.features import other_than
from libs.contracts.gateway import NodeDrainRequested, PolicyChanged
from libs.contracts.placement import JobPlaced, JobQueued, LaunchTask
from libs.contracts.reasons import PendingReason
from libs.testing.core_case import node, only
from tests.unit.placement.placement_case import SAID, PlacementCase
from tests.unit.placement.rounds_case import RoundsCase

POLICIES = ("fifo_backfill", "max_min_fairness", "gandiva")


def case_of(policy: str, **nodes: int) -> PlacementCase:
    case = RoundsCase(policy) if policy == "max_min_fairness" else PlacementCase()
    if policy == "gandiva":
        case.give(PolicyChanged(policy=policy, requested_by="op"))
    for node_id, gpus in nodes.items():
        case.give(node(node_id, gpus))
    return case


def fail(case: PlacementCase, job_id: str, gpus: int, **changes: Any) -> None:
    """The job's attempt fails where it runs, and another one may be made."""
    for node_id in case.where(job_id):
        case.start(job_id, node_id)
        case.exit(job_id, node_id, code=1)
    case.give(RetryScheduled(job_id=job_id, attempt=2, not_before_s=case.now_s, reason=SAID, **changes))
    case.grant(job_id, 2, gpus)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_next_attempt_is_elsewhere_and_says_why(policy: str):
    case = case_of(policy, n1=2, n2=4)
    case.submit("a", 2)
    first = next(iter(case.where("a")))
    fail(case, "a", 2, avoided_nodes=[first])
    assert case.placed.count("a") == 2
    assert first not in case.where("a")
    last = case.decided(JobPlaced)[-1]
    assert last.reason.message.endswith(f"; not on {first}, where it has failed")
    assert last.reason.numbers["avoided_nodes"] == first


@pytest.mark.parametrize("policy", POLICIES)
def test_where_no_other_can_take_it_nothing_is_avoided(policy: str):
    case = case_of(policy, n1=4, n2=1)
    case.submit("a", 2)
    fail(case, "a", 2, avoided_nodes=["n1"])
    assert case.placed.count("a") == 2 and list(case.where("a")) == ["n1"]


@pytest.mark.parametrize(
    "gone",
    [
        NodeLeft(node_id="n2", incarnation=1),
        NodeDrainRequested(node_id="n2", note="hot", requested_by="op"),
        GpuUnhealthy(node_id="n2", index=0, note="ECC"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_it_waits_for_others_until_they_cannot_take_it_any_more(gone: Any):
    case = case_of("fifo_backfill", n1=2, n2=2)
    case.submit("b", 1, priority=-1)
    case.submit("a", 2)
    assert case.where("a") == {"n2": [0, 1]} or case.where("a") == {"n1": [0, 1]}
    [mine], [other] = case.where("a"), case.where("b")
    fail(case, "a", 2, avoided_nodes=[mine])
    told = case.decided(JobQueued)[-1].reason
    assert told.code == PendingReason.INSUFFICIENT_GPUS and case.placed.count("a") == 1
    case.give(type(gone)(**{**_fields(gone), "node_id": other}))
    assert case.placed.count("a") == 2 and list(case.where("a")) == [mine]


def _fields(event: Any) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__struct_fields__}


def test_others_go_where_one_job_has_failed():
    case = case_of("fifo_backfill", n1=2)
    case.submit("a", 2)
    fail(case, "a", 2, avoided_nodes=["n1"])
    case.exit("a", attempt=2)
    case.submit("b", 2)
    assert list(case.where("b")) == ["n1"]
    assert case.replica.state.nodes["n1"].avoided_by == []


def test_a_retry_may_change_memory_and_variables():
    case = PlacementCase()
    case.give(node("n1", 4, memory_bytes=64 << 30))
    case.submit("a", 1, memory_bytes=8 << 30, env={"A": "1"})
    fail(case, "a", 1, memory_bytes=12 << 30, env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
    launched = case.decided(LaunchTask)[-1]
    assert launched.memory_bytes == 12 << 30
    assert launched.env == {"A": "1", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def test_a_job_that_nothing_is_left_for_hears_what_it_avoids():
    case = case_of("fifo_backfill", n1=2, n2=2)
    case.submit("a", 2)
    mine = next(iter(case.where("a")))
    fail(case, "a", 2, avoided_nodes=[mine])
    case.exit("a", next(iter(case.where("a"))), attempt=2, code=1)
    case.give(RetryScheduled(job_id="a", attempt=3, not_before_s=0.0, reason=SAID, avoided_nodes=["n1", "n2"]))
    case.grant("a", 3, 2)
    assert case.placed.count("a") == 3  # neither can take it, so neither is avoided
    assert other_than("n1") not in case.replica.state.jobs["a"].needs


def test_a_node_that_joins_again_is_still_avoided():
    case = case_of("fifo_backfill", n1=2, n2=2)
    case.submit("a", 2)
    mine = next(iter(case.where("a")))
    fail(case, "a", 2, avoided_nodes=[mine])
    case.give(node(mine, 2, incarnation=2))
    assert case.replica.state.nodes[mine].avoided_by == ["a"]
    assert only([case.decided(JobPlaced)[-1]], JobPlaced).job_id == "a"
