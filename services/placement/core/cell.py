"""What placement knows of its cell, whichever mechanism is in force: nodes, jobs, the queue, settings.

A mechanism that remembers more has a struct of its own beside this one (`state.py`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from functools import cached_property

import msgspec

from libs.contracts import settings
from libs.contracts.cluster import TaskPlacement
from libs.contracts.features import OUTSIDE_POOLS, is_in_pool
from libs.contracts.placement import OWNER
from libs.policies.problem import PolicyOptions
from libs.policies.table import DEFAULT_POLICY
from services.placement.core.book import Book
from services.placement.core.cluster.features import lacking
from services.placement.core.cluster.hosts import Amount
from services.placement.core.cluster.nodes import Node
from services.placement.core.cluster.seats import Seating
from services.placement.core.cluster.servers import Index, Servers
from services.placement.core.derived import DERIVED
from services.placement.core.jobs import Job, PlacedRates


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """The turn that jobs have on over-subscribed servers."""

    number: int = 0
    ends_s: float = 0.0


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs that are kept for one gang as they become free, so that smaller jobs cannot starve it.

    Which GPUs these are is no part of it: GPUs of a type on a node are interchangeable, and which of them are free is
    known already (`lifecycle/reservations.py`).
    """

    job_id: str
    attempt: int
    gpu_type: str
    parts: dict[str, int]
    """{node: GPUs that the gang is to have there, free or not yet}."""
    until_s: float | None = None
    """When it ends if the gang has not all of them."""
    try_number: int = 0
    """Where the policy knows tries."""


class Acquisition(msgspec.Struct, frozen=True, kw_only=True):
    """What a waiting gang has tried to acquire in vain."""

    tries: int = 0
    retry_s: float = 0.0
    """When it may try again."""


class Settings(msgspec.Struct, kw_only=True):
    """What operators may change while jobs run; `libs/contracts/settings.py` says what each means."""

    locality_relax_s: float = settings.default(OWNER, "locality_relax_s")
    reserve_after_s: float = settings.default(OWNER, "reserve_after_s")
    acquire_s: float = settings.default(OWNER, "acquire_s")
    backoff_s: float = settings.default(OWNER, "backoff_s")
    relax_after: float = settings.default(OWNER, "relax_after")
    emptiest_above_gpus: float = settings.default(OWNER, "emptiest_above_gpus")
    small_servers: float = settings.default(OWNER, "small_servers")
    wait_for_locality_s: float = settings.default(OWNER, "wait_for_locality_s")
    start_limit_s: float = settings.default(OWNER, "start_limit_s")
    round_s: float = settings.default(OWNER, "round_s")
    recompute_s: float = settings.default(OWNER, "recompute_s")
    guest_utilisation: float = settings.default(OWNER, "guest_utilisation")
    max_guests: float = settings.default(OWNER, "max_guests")
    yield_s: float = settings.default(OWNER, "yield_s")
    stop_grace_s: float = settings.default(OWNER, "stop_grace_s")
    pack_trial_s: float = settings.default(OWNER, "pack_trial_s")
    pack_utilisation: float = settings.default(OWNER, "pack_utilisation")
    slice_s: float = settings.default(OWNER, "slice_s")
    max_height: float = settings.default(OWNER, "max_height")


class Knowledge(msgspec.Struct, kw_only=True):
    """How fast configurations train, alone and beside others, as far as it is known or guessed."""

    rates: dict[str, dict[str, float]] = {}
    """{configuration: {GPU type: steps per second}} as operators provided them."""
    spread: dict[str, dict[str, float]] = {}
    """The same on more servers than are needed."""
    placed: dict[str, dict[str, PlacedRates]] = {}
    """{configuration: {GPU type: rates as they were profiled last}}."""
    pairs: dict[str, dict[str, dict[str, tuple[float, float]]]] = {}
    """{configuration: {configuration: {GPU type: steps per second of both}}}, each pair in both orders."""
    alike: dict[str, str] = {}
    """{configuration: the one of the operators' table that it is taken to be like}."""
    evidence: dict[str, int] = {}
    """{configuration: measured co-locations that its last estimate rests on}."""
    beside: dict[str, dict[str, dict[str, float]]] = {}
    """{configuration: {configuration: {GPU type: part of its own speed that it kept beside it}}}, as profiled."""
    version: int = 0
    """Counts what was learned about the rates of jobs and configurations: each time is a reset event."""


