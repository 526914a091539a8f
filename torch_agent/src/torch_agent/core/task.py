"""One task of a node: what is wanted of it, what is seen of it, and what to do next.

ACCEPTED ──launched──> RUNNING <──> SUSPENDED
    └────────────────────┴─────────────┴──ended──> EXITED
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from libs.contracts.agent import JobExited, JobResumed, JobStarted, JobSuspended
from libs.contracts.base import Event
from libs.contracts.placement import LaunchTask, ResumeTask, StopTask, SuspendTask

Order = LaunchTask | StopTask | SuspendTask | ResumeTask


class Status(StrEnum):
    """What the agent has reported of a task."""

    ACCEPTED = "accepted"
    """The order is in the journal; nothing has been reported yet."""
    RUNNING = "running"
    SUSPENDED = "suspended"
    EXITED = "exited"


class Want(StrEnum):
    """What the last order asked for."""

    RUN = "run"
    SUSPEND = "suspend"
    STOP = "stop"


class Task(msgspec.Struct, kw_only=True):
    """A task from its order to its end."""

    order: LaunchTask
    status: Status = Status.ACCEPTED
    want: Want = Want.RUN
    grace_s: float = 10.0
    """Time between the polite and the forceful signal of a stop."""
    stopping_since_s: float | None = None
    """When the polite signal was sent."""
    started_s: float = 0.0

    @property
    def key(self) -> str:
        """Names the task on this node, and its folder."""
        return task_key(self.order.job_id, self.order.attempt)


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How the shim says that a task has ended."""

    exit_code: int | None
    signal: int | None
    outcome: str
    rank: int | None = None
    stderr_tail: str = ""
    minibatches_total: int = 0


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What can be observed of a task right now."""

    launched: bool = False
    """A shim is there or on its way."""
    pid: int | None = None
    """Leader of the first rank's process group, once the ranks have been started."""
    ended: Ended | None = None
    gpus_taken: bool = False
    """An older task still uses some of its GPUs."""


class Action(StrEnum):
    """What the world is to be told; all are harmless when repeated."""

    LAUNCH = "launch"
    TERMINATE = "terminate"
    """SIGTERM to the task's process groups, and SIGCONT, so that a suspended task hears it."""
    KILL = "kill"
    SUSPEND = "suspend"
    CONTINUE = "continue"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from a look at a task."""

    actions: list[Action] = []
    facts: list[Event] = []


def task_key(job_id: str, attempt: int) -> str:
    """Names a task on a node."""
    return f"{job_id}.{attempt}"


def apply_order(tasks: dict[str, Task], order: Order) -> Task | None:
    """Note what an order asks for; repeated orders, and orders for unknown or ended tasks, change nothing.

    Returns:
        The task that has changed, or None.
    """
    key = task_key(order.job_id, order.attempt)
    task = tasks.get(key)
    if isinstance(order, LaunchTask):
        if task is not None:
            return None
        tasks[key] = Task(order=order)
        return tasks[key]
    if task is None or task.status is Status.EXITED or task.want is Want.STOP:
        return None
    if isinstance(order, StopTask):
        task.want, task.grace_s = Want.STOP, order.grace_s
    else:
        task.want = Want.SUSPEND if isinstance(order, SuspendTask) else Want.RUN
    return task


def advance(task: Task, seen: Seen, now_s: float) -> Step:
    """Bring a task closer to what is wanted; changes its status along with the facts that are returned."""
    if task.status is Status.EXITED:
        return Step()
    if seen.ended is not None:
        return _end(task, seen.ended, seen.pid, now_s)
    if task.status is Status.ACCEPTED:
        return _begin(task, seen, now_s)
    if task.want is Want.STOP:
        return _stop(task, now_s)
    if task.want is Want.SUSPEND and task.status is Status.RUNNING:
        task.status = Status.SUSPENDED
        return Step(actions=[Action.SUSPEND], facts=[_about(JobSuspended, task)])
    if task.want is Want.RUN and task.status is Status.SUSPENDED:
        task.status = Status.RUNNING
        return Step(actions=[Action.CONTINUE], facts=[_about(JobResumed, task)])
    return Step()


def next_look_s(task: Task) -> float | None:
    """When the passing of time alone calls for a look: the end of a stop's grace."""
    if task.status is Status.EXITED or task.stopping_since_s is None:
        return None
    return task.stopping_since_s + task.grace_s


def _begin(task: Task, seen: Seen, now_s: float) -> Step:
    if not seen.launched:
        if task.want is Want.STOP:
            return _end(task, Ended(exit_code=None, signal=None, outcome="stopped"), None, now_s)
        return Step() if seen.gpus_taken else Step(actions=[Action.LAUNCH])
    if seen.pid is None:
        return Step()
    task.status, task.started_s = Status.RUNNING, now_s
    return Step(facts=[_started(task, seen.pid)])


def _stop(task: Task, now_s: float) -> Step:
    if task.stopping_since_s is None:
        task.stopping_since_s = now_s
        return Step(actions=[Action.TERMINATE])
    if now_s >= task.stopping_since_s + task.grace_s:
        return Step(actions=[Action.KILL])
    return Step()


def _end(task: Task, ended: Ended, pid: int | None, now_s: float) -> Step:
    """Report the end, and before it the start when that has not been reported yet."""
    facts: list[Event] = []
    if task.status is Status.ACCEPTED and pid is not None:
        task.started_s = now_s
        facts.append(_started(task, pid))
    clean = ended.outcome == "exited" and ended.exit_code == 0
    by_order = task.want is Want.STOP and not clean and ended.outcome in ("exited", "signalled")
    facts.append(
        JobExited(
            job_id=task.order.job_id,
            attempt=task.order.attempt,
            node_id=task.order.node_id,
            exit_code=ended.exit_code,
            signal=ended.signal,
            outcome="stopped" if by_order else ended.outcome,
            rank=ended.rank,
            stderr_tail=ended.stderr_tail,
            ran_s=round(now_s - task.started_s, 6) if task.started_s else 0.0,
            minibatches_total=ended.minibatches_total,
        )
    )
    task.status = Status.EXITED
    return Step(facts=facts)


def _started(task: Task, pid: int) -> JobStarted:
    order = task.order
    return JobStarted(job_id=order.job_id, attempt=order.attempt, node_id=order.node_id, pid=pid)


def _about(fact: type[JobSuspended] | type[JobResumed], task: Task) -> Event:
    order = task.order
    return fact(job_id=order.job_id, attempt=order.attempt, node_id=order.node_id)
