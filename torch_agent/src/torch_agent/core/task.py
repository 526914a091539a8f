"""One task of a node: what is wanted of it, what is seen of it, and what to do next.

ACCEPTED ──launched──> RUNNING ──asked, parked, frozen──> SUSPENDED
    │                     ▲ │                                │  │
    │                     └─┼──thawed, memory is back────────┘  │
    └───────────────────────┴───────────────ended───────────────┴──> EXITED
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from libs.contracts.agent import JobExited, JobResumed, JobStarted, JobSuspended
from libs.contracts.base import Event
from libs.contracts.placement import LaunchTask, ResumeTask, StopTask, SuspendTask

BOUNDARY_PATIENCE_S = 30.0
"""How long processes may take to their next mini-batch boundary before they are stopped where they are."""

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
    gpu_indices: list[int] = []
    """The GPUs that it uses, or used last."""
    wanted_gpus: list[int] = []
    """Those that it is to use when it runs."""
    partners: list[str] = []
    """Jobs that may use them at the same time."""
    asked_since_s: float | None = None
    """When its processes were asked to stand still, or to go on; None while nothing is under way."""

    @property
    def occupies(self) -> bool:
        """Whether its GPUs are in use, or about to be."""
        if self.status is Status.SUSPENDED:
            return self.asked_since_s is not None or self.want is Want.STOP
        return self.status is not Status.EXITED

    @property
    def runs(self) -> bool:
        """Whether its processes make progress, as far as anybody has asked them to."""
        return self.status is Status.RUNNING and self.asked_since_s is None

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


class Stillness(msgspec.Struct, frozen=True, kw_only=True):
    """What a suspension has taken, over the processes of the task."""

    bytes_parked: int
    bytes_left: int
    """Still on the GPUs."""
    park_s: float
    """Of the slowest process."""
    unpark_s: float
    parked_at_s: float
    """When the last of them had reached its boundary."""
    minibatches_total: int


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What can be observed of a task right now."""

    launched: bool = False
    """A shim is there or on its way."""
    pid: int | None = None
    """Leader of the first rank's process group, once the ranks have been started."""
    ended: Ended | None = None
    gpus_taken: bool = False
    """Another task still uses some of its GPUs."""
    harnessed: bool = False
    """Its processes pass mini-batch boundaries and listen there."""
    obeyed: bool = False
    """All of them have done what the turn in force wants."""
    stillness: Stillness | None = None
    """While they stand still, or since they went on: what it took."""


class Action(StrEnum):
    """What the world is to be told; all are harmless when repeated."""

    LAUNCH = "launch"
    TERMINATE = "terminate"
    """SIGTERM to the task's process groups, and SIGCONT, so that a suspended task hears it."""
    KILL = "kill"
    ASK = "ask to stand still"
    """At the next mini-batch boundary."""
    FREEZE = "freeze"
    """SIGSTOP to the process groups."""
    THAW = "thaw"
    """Let the processes go on, with their memory."""


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
        tasks[key] = Task(
            order=order, gpu_indices=order.gpu_indices, wanted_gpus=order.gpu_indices, partners=order.packed_with
        )
        return tasks[key]
    if task is None or task.status is Status.EXITED or task.want is Want.STOP:
        return None
    if isinstance(order, StopTask):
        task.want, task.grace_s = Want.STOP, order.grace_s
    elif isinstance(order, SuspendTask):
        task.want = Want.SUSPEND
    else:
        task.want = Want.RUN
        task.wanted_gpus = order.gpu_indices or task.gpu_indices
        task.partners = order.packed_with
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
    if task.status is Status.RUNNING:
        elsewhere = task.want is Want.SUSPEND or task.wanted_gpus != task.gpu_indices
        return _suspend(task, seen, now_s) if elsewhere else _change_of_mind(task)
    return _resume(task, seen, now_s) if task.want is Want.RUN or task.asked_since_s is not None else Step()


def next_look_s(task: Task) -> float | None:
    """When the passing of time alone calls for a look: the end of a stop's grace."""
    if task.status is Status.EXITED or task.stopping_since_s is None:
        return None
    return task.stopping_since_s + task.grace_s


def _suspend(task: Task, seen: Seen, now_s: float) -> Step:
    """At a mini-batch boundary if there is one in time, else wherever the processes are."""
    if task.asked_since_s is None:
        task.asked_since_s = now_s
        return Step(actions=[Action.ASK])
    if _awaited(task.asked_since_s, seen, now_s):
        return Step()
    fact = _suspended(task, seen, task.asked_since_s, now_s)
    task.status, task.asked_since_s = Status.SUSPENDED, None
    return Step(actions=[Action.FREEZE], facts=[fact])


def _change_of_mind(task: Task) -> Step:
    if task.asked_since_s is None:
        return Step()
    task.asked_since_s = None
    return Step(actions=[Action.THAW])


def _resume(task: Task, seen: Seen, now_s: float) -> Step:
    if task.asked_since_s is None:
        if seen.gpus_taken:
            return Step()
        task.asked_since_s, task.gpu_indices = now_s, task.wanted_gpus
        return Step(actions=[Action.THAW])
    if _awaited(task.asked_since_s, seen, now_s):
        return Step()
    took_s, task.status, task.asked_since_s = now_s - task.asked_since_s, Status.RUNNING, None
    return Step(facts=[_resumed(task, seen, took_s)])


def _awaited(asked_since_s: float, seen: Seen, now_s: float) -> bool:
    """Whether processes that listen at their boundaries have not done yet what was asked, and still may."""
    return seen.harnessed and not seen.obeyed and now_s < asked_since_s + BOUNDARY_PATIENCE_S


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


def _suspended(task: Task, seen: Seen, asked_s: float, now_s: float) -> JobSuspended:
    """A process that nobody has parked keeps its memory on the GPU."""
    order, stillness = task.order, seen.stillness if seen.obeyed else None
    if stillness is None:
        return JobSuspended(
            job_id=order.job_id, attempt=order.attempt, node_id=order.node_id, delay_s=round(now_s - asked_s, 6)
        )
    return JobSuspended(
        job_id=order.job_id,
        attempt=order.attempt,
        node_id=order.node_id,
        parked=stillness.bytes_parked > 0,
        delay_s=round(max(0.0, stillness.parked_at_s - asked_s), 6),
        took_s=round(stillness.park_s, 6),
        parked_bytes=stillness.bytes_parked,
        left_bytes=stillness.bytes_left,
        minibatches_total=stillness.minibatches_total,
    )


def _resumed(task: Task, seen: Seen, took_s: float) -> JobResumed:
    order = task.order
    return JobResumed(
        job_id=order.job_id,
        attempt=order.attempt,
        node_id=order.node_id,
        gpu_indices=task.gpu_indices,
        took_s=round(seen.stillness.unpark_s if seen.stillness else 0.0, 6),
        delay_s=round(took_s, 6),
    )