class Cell(msgspec.Struct, kw_only=True, dict=True):
    """Initially empty."""

    nodes: dict[str, Node] = {}
    jobs: dict[str, Job] = {}
    queue: dict[str, list[tuple[int, int, str]]] = {}
    """{shape: orders of the queued jobs that are not held, ascending}."""
    guest_queue: list[tuple[int, int, str]] = []
    """Orders of the opportunistic jobs that wait for seats as guests and are not held, ascending."""
    offers: dict[str, int] = {}
    """{guest: its attempt that could be the owner of its GPUs}, as said and not withdrawn since."""
    reservations: dict[str, Reservation] = {}
    """{waiting job: the GPUs that are kept for it}."""
    acquiring: dict[str, Acquisition] = {}
    """{waiting job: its tries}, of those that have given back what they had acquired."""
    book: Book = msgspec.field(default_factory=Book)
    starting: dict[str, float] = {}
    """{job: when its attempt was placed, or went on after its time was over}, of attempts with tasks that have not
    reported their start; ascending. Of a job that moves: when its next attempt was placed."""
    preparing: dict[str, float] = {}
    """{job: when it must have begun}, of those of them for which a node prepares an environment; they are not in
    `starting`."""
    slices: dict[str, Slice] = {}
    """{first server of a domain: its latest time slice}."""
    known: Knowledge = msgspec.field(default_factory=Knowledge)
    policy: str = DEFAULT_POLICY
    takes_guests: bool = False
    """Whether opportunistic jobs run as guests beside those that the policy places."""
    options: PolicyOptions = PolicyOptions()
    cost_per_hour: dict[str, float] = {}
    tenant_weights: dict[str, float] = {}
    tenant_quotas: dict[str, int] = {}
    """{tenant: GPUs that its guaranteed jobs may have at a time}, of those with such a limit."""
    responses: dict[str, dict[str, str]] = {}
    """{tenant: {alarm: what is done about it}}, as far as tenants have said it."""
    ran_s: dict[str, list[float]] = {}
    """{tenant: how long its ended jobs held GPUs, in all of their attempts}, the latest ones."""
    settings: Settings = msgspec.field(default_factory=Settings)
    next_seq: int = 0
    looked_s: float = 0.0
    """Up to when the passing of time has been taken into account: by a timer, or by a pass that has placed an owner."""

    @cached_property
    def index(self) -> Index:
        """What is free where. Derived of `nodes`, and no part of snapshots: `changed` keeps it up to date."""
        return Index(self.nodes)

    def changed(self, node_id: str) -> None:
        """The node is new, or what may be placed on it is other than before."""
        self.touched[node_id] = None
        self.promises.pop(node_id, None)
        self.seating.pop(node_id, None)
        if "index" in self.__dict__:
            self.index.refresh(node_id)

    def servers(self, closed: Iterable[str] = ()) -> Servers:
        """The usable servers but for those that are closed."""
        return self.index.without(closed)

    def servers_for(self, job: Job, closed: Iterable[str] = ()) -> Servers:
        """The same without those that lack a feature that the job needs. What is left beside the GPUs of the others is
        another question (`promises.open_to`)."""
        needs = job.needs
        # Where there is a pool, most jobs need nothing but to be outside it: not all nodes are looked at for that.
        unable = self.set_apart if needs == [OUTSIDE_POOLS] else lacking(self.nodes.values(), needs)
        return self.servers([*closed, *unable])

    @cached_property
    def set_apart(self) -> dict[str, None]:
        """The nodes that are set apart for a pool, also those that are away. Derived of `nodes`."""
        return {node_id: None for node_id, node in self.nodes.items() if is_in_pool(node.features)}

    @cached_property
    def promises(self) -> dict[str, Amount]:
        """{server: what jobs have of its CPUs and memory}, of those that were looked at since they changed.

        Derived of `nodes` and `jobs`: `promises.py` fills it.
        """
        return {}

    @cached_property
    def seating(self) -> dict[str, Seating]:
        """{server: its GPUs as guests see them}, of those that were looked at since something there has changed.

        Derived of `nodes` and `jobs`, as `promises` is: `sharing/guests/seats.py` fills it.
        """
        return {}

    @cached_property
    def residents(self) -> dict[str, dict[str, None]]:
        """{node id: jobs but guests with an attempt there, running or suspended}. Derived of `jobs`, as `index` is of
        `nodes`."""
        found: dict[str, dict[str, None]] = {}
        for job in self.without_guests():
            for task in job.gang:
                found.setdefault(task.node_id, {})[job.job_id] = None
        return found

    @cached_property
    def told(self) -> dict[str, dict[str, dict[str, None]]]:
        """{shape: {cause: queued jobs that were told it last}}, "" before the first. Derived of `queue` and `jobs`."""
        found: dict[str, dict[str, dict[str, None]]] = {}
        for shape, orders in self.queue.items():
            for _, _, job_id in orders:
                found.setdefault(shape, {}).setdefault(self.jobs[job_id].wait_code, {})[job_id] = None
        return found

    @cached_property
    def suspended(self) -> dict[str, None]:
        """Jobs but guests that stand still between two of their turns. Derived of `jobs`."""
        return self._those("suspended")

    @cached_property
    def guests(self) -> dict[str, None]:
        """Guests with an attempt, running or suspended. Derived of `jobs`."""
        return self._those("guests")

    @cached_property
    def still(self) -> dict[str, None]:
        """Guests with an attempt that stand still. Derived of `jobs`."""
        return self._those("still")

    def guests_that_stand_still(self) -> list[Job]:
        """In the order of `guests`, which are not gone through where there is none, as mostly."""
        return [self.jobs[job_id] for job_id in self.guests if job_id in self.still] if self.still else []

    @cached_property
    def upgradable(self) -> dict[str, None]:
        """Guests with an attempt that would rather be owners. Derived of `jobs`."""
        return self._those("upgradable")

    @cached_property
    def owned(self) -> dict[str, int]:
        """{tenant: GPUs that its jobs own}. Derived of `jobs`, and forgotten when any of them changes."""
        found: dict[str, int] = {}
        for job in self.without_guests():
            if job.gang and not job.suspended:
                found[job.spec.tenant] = found.get(job.spec.tenant, 0) + job.width
        return found

    @cached_property
    def elastic(self) -> dict[str, None]:
        """Jobs but guests with an attempt that may have more or fewer GPUs. Derived of `jobs`."""
        return self._those("elastic")

    @cached_property
    def ends(self) -> list[tuple[float, str]]:
        """(end, first server of a domain) of the latest time slices, ascending. Derived of `slices`."""
        return sorted((latest.ends_s, server) for server, latest in self.slices.items())

    @cached_property
    def touched(self) -> dict[str, None]:
        """Servers on which something has changed that a look at their domains has not taken note of yet.

        Derived as `index` is: `lifecycle/suspending/domains.py` empties it, and begins with all servers.
        """
        return {}

    def _those(self, name: str) -> dict[str, None]:
        """In order of arrival."""
        return {job.job_id: None for job in self.jobs.values() if DERIVED[name](job)}

    def _keep(self, job: Job) -> None:
        """Of what is derived of `jobs` by a property of each job, what has been derived stays right."""
        derived = self.__dict__
        for name, belongs in DERIVED.items():
            known = derived.get(name)
            if known is None:
                continue
            if belongs(job):
                known[job.job_id] = None
            else:
                known.pop(job.job_id, None)

    def affects(self, job: Job) -> None:
        """What the job may do on its servers is other than before."""
        self.__dict__.pop("owned", None)
        for task in job.gang:
            self.touched[task.node_id] = None
        self.measured(job)

    def measured(self, job: Job) -> None:
        """It is known anew how much of its GPUs the job uses, also of those to which it moves."""
        for task in (*job.gang, *(job.move.gang if job.move is not None else ())):
            self.seating.pop(task.node_id, None)

    def begins(self, job_id: str, now_s: float) -> None:
        """The tasks of the job's attempt are to start from now on."""
        self.begun(job_id)  # the order is by time
        self.starting[job_id] = now_s

    def begun(self, job_id: str) -> None:
        """All tasks of the job's attempt have started, or it is over."""
        self.starting.pop(job_id, None)
        self.preparing.pop(job_id, None)

    def give(self, job: Job, gang: list[TaskPlacement]) -> None:
        """The gang is where the job's attempt is from now on; an empty one ends it."""
        self.affects(job)
        if "residents" in self.__dict__ and not job.guest:
            for task in job.gang:
                del self.residents[task.node_id][job.job_id]
            for task in gang:
                self.residents.setdefault(task.node_id, {})[job.job_id] = None
        for task in (*job.gang, *gang):
            self.promises.pop(task.node_id, None)
        job.gang = gang
        self._keep(job)
        self.affects(job)

    def suspend(self, job: Job, *, suspended: bool = True) -> None:
        """The job stands still from now on, or does not any more."""
        job.suspended = suspended
        self._keep(job)
        self.affects(job)

    def begin_slice(self, server: str, latest: Slice) -> None:
        """The jobs of a domain have a turn."""
        if "ends" in self.__dict__:
            before = self.slices.get(server)
            if before is not None:
                del self.ends[bisect_left(self.ends, (before.ends_s, server))]
            insort(self.ends, (latest.ends_s, server))
        self.slices[server] = latest
        self.touched[server] = None

    def without_guests(self) -> list[Job]:
        """The jobs about which mechanisms decide: all but guests, in order of arrival."""
        return [job for job in self.jobs.values() if not job.guest]

    def hold(self, job: Job, gang: list[TaskPlacement]) -> None:
        """These GPUs are the job's from now on; those of a guest are only shared with it."""
        self.affects(job)
        for task in gang:
            for index in task.gpu_indices:
                gpu = self.nodes[task.node_id].gpus[index]
                (gpu.guests if job.guest else gpu.holders).append(job.job_id)
            self.changed(task.node_id)

    def release(self, job: Job, gang: list[TaskPlacement]) -> None:
        """These GPUs are not the job's any more."""
        self.affects(job)
        for task in gang:
            node = self.nodes[task.node_id]
            for gpu in [node.gpus[index] for index in task.gpu_indices if index < len(node.gpus)]:
                for jobs in (gpu.holders, gpu.guests):
                    if job.job_id in jobs:
                        jobs.remove(job.job_id)
                        gpu.load_ratio = None
            self.changed(task.node_id)

    def keep_for(self, job: Job, *, kept: bool) -> None:
        """Nothing else gets the GPUs of a guest until it is known whether it becomes their owner, or it is known."""
        job.offered = kept
        for task in job.gang:
            for gpu in [self.nodes[task.node_id].gpus[index] for index in task.gpu_indices]:
                if kept:
                    gpu.holders.append(job.job_id)
                elif job.job_id in gpu.holders:
                    gpu.holders.remove(job.job_id)
            self.changed(task.node_id)

    def make_owner(self, job: Job) -> None:
        """The guest is an ordinary job from now on, and the owner of the GPUs that it has."""
        gang, holds = job.gang, not job.suspended
        self.release(job, gang)
        self.give(job, [])
        job.guest = job.opportunistic = job.offered = False
        self.give(job, gang)
        self.suspend(job, suspended=not holds)
        if holds:
            self.hold(job, gang)
