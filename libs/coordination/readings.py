"""What a step is shown of a GPU and of the tasks on it."""

from __future__ import annotations

import msgspec


class TaskReading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One task that uses the GPU, or waits for its admission to it; of a gang, what its ranks on this GPU say."""

    job_id: str
    attempt: int
    guest: bool
    begun: bool = True
    """Its processes are there and do not stand still; a task that has not begun waits to be admitted."""
    starting: bool = False
    """It has not begun, and its processes are being started: they may begin with what it was told before."""
    unread: bool = False
    """A process of it is there, but what it says cannot be read at this moment; what it said last still counts."""
    leaving: bool = False
    """It is to stand still, or to end, or does so."""
    stuck: bool = False
    """It was suspended and stands still, but its memory could not be taken off the GPU."""
    limited: bool = True
    """Its processes apply limits."""
    gated: bool = True
    """They have gates."""
    told_change: int = 0
    """Number of the newest change that was written for it; read where it is not known yet."""
    told_bytes: int | None = None
    """The limit of that change."""
    told_share_ratio: float = 0.0
    """The share that was written last, in the same way."""
    applied: int = 0
    """Number of the change that all of its processes here have applied."""
    device_bytes: int = 0
    cached_bytes: int = 0
    """Of these, blocks that nothing uses."""
    host_bytes: int = 0
    minibatch_host_bytes: int = 0
    """The most that lay on the host during the last whole mini-batch."""
    demand_bytes: int = 0
    """The most that was wanted during it, wherever it lay."""
    minibatches: int = 0
    last_minibatch_s: float = 0.0
    """How long the last of them took."""
    closed_minibatches: int = 0
    """Of an owner: those during which no guest's gate was open outside of gaps."""
    closed_s: float = 0.0
    """Of a guest: the time that it has waited at its gates."""
    computed_s: float = 0.0
    """Of the GPU's time, used by it so far."""
    peak_bytes: int = 0
    """The most that its profile or its user says it needs; 0: unknown."""
    memory_bound_bytes: int | None = None
    """An operator's bounds; None: there is none."""
    share_bound_ratio: float | None = None

    @property
    def task(self) -> str:
        """Names the task on its node."""
        return f"{self.job_id}.{self.attempt}"


class Readings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One GPU at one moment."""

    node_id: str
    index: int
    capacity_bytes: int
    reserve_bytes: int = 0
    """What no limit covers, such as the drivers' contexts of the processes."""
    waiting: bool = False
    """The owner waits for data, or has launched nothing for a while."""
    tasks: list[TaskReading] = []
    """In the order of their launch orders."""
