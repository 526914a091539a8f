"""Whether an event concerns a life that has not ended, as it stands: late and doubled events change nothing."""

from __future__ import annotations

from libs.contracts.agent import JobExited, JobResumed, JobStarted, JobSuspended, NodeJoined, NodeLeft
from libs.contracts.base import Event
from libs.contracts.failure_analysis import RetryScheduled
from libs.contracts.gateway import JobPauseRequested, JobResumeRequested
from libs.contracts.introspection import NodeLost
from libs.contracts.migration import MigrationCompleted, MigrationFailed
from libs.contracts.placement import JobMoved, JobPlaced, JobPreempted, JobQueued, TimeSliceStarted
from libs.contracts.quota import OpportunityGranted, QuotaDeferred, QuotaGranted
from libs.contracts.read_models import TaskStatus
from libs.lifecycle.life import Life


def always(life: Life, event: Event) -> bool:
    """Whatever the life is like."""
    return True


def not_before(
    life: Life,
    event: QuotaGranted | OpportunityGranted | QuotaDeferred | JobQueued | RetryScheduled | JobPlaced,
) -> bool:
    """It is of the latest attempt, or begins another one."""
    return event.attempt >= life.attempt


def current(life: Life, event: JobStarted | JobSuspended | JobResumed | JobExited | JobPreempted) -> bool:
    """It is of the latest attempt."""
    return event.attempt == life.attempt


def moves_on(life: Life, event: JobMoved) -> bool:
    """The attempt that is over is the latest."""
    return event.from_attempt == life.attempt


def its_move(life: Life, event: MigrationCompleted | MigrationFailed) -> bool:
    """It ends the move that is under way."""
    return event.migration_id == life.migration_id


def not_cancelled(life: Life, event: JobPauseRequested | JobResumeRequested) -> bool:
    """Pausing a job that has been asked to end changes nothing."""
    return not life.is_cancelled


def is_named(life: Life, event: TimeSliceStarted) -> bool:
    """The slice takes or gives GPUs of the job."""
    return life.job_id in jobs_of_slice(event)


def jobs_of_slice(event: TimeSliceStarted) -> list[str]:
    """Jobs that lose or get GPUs by a time slice, in the order in which that happens."""
    return [*event.suspended, *(resumed.job_id for resumed in event.resumed)]


def has_task_there(life: Life, event: NodeLost | NodeLeft) -> bool:
    """A task of the latest attempt is, or was, on the node."""
    return event.node_id in life.tasks


def is_forgotten(life: Life, event: NodeJoined) -> bool:
    """The agent that has started does not know the task, and its order cannot be on its way any more."""
    if life.tasks.get(event.node_id, TaskStatus.PLACED) is TaskStatus.PLACED:
        return False
    return (life.job_id, life.attempt) not in [(task.job_id, task.attempt) for task in event.tasks]
