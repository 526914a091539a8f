"""The conservation check counts CPUs and memory from the log alone."""

from __future__ import annotations

from libs.contracts.cluster import TaskPlacement
from libs.contracts.placement import JobPlaced
from libs.contracts.reasons import Reason
from libs.inspect.conservation import conservation
from libs.testing.builders import records
from libs.testing.core_case import arrival, node

SAID = Reason(code="Test", message="said by the test")


def placed(job_id: str, index: int, *beside: str) -> JobPlaced:
    gang = [TaskPlacement(node_id="n1", gpu_indices=[index], first_rank=0)]
    return JobPlaced(job_id=job_id, attempt=1, gang=gang, reason=SAID, packed_with=list(beside))


def violations(*events: object) -> list[str]:
    joined = node("n1", 2, cpus=8, memory_bytes=8 << 30)
    return [found.message for found in conservation(records([joined, *events])).violations]  # type: ignore[list-item]


def test_what_is_promised_together_must_be_there():
    jobs = (arrival("a", cpus=8, memory_bytes=4 << 30), arrival("b", cpus=1, memory_bytes=4 << 30))
    assert violations(*jobs, placed("a", 0)) == []
    assert violations(*jobs, placed("a", 0), placed("b", 1)) == [
        f"9 CPUs and {8 << 30} bytes of memory of n1 are promised with job b, and it has 8 and {8 << 30}"
    ]


def test_jobs_that_share_a_gpu_share_its_cpus_and_not_their_memory():
    jobs = (arrival("a", cpus=8, memory_bytes=4 << 30), arrival("b", cpus=8, memory_bytes=5 << 30))
    assert violations(*jobs, placed("a", 0), placed("b", 0, "a")) == [
        f"8 CPUs and {9 << 30} bytes of memory of n1 are promised with job b, and it has 8 and {8 << 30}"
    ]
