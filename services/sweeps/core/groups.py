"""Arrays and DAGs: their jobs are submitted when the whole arrives, and asked for the same when the whole is.

In which order they run is admission's question.
"""

from __future__ import annotations

import msgspec

from libs.contracts.base import Event
from libs.contracts.gateway import (
    ArrayArrived,
    DagArrived,
    GroupChangeRequested,
    JobArrived,
    JobCancelRequested,
    JobPauseRequested,
    JobPriorityChanged,
    JobResumeRequested,
)
from libs.contracts.groups import GroupChange, GroupPlace
from libs.contracts.jobs import JobSpec
from libs.kernel.ids import member_id
from libs.kernel.machine import Turn
from services.sweeps.core.state import State

_LONGEST_NAME = 56


def submit_array(event: ArrayArrived, turn: Turn[State]) -> None:
    """A job per index, in their order."""
    for index in event.indices:
        turn.emit(
            JobArrived(
                job_id=member_id(event.group_id, str(index)),
                spec=_job_of(event, index),
                submitted_by=event.submitted_by,
                after=event.after,
                group=GroupPlace(group_id=event.group_id, index=index),
            )
        )


def submit_dag(event: DagArrived, turn: Turn[State]) -> None:
    """Its jobs, each behind those that it waits for."""
    for index, member in enumerate(event.jobs):
        turn.emit(
            JobArrived(
                job_id=member.job_id,
                spec=member.spec,
                submitted_by=event.submitted_by,
                after=member.after,
                group=GroupPlace(group_id=event.group_id, index=index),
            )
        )


def ask_all(state: State, event: GroupChangeRequested, turn: Turn[State]) -> None:
    """Ask each of its jobs that has not ended, in one go: the requests stand on the log before any answer to one."""
    for job_id in state.groups.get(event.group_id, ()):
        turn.emit(_request(job_id, event))


def _request(job_id: str, event: GroupChangeRequested) -> Event:
    by = event.requested_by
    match event.change:
        case GroupChange.CANCEL:
            return JobCancelRequested(job_id=job_id, requested_by=by, grace_s=event.grace_s, note=event.note)
        case GroupChange.PAUSE:
            return JobPauseRequested(job_id=job_id, requested_by=by)
        case GroupChange.RESUME:
            return JobResumeRequested(job_id=job_id, requested_by=by)
        case GroupChange.PRIORITY:
            return JobPriorityChanged(job_id=job_id, priority=event.priority, requested_by=by)


def _job_of(array: ArrayArrived, index: int) -> JobSpec:
    """The spec of one job: named by its index, and told it in Sanjaya's and in Slurm's variables."""
    spec, first, last, size = array.spec, array.indices[0], array.indices[-1], len(array.indices)
    env = {
        "SANJAYA_ARRAY_ID": array.group_id,
        "SANJAYA_ARRAY_INDEX": str(index),
        "SANJAYA_ARRAY_SIZE": str(size),
        "SLURM_ARRAY_JOB_ID": array.group_id,
        "SLURM_ARRAY_TASK_ID": str(index),
        "SLURM_ARRAY_TASK_COUNT": str(size),
        "SLURM_ARRAY_TASK_MIN": str(first),
        "SLURM_ARRAY_TASK_MAX": str(last),
    }
    return msgspec.structs.replace(spec, name=f"{spec.name[:_LONGEST_NAME]}[{index}]", env=spec.env | env)
