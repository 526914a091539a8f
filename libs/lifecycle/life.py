"""What holds of one job: facts, and the one state that they amount to."""

from __future__ import annotations

import msgspec

from libs.contracts.cluster import TaskPlacement
from libs.contracts.gateway import JobArrived
from libs.contracts.read_models import JobState, TaskStatus
from libs.contracts.reasons import PendingReason
from libs.lifecycle.books import Books, Queues
from libs.lifecycle.waits import Wait


class Life(msgspec.Struct, kw_only=True):
    """One job after the last event about it.

    Everything but `books` can be kept in a row and taken up again; books that are begun then hold nothing of before.
    """

    job_id: str
    tenant: str
    submitted_s: float
    state: JobState = JobState.QUEUED
    attempt: int = 0
    """The latest number, placed or waiting; 0 before the first grant."""
    gang: list[TaskPlacement] = []
    """Of the latest placed attempt; kept when that has failed or the job has ended, empty while the job waits and
    between time slices."""
    tasks: dict[str, TaskStatus] = {}
    """{node id: how far its task is} of the placed attempt."""
    holds_gpus: bool = False
    """Some task of `gang` may use its GPUs: from the placement until the last task has exited. `Books.holding`
    lasts longer: until placement says that it has taken the GPUs back."""
    is_cancelled: bool = False
    """Its end has been asked for."""
    is_paused: bool = False
    """Its user has paused it."""
    is_preempted: bool = False
    """The attempt is being taken off its GPUs."""
    migration_id: str | None = None
    """Of the move under way."""
    started_s: float | None = None
    """When no task of the latest placed attempt was on its way any more; not reset by a move."""
    preemptions: int = 0
    finished_s: float | None = None
    """Its end; None while the state is none of the final ones."""
    books: Books = msgspec.field(default_factory=Books)

    @property
    def has_ended(self) -> bool:
        """Whether nothing changes it any more."""
        return self.finished_s is not None


def begin(event: JobArrived, time_s: float, queues: Queues | None = None) -> Life:
    """The life of a job that has just arrived.

    Args:
        queues: of its cell; None: it is looked at alone.
    """
    spec = event.spec
    books = Books(
        since_s=time_s, state_since_s=time_s, wait=Wait(job_id=event.job_id), tenant=spec.tenant, gpus=spec.gpus.count
    )
    if queues is not None:
        books.enter(queues, time_s)
    books.waits(PendingReason.NOT_YET_EVALUATED, time_s)
    return Life(job_id=event.job_id, tenant=event.spec.tenant, submitted_s=time_s, books=books)


STATE_BY_TASK = {
    TaskStatus.PLACED: JobState.STARTING,
    TaskStatus.RUNNING: JobState.RUNNING,
    TaskStatus.SUSPENDED: JobState.SUSPENDED,
}
"""{status of a live task: state of its job}; of a gang's tasks the one that comes first here counts.

A gang of which one task runs on is RUNNING: the others stand still for its sake, or have ended.
"""
LIVE = frozenset(STATE_BY_TASK)
"""Statuses of a task that has not ended."""


def has_live_task(life: Life) -> bool:
    """Whether some task of the latest placed attempt has not ended, as far as it has been told."""
    return not LIVE.isdisjoint(life.tasks.values())


def state_of(life: Life) -> JobState:
    """The one state that the facts of a job that has not ended amount to."""
    if life.is_cancelled:
        return JobState.STOPPING
    if life.is_preempted:
        return JobState.MIGRATING if life.migration_id else JobState.STOPPING
    if not life.tasks:
        return JobState.QUEUED
    statuses = life.tasks.values()
    for status, state in STATE_BY_TASK.items():
        if status in statuses:
            return JobState.MIGRATING if life.migration_id else state
    return JobState.STOPPING
