"""What can be observed of a task."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class OnDevice(StrEnum):
    """Whether the memory of a task's processes is on the GPUs, as the driver says."""

    NONE = "none"
    """They use no GPU."""
    YES = "yes"
    PARTLY = "partly"
    """An operation was broken off."""
    MOVING = "moving"
    NO = "no"
    STUCK = "stuck"
    """The last operation has failed."""


class ByDriver(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver has done with a task's memory."""

    memory: OnDevice
    took_s: float = 0.0
    """The last operation."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How the shim says that a task has ended."""

    exit_code: int | None
    signal: int | None
    outcome: str
    rank: int | None = None
    stderr_tail: str = ""
    minibatches_total: int = 0
    memory_signs: bool | None = None
    """Of one that ended badly: whether there is a sign that the host's memory was used up; None: nobody has looked."""


class Stillness(msgspec.Struct, frozen=True, kw_only=True):
    """What a suspension has taken, over the processes of the task."""

    parked: bool
    """Their memory has left the GPUs."""
    bytes_parked: int
    bytes_left: int
    """Still on the GPUs."""
    park_s: float
    """Of the slowest process."""
    unpark_s: float
    parked_at_s: float
    """When the last of them had reached its boundary."""
    minibatches_total: int


class Takeover(msgspec.Struct, frozen=True, kw_only=True):
    """How far the processes of a task are with taking over a state."""

    ready: bool = False
    """All of them wait for it, or have it."""
    restored: bool = False
    """All of them have it."""
    failed: str = ""
    """Why it cannot be had."""
    state_bytes: int = 0
    fetch_s: float = 0.0
    load_s: float = 0.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a script says of how good it is."""

    step: float
    values: dict[str, float]
    """{name: finite number}, at least one."""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What a task that has not been launched waits for: its environment is prepared by a command of its user."""

    command: str
    limit_s: float
    """Within which it must have ended."""


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Why a task does not begin, or go on, yet: it ends by itself when the way is free."""

    gpus: list[int]
    """Those of its GPUs that it cannot have yet, ascending."""
    jobs: list[str]
    """The jobs in its way there, in the order of their launch orders."""
    for_room: bool = False
    """They may stay, and have to make room; else they have to leave."""
    of_node: str = ""
    """What keeps all tasks of the node from beginning, or going on; empty: nothing does."""

    @property
    def message(self) -> str:
        """It, in words."""
        if self.of_node:
            return self.of_node
        where = f"GPU {self.gpus[0]}" if len(self.gpus) == 1 else f"GPUs {', '.join(map(str, self.gpus))}"
        who = ", ".join(self.jobs)
        if not self.for_room:
            return f"{where} still used by {who}"
        return f"no room yet on {where}" + (f" beside {who}" if who else "")


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What can be observed of a task right now."""

    launched: bool = False
    """A shim is there or on its way."""
    preparing: str = ""
    """What is being done for a task that has not been launched, such as fetching its code."""
    setup: Setup | None = None
    """What prepares the environment of such a task, or has before its start."""
    pid: int | None = None
    """Leader of the first rank's process group, once the ranks have been started."""
    ended: Ended | None = None
    wait: Wait | None = None
    """Why it cannot have its GPUs yet; None: it can, or has them."""
    harnessed: bool = False
    """Its processes pass mini-batch boundaries and listen there."""
    untrained: bool = False
    """They have torch, or import it, and have done no mini-batch."""
    acknowledged: bool = False
    """All of them have done what the turn in force wants."""
    stillness: Stillness | None = None
    """While they stand still, or since they went on: what it took."""
    movable: bool = False
    """All of them can hand over their state."""
    resizable: bool = False
    """To more or fewer processes, too."""
    apart: int = 0
    """Processes of the job that train side by side without a process group; 0: they do not, or not yet."""
    takeover: Takeover = Takeover()
    by_driver: ByDriver | None = None
    """None where the driver is not asked to move memory."""
    report: Report | None = None
    """Its script's last report, where it is due and there is a new one."""
