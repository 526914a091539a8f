"""CPUs and memory of the host are promised to jobs that ask for them, and to no other meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from libs.contracts.agent import JobStarted
from libs.contracts.cluster import TaskPlacement, TaskRef
from libs.contracts.gateway import PolicyChanged
from libs.contracts.jobs import GpuRequest
from libs.contracts.placement import GangReserved, JobPlaced, JobQueued, LaunchTask, TimeSliceStarted
from libs.contracts.reasons import PendingReason
from libs.kernel.service import InvariantViolated
from libs.testing.core_case import node, only
from services.placement.core.check import check
from services.placement.core.promises import promised, shortage
from tests.unit.placement.placement_case import PlacementCase
from tests.unit.placement.rounds_case import RoundsCase
from tests.unit.placement.test_slices import SlicesCase

GIB = 1 << 30


def with_hosts(case: PlacementCase, gpus: int, *names: str) -> PlacementCase:
    """Nodes with 8 CPUs and 64 GiB for each GPU."""
    for name in names:
        case.give(node(name, gpus, cpus=8 * gpus, memory_bytes=64 * GIB * gpus, remaps=True))
    return case


def servers(gpus: int, *names: str) -> PlacementCase:
    return with_hosts(PlacementCase(), gpus, *names)


def test_a_task_is_told_what_its_job_asks_for():
    order = only(servers(4, "n1").submit("a", 2, cpus=4, memory_bytes=GIB), LaunchTask)
    assert (order.cpus, order.memory_bytes) == (4, GIB)


def test_a_job_waits_for_cpus_beside_free_gpus_and_is_told_the_numbers():
    case = servers(4, "n1")
    case.submit("big", 1, cpus=20)
    waits = only(case.submit("a", 2, cpus=8), JobQueued).reason
    assert waits.code == PendingReason.INSUFFICIENT_CPUS
    assert waits.message == ("needs 2 GPUs with 8 CPUs each; GPUs are free, but not 16 CPUs beside them: n1 has 12")
    assert (waits.numbers["gpus"], waits.numbers["cpus_per_gpu"]) == (2, 8)
    assert waits.rejected[0].numbers == {"free_gpus": 3, "free_cpus": 12, "free_memory_bytes": 256 * GIB}
    assert isinstance(case.exit("big", at=5.0)[-2], JobPlaced)
    assert case.where("a") == {"n1": [0, 1]}


def test_a_job_waits_for_memory_beside_free_gpus():
    case = servers(4, "n1")
    case.submit("big", 1, memory_bytes=200 * GIB)
    waits = only(case.submit("a", 2, cpus=1, memory_bytes=32 * GIB), JobQueued).reason
    assert waits.code == PendingReason.INSUFFICIENT_MEMORY
    assert waits.message.endswith("GPUs are free, but not 64.0 GiB of memory beside them: n1 has 56.0 GiB")


def test_a_job_that_asks_for_nothing_is_never_refused_for_what_others_have():
    case = servers(4, "n1")
    case.submit("big", 1, cpus=32, memory_bytes=256 * GIB)
    case.submit("plain", 3)
    assert case.placed == ["big", "plain"]


def test_a_job_within_its_share_fits_wherever_others_stay_within_theirs():
    case = servers(4, "n1")
    for name in "abcd":
        case.submit(name, 1, cpus=8, memory_bytes=64 * GIB)
    assert case.placed == ["a", "b", "c", "d"]


def test_a_gang_goes_where_each_part_has_what_it_asks_for():
    case = servers(4, "n1", "n2")
    case.submit("big", 1, cpus=24)
    case.submit("a", 5, cpus=8)
    assert case.where("a") == {"n2": [0, 1, 2, 3], "n1": [1]}
    waits = only(case.submit("b", 1, cpus=1), JobQueued).reason
    assert waits.message.startswith("needs 1 GPU with 1 CPU; GPUs are free, but not 1 CPU beside them: n1 has 0")


def test_nodes_that_never_said_what_they_have_promise_nothing():
    case = PlacementCase(n1=4)
    assert only(case.submit("a", 1, cpus=1), JobQueued).reason.code == PendingReason.HEALTHY_GPUS_MISSING
    case.submit("plain", 1)
    assert case.placed == ["plain"]


def test_a_job_that_asks_for_much_is_not_starved_by_a_stream_of_jobs_that_ask_for_little():
    case = servers(4, "n1")
    for name in "abcd":
        case.submit(name, 1, cpus=8)
    case.submit("much", 1, cpus=24, at=1.0)
    case.exit("a", at=2.0)
    case.submit("e", 1, cpus=8)
    assert case.placed[-1] == "e", "it has not waited for long"
    assert only(case.wake(), GangReserved).job_id == "much"
    for number, name in enumerate("bcd"):
        case.exit(name, at=40.0 + number)
        case.submit(f"late{number}", 1, cpus=8)
    assert case.placed[-1] == "much"


def test_a_reservation_is_of_the_whole_gang_where_cpus_are_missing_beside_free_gpus():
    case = servers(4, "n1")
    case.submit("big", 1, cpus=30)
    case.submit("gang", 3, cpus=8, at=1.0)
    reserved = only(case.wake(), GangReserved)
    assert [(part.node_id, part.gpus) for part in reserved.parts] == [("n1", 3)]
    case.exit("big", at=50.0)
    assert case.placed[-1] == "gang"


def test_the_cpus_of_a_reservation_are_not_reserved_twice():
    case = servers(2, "n1")
    case.submit("a", 1, cpus=16)
    case.submit("b", 1, cpus=16, at=1.0)
    case.submit("c", 1, cpus=16, at=2.0)
    reserved = [event.job_id for event in (*case.wake(), *case.wake()) if isinstance(event, GangReserved)]
    assert reserved == ["b"]


def test_a_suspended_job_keeps_its_memory_and_no_cpus():
    case = SlicesCase()
    with_hosts(case, 1, "n1")
    case.submit("a", 1, cpus=8, memory_bytes=40 * GIB)
    case.submit("b", 1, cpus=8, memory_bytes=20 * GIB, at=100.0)
    assert only(case.decided(TimeSliceStarted)[-1:], TimeSliceStarted).suspended == ["a"]
    assert promised(case.replica.state, "n1") == (8, 60 * GIB)
    waits = only(case.submit("c", 1, memory_bytes=20 * GIB, at=300.0), JobQueued).reason
    assert waits.code == PendingReason.INSUFFICIENT_MEMORY, "that of a suspended job is taken"
    assert waits.message.endswith("GPUs come in turns, but not 20.0 GiB of memory beside them: n1 has 4.0 GiB")
    case.submit("d", 1, cpus=8, at=400.0)
    assert case.placed[-1] == "d"
    case.exit("a", at=500.0)
    case.exit("d", at=500.0)
    while case.placed[-1] != "c":
        case.wake()


def test_rounds_give_no_more_cpus_than_there_are():
    case = RoundsCase()
    with_hosts(case, 2, "n1")
    for name in "ab":
        case.submit(name, 1, cpus=10)
    case.submit("c", 1)
    state = case.replica.state
    running = [job.job_id for job in state.jobs.values() if job.gang]
    assert len(running) == 2 and "c" in running
    assert promised(state, "n1").cpus == 10


def test_a_decision_that_promises_too_much_is_refused():
    case = servers(4, "n1")
    case.submit("big", 1, cpus=30)
    case.submit("a", 1, cpus=8)
    cell = case.replica.state
    gang = [only(case.decided(JobPlaced)[:1], JobPlaced).gang[0]]
    assert shortage(cell, [(cell.jobs["a"], gang)]) is None, "jobs that share a GPU share the CPUs beside it"
    beside = [TaskPlacement(node_id="n1", gpu_indices=[1], first_rank=0)]
    assert shortage(cell, [(cell.jobs["a"], beside)]) == "38 CPUs of n1 would be promised, which has 32"
    assert shortage(cell, [(cell.jobs["a"], beside)], leaving=["big"]) is None


def test_the_check_counts_from_the_jobs_themselves():
    case = servers(4, "n1")
    case.submit("big", 1, cpus=30, memory_bytes=GIB)
    case.replica.state.nodes["n1"].cpus = 16
    with pytest.raises(InvariantViolated, match=r"n1 has 16 CPUs .* promised 30"):
        check(case.replica.state)


def test_a_node_that_comes_back_with_less_keeps_what_it_has_promised_and_promises_no_more():
    case = servers(4, "n1")
    case.submit("big", 1, cpus=30)
    case.give(JobStarted(job_id="big", attempt=1, node_id="n1", pid=1))
    case.give(node("n1", 4, incarnation=2, tasks=[TaskRef(job_id="big", attempt=1)], cpus=16, memory_bytes=256 * GIB))
    assert only(case.submit("a", 1, cpus=1), JobQueued).reason.code == PendingReason.INSUFFICIENT_CPUS


def decisions(policy: str, **host: int) -> list[tuple[str, Any]]:
    """What placement decides for jobs that ask for nothing."""
    case = PlacementCase()
    for name, gpus in (("n1", 4), ("n2", 2)):
        case.give(node(name, gpus, remaps=True, **host))
    case.give(PolicyChanged(policy=policy, requested_by="op"))
    for number, width in enumerate((2, 3, 1, 4, 1, 2)):
        case.submit(f"j{number}", GpuRequest(count=width), at=number * 1.0)
    for _ in range(3):
        if case.replica.next_wakeup is not None:
            case.wake()
    return [(type(event).__name__, event) for event in case.all]


@pytest.mark.parametrize("policy", ["strict_fifo", "backfill", "gandiva"])
def test_decisions_about_jobs_that_ask_for_nothing_do_not_depend_on_hosts(policy: str):
    assert decisions(policy) == decisions(policy, cpus=1, memory_bytes=GIB)
