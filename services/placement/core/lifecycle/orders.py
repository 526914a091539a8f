"""The requests to agents that carry a decision out."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from libs.contracts.cluster import TaskPlacement, width_of
from libs.contracts.jobs import JobSpec
from libs.contracts.placement import LaunchTask, RestoreTask, ResumeTask, SetClass, StateSource, StopTask, SuspendTask
from libs.contracts.reasons import Reason
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job, Move, Trial
from services.placement.core.lifecycle.ports import port_on

AS_DESCRIBED = tuple(field for field in LaunchTask.__struct_fields__ if field in JobSpec.__struct_fields__)
"""What a task is told of its job as its user described it: fields that have the same name in both."""
_described = attrgetter(*AS_DESCRIBED)


def launch_orders(
    cell: Cell,
    job: Job,
    gang: list[TaskPlacement],
    attempt: int,
    packed_with: Sequence[str] = (),
    *,
    restores: bool = False,
) -> list[LaunchTask]:
    """One order per node of the gang.

    Args:
        packed_with: jobs that may hold the same GPUs at the same time.
        restores: the tasks are to wait for the state of an earlier attempt.
    """
    first = cell.nodes[gang[0].node_id]
    spread, width = len(gang) > 1, width_of(gang)
    asked = job.trial.asked if job.trial is not None else job.spec
    as_described: dict[str, Any] = dict(zip(AS_DESCRIBED, _described(job.spec), strict=True))
    return [
        LaunchTask(
            node_id=task.node_id,
            job_id=job.job_id,
            attempt=attempt,
            gpu_indices=task.gpu_indices,
            first_rank=task.first_rank,
            world_size=width,
            node_rank=node_rank,
            node_count=len(gang),
            rendezvous_host=first.address if spread else None,
            rendezvous_port=port_on(first) if spread else None,
            packed_with=list(packed_with),
            restores=restores,
            role=job.role,
            memory_limit_bytes=job.memory_limit_bytes,
            compute_share_ratio=job.compute_share_ratio,
            **(as_described | (_trial_of(job.trial) if job.trial is not None else {})),
            virtual_ranks=asked.widths[-1] if asked.elastic is not None else None,
        )
        for node_rank, task in enumerate(gang)
    ]


def _trial_of(trial: Trial) -> dict[str, Any]:
    """What a task is told that is a trial: its losses are not those of its job."""
    return {
        "when_converged": "",
        "trial_steps": trial.steps,
        "trial_schema": trial.asked.data_schema,
        "trial_data": list(trial.asked.data) if trial.asked.data_schema else [],
    }


def stop_orders(job: Job, grace_s: float, reason: Reason) -> list[StopTask]:
    """One order per task that has not ended."""
    return [
        StopTask(node_id=node_id, job_id=job.job_id, attempt=job.attempt, grace_s=grace_s, reason=reason)
        for node_id in job.live_nodes()
    ]


def class_orders(job: Job) -> list[SetClass]:
    """One order per task that has not ended: what the job is on its GPUs from now on."""
    return [
        SetClass(node_id=node_id, job_id=job.job_id, attempt=job.attempt, role=job.role) for node_id in job.live_nodes()
    ]


def beside(cell: Cell, job: Job, task: TaskPlacement) -> list[str]:
    """The jobs that may use the task's GPUs beside it because one of them is a guest there."""
    gpus = [cell.nodes[task.node_id].gpus[index] for index in task.gpu_indices]
    others = [other for gpu in gpus for other in (*(gpu.holders if job.guest else ()), *gpu.guests)]
    return [other for other in dict.fromkeys(others) if other != job.job_id and cell.jobs[other].stays]


def suspend_orders(job: Job) -> list[SuspendTask]:
    """One order per task that has not ended: stand still."""
    return [
        SuspendTask(node_id=node_id, job_id=job.job_id, attempt=job.attempt, pause=job.held)
        for node_id in job.live_nodes()
    ]


def resume_orders(cell: Cell, job: Job) -> list[ResumeTask]:
    """One order per task that has not ended: go on where you are."""
    return [
        ResumeTask(
            node_id=task.node_id,
            job_id=job.job_id,
            attempt=job.attempt,
            gpu_indices=task.gpu_indices,
            packed_with=beside(cell, job, task),
            role=job.role,
        )
        for task in job.gang
        if task.node_id not in job.tasks.exits
    ]


def restore_orders(cell: Cell, job: Job, move: Move) -> list[RestoreTask]:
    """Every task of the destination learns where the states of all ranks are, and takes those of its own."""
    sources = [
        StateSource(
            node_id=task.node_id,
            address=cell.nodes[task.node_id].address,
            port=cell.nodes[task.node_id].state_port,
            first_rank=task.first_rank,
        )
        for task in job.gang
    ]
    return [
        RestoreTask(
            node_id=task.node_id,
            job_id=job.job_id,
            attempt=move.attempt,
            from_attempt=job.attempt,
            sources=sources,
            ranks=job.width,
        )
        for task in move.gang
    ]
