"""One task of a node: what is wanted of it, what is seen of it, and what to do next.

ACCEPTED ──launched──> RUNNING ──asked, parked, frozen──> SUSPENDED
    │                     ▲ │                                │  │ ▲
    │                     └─┼──thawed, memory is back────────┘  │ │
    ├───────────────────────┴───────────────ended───────────────┴─┼──> EXITED
    └─launched to take over─> WARMING ──script waits──> READY ──state is loaded
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from libs.contracts.placement import (
    LaunchTask,
    RestoreTask,
    ResumeTask,
    SetClass,
    SetComputeShare,
    SetMemoryLimit,
    StopTask,
    SuspendTask,
)

Order = LaunchTask | StopTask | SuspendTask | ResumeTask | RestoreTask | SetClass | SetComputeShare | SetMemoryLimit

GUEST = "guest"
"""The role of a task that uses what the owner of its GPUs leaves; an owner has its GPUs to itself but for guests."""

LEAVING_PATIENCE_S = 25.0
"""How long an agent that leaves its cell waits for its tasks to end; the next agent adopts those that have not."""


class Status(StrEnum):
    """What has been reported of a task."""

    ACCEPTED = "accepted"
    """The order is in the journal; nothing has been reported yet."""
    RUNNING = "running"
    SUSPENDED = "suspended"
    WARMING = "warming"
    """It is to take over the state of an earlier attempt, and has not come so far yet."""
    READY = "ready"
    """It waits for that state, or is getting it."""
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
    launched: bool = False
    """While it is accepted: its processes are being started, as far as was seen last."""
    started_s: float = 0.0
    gpu_indices: list[int] = []
    """The GPUs that it uses, or used last."""
    wanted_gpus: list[int] = []
    """Those that it is to use when it runs."""
    partners: list[str] = []
    """Jobs that may use them at the same time."""
    asked_since_s: float | None = None
    """When its processes were asked to stand still, or to go on; None while nothing is under way."""
    movable: bool = False
    """That its processes can hand over their state has been reported."""
    setting_up: bool = False
    """That its environment is prepared has been reported."""
    apart: bool = False
    """That its processes train without a process group has been reported."""
    restore: RestoreTask | None = None
    """Where the state is that it is to take over, once that is known."""
    reported_at_s: float | None = None
    """When its script's last report was passed on; None: none was."""
    reported_step: float | None = None
    """The step of that report."""
    role: str = ""
    """`owner` or `guest`; as in JobPlaced."""
    share_bound: float | None = None
    """The most that it may be given of its GPUs' time outside of gaps, from 0 to 1; None: all of it."""
    memory_bound: int | None = None
    """The most that it may be given of each GPU's memory, in bytes; None: all of it."""
    paused: bool = False
    """It is to stand still for as long as a user likes."""
    yielding: bool = False
    """The node itself has it stand still, for the sake of an owner, and lets it go on."""
    expelled: str = ""
    """Why the node itself ends it, for the sake of an owner; its job is not to blame."""

    def __post_init__(self) -> None:
        """What it does not say is as its order has it: a journal of before tasks could change that is silent."""
        if not self.gpu_indices:
            self.gpu_indices = self.wanted_gpus = self.order.gpu_indices
            self.partners = self.order.packed_with
        if not self.role:
            self.role, self.share_bound = self.order.role, self.order.compute_share_ratio
            self.memory_bound = self.order.memory_limit_bytes

    @property
    def occupies(self) -> bool:
        """Whether its GPUs are in use, or about to be."""
        if self.status is Status.SUSPENDED:
            return self.asked_since_s is not None or self.want is Want.STOP
        return self.status is not Status.EXITED

    @property
    def stands_still(self) -> bool:
        """Whether it was suspended, and is not on its way back."""
        return self.status is Status.SUSPENDED and self.asked_since_s is None

    @property
    def place(self) -> list[int]:
        """The GPUs that it uses, or waits for: one that stands still may go on elsewhere."""
        return self.wanted_gpus if self.stands_still else self.gpu_indices

    @property
    def is_there(self) -> bool:
        """Whether it uses its place, or is to use it as soon as it may; one that placement has suspended does not."""
        if self.status is Status.SUSPENDED:
            return self.want is Want.RUN or self.yielding
        return self.status is not Status.EXITED

    @property
    def waits_for_gpus(self) -> bool:
        """Whether it goes on as soon as its GPUs are free."""
        return self.status is Status.ACCEPTED or (self.stands_still and self.want is Want.RUN)

    @property
    def prepares(self) -> bool:
        """Whether it does no more than get ready to take over: beside the job's earlier task, if need be."""
        early = self.status in (Status.ACCEPTED, Status.WARMING, Status.READY)
        return early and self.order.restores and self.want is not Want.STOP

    @property
    def has_begun(self) -> bool:
        """Whether its processes are there and do not stand still."""
        return self.status not in (Status.ACCEPTED, Status.EXITED) and not self.stands_still

    @property
    def is_starting(self) -> bool:
        """Whether its processes are being started, as far as was seen last."""
        return self.status is Status.ACCEPTED and self.launched

    @property
    def runs(self) -> bool:
        """Whether its processes make progress, unless they were asked to stand still."""
        return self.status is Status.RUNNING and self.asked_since_s is None

    @property
    def key(self) -> str:
        """Names the task on this node, and its folder."""
        return task_key(self.order.job_id, self.order.attempt)


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
            order=order,
            want=Want.SUSPEND if order.restores else Want.RUN,
            gpu_indices=order.gpu_indices,
            wanted_gpus=order.gpu_indices,
            partners=order.packed_with,
        )
        return tasks[key]
    if task is None or task.status is Status.EXITED or task.want is Want.STOP:
        return None
    if isinstance(order, StopTask):
        task.want, task.grace_s = Want.STOP, order.grace_s
    elif isinstance(order, SuspendTask):
        task.want, task.paused, task.yielding = Want.SUSPEND, order.pause, False
    elif isinstance(order, RestoreTask):
        task.restore = order
    elif isinstance(order, SetClass):
        task.role = order.role
    elif isinstance(order, SetComputeShare):
        task.share_bound = order.share_ratio
    elif isinstance(order, SetMemoryLimit):
        task.memory_bound = order.limit_bytes
    else:
        task.want, task.paused, task.yielding = Want.RUN, False, False
        task.wanted_gpus = order.gpu_indices or task.gpu_indices
        task.partners, task.role = order.packed_with, order.role
    return task


def stop_all(tasks: dict[str, Task]) -> None:
    """Want every task to end, with the grace that it has: the node leaves its cell.

    To be told with NodeLeaving, so that their ends count as no failures.
    """
    for task in tasks.values():
        if task.status is not Status.EXITED:
            task.want = Want.STOP
