"""CPUs and memory of nodes: what jobs are promised, as far as the read models tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from libs.contracts.placement import Role
from libs.contracts.read_models import GpuRow, JobRow, NodeRow


@dataclass(frozen=True)
class Promised:
    """CPUs and memory of one node that are promised to jobs."""

    cpus: int = 0
    memory_bytes: int = 0


NOTHING = Promised()


def cpus_of(job: JobRow) -> int:
    """That it asks for, for each of its GPUs."""
    return job.spec.get("cpus") or 0


def memory_of(job: JobRow) -> int:
    """Bytes that it asks for, for each of its GPUs."""
    return job.spec.get("memory_bytes") or 0


def promised(asking: Sequence[JobRow], gpus: Sequence[GpuRow]) -> Mapping[str, Promised]:
    """{node: what jobs are promised of it}, of the nodes where they are any.

    Guests are promised nothing. Jobs that share a GPU share the CPUs beside it; what a job that moves is promised at
    its destination is left out.

    Args:
        asking: jobs that have not ended and ask for CPUs or memory.
        gpus: every GPU.
    """
    jobs = {job.id: job for job in asking}
    cpus: dict[str, int] = {}
    memory: dict[str, int] = {}
    for gpu in gpus if jobs else ():
        most = max((cpus_of(jobs[job_id]) for job_id, _, _ in gpu.holders if job_id in jobs), default=0)
        cpus[gpu.node_id] = cpus.get(gpu.node_id, 0) + most
    for job in asking:
        for task in job.seats if job.role != Role.GUEST else ():
            node_id = task["node_id"]
            memory[node_id] = memory.get(node_id, 0) + memory_of(job) * len(task["gpu_indices"])
    return {node_id: Promised(cpus.get(node_id, 0), memory.get(node_id, 0)) for node_id in {**cpus, **memory}}


def left(node: NodeRow, have: Mapping[str, Promised]) -> tuple[int, int]:
    """CPUs and bytes of memory of the node that no job is promised."""
    given = have.get(node.id, NOTHING)
    return max(0, node.cpus - given.cpus), max(0, node.memory_bytes - given.memory_bytes)
