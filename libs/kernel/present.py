"""What a core knows of the present, for readers that ask what would change it (`libs/forecast/`).

A core fills in the part that is its own: placement the jobs and the nodes, quota the tenants and how long jobs run,
admission what jobs wait for. A service offers it on its door plate (`Service.present`); nothing of it is stored.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from libs.contracts.cluster import TaskPlacement
from libs.contracts.features import missing
from libs.contracts.gateway import TenantConfigured
from libs.contracts.jobs import JobSpec

Report = Literal["started", "suspended", "resumed"]
Place = tuple[int, int, str]
"""A job's place in the queue, ascending."""


class PresentJob(msgspec.Struct, kw_only=True, gc=False):
    """A job that has not ended."""

    job_id: str
    spec: JobSpec
    """As it is to run next: of a job in its trial as that runs."""
    order: Place
    priority: int
    attempt: int
    gang: list[TaskPlacement]
    """Where its attempt is; of a suspended one, where it was."""
    is_placed: bool
    """It holds GPUs, or is a guest on some, and does not stand still."""
    may_end: list[str]
    """Nodes with a task that runs; empty while some task has not reported its start, or stands still."""
    leaving: list[str]
    """Nodes with a task that is being stopped."""
    unreported: dict[str, Report]
    """{node: what its task has been told and its agent has not reported yet}; of one that is being stopped: nothing."""
    cause: str
    """What it was told last of its wait; empty: nothing yet."""
    behind: str
    """The job that it was told to be behind; empty: none is named."""
    held: bool
    """Paused by its user."""
    queued: bool
    """It has quota, and waits for GPUs."""
    stated_s: float | None
    """How long the rest of its steps takes where it is, or on the type where it is fastest, by the rate that its user,
    an operator or a measurement has given; None: that is not known."""
    since_s: float
    """When it was given its GPUs, or began to wait for some."""
    attained_s: float = 0.0
    """How long it has held GPUs until now, in all of its attempts; without the time for which it stood still."""
    pool: str = ""
    """The feature of nodes in the pool where it is placed, or of those outside of all; empty: no pool matters."""

    def is_for(self, node: PresentNode) -> bool:
        """Whether the node is on its side of the pools."""
        return not self.pool or not missing([self.pool], node.features)


class PresentNode(msgspec.Struct, kw_only=True, gc=False):
    """A node that has joined."""

    node_id: str
    rack: str
    gpu_types: list[str]
    """By the GPU's index."""
    gpu_memory_bytes: int
    cpus: int
    memory_bytes: int
    features: list[str]
    present: bool
    draining: bool
    free: dict[str, int]
    """{GPU type: healthy GPUs that no job holds}."""


class PresentLimit(msgspec.Struct, kw_only=True, frozen=True):
    """A limit that leaves no room for a job."""

    tenant: str
    of: str
    """GPU type, or any."""
    user: str
    """Empty: of the whole tenant."""
    needed_gpus: int
    """With so many it leaves room for the job and for those of its tenant that go before it."""


class PresentLength(msgspec.Struct, kw_only=True, frozen=True):
    """How long an attempt lasts from now on, or from its placement on where it waits."""

    in_s: float
    """Infinite: not known."""
    basis: str


class Present(msgspec.Struct, kw_only=True):
    """What one core knows; what is another's is empty."""

    jobs: dict[str, PresentJob] = {}
    """Those that have a place, and the one that is asked about; all, where none is."""
    top_priority: int = 0
    """Of all jobs that wait."""
    ahead_for_gpus: int = 0
    """Jobs with quota that come before it in the queue."""
    ahead_for_quota: int = 0
    """Jobs that are granted quota before it, as far as they may want the same."""
    nodes: dict[str, PresentNode] = {}
    settings: dict[str, float] = {}
    turn_s: float = 0.0
    """How long a round or a time slice lasts; 0: under the policy in force jobs keep their GPUs to their end."""
    turn_setting: str = ""
    """The setting of placement that says so; empty: none does."""
    tenants: dict[str, TenantConfigured] = {}
    """As they are configured."""
    lengths: dict[str, PresentLength] = {}
    """Of jobs of which more is known than how long others ran, where none is asked about."""
    ran_s: dict[str, list[float]] = {}
    """{tenant: how long jobs of it that have ended held GPUs}, the latest ones; where none is asked about."""
    limits: dict[str, list[PresentLimit]] = {}
    """{waiting job: limits that hold it up}, of the job that is asked about."""
    borrowers: list[str] = []
    """Jobs that have borrowed their GPUs, the latest first; none where no tenant has a guarantee."""
    waits_for: dict[str, list[str]] = {}
    """{job that was not let through: jobs of which one must end first}."""
    quarantined: dict[str, list[str]] = {}
    """{job that was not let through: inputs in quarantine that it names}."""
    retries_s: dict[str, float] = {}
    """{job: when its back-off is over}."""
