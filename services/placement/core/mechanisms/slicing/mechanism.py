"""Time slices: free GPUs are given away at once, over-subscribed servers change hands when their slice is over.

Where a job goes is Gandiva's Algorithm 1 (OSDI'18): free GPUs on servers of its affinity, then on empty servers, then
anywhere; and only when there are none, over-subscription: the servers of its affinity with the least height.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace

from libs.contracts.reasons import PendingReason
from libs.kernel.machine import Turn
from libs.policies.policy import Kind
from services.placement.core.cell import Cell
from services.placement.core.cluster import gangs
from services.placement.core.cluster.servers import Listed
from services.placement.core.jobs import Job
from services.placement.core.lifecycle import waiting
from services.placement.core.lifecycle.placing import place, tell
from services.placement.core.lifecycle.queue import HeadsInOrder
from services.placement.core.lifecycle.suspending.changes import change_places, slice_of
from services.placement.core.lifecycle.suspending.domains import Domain, domains
from services.placement.core.mechanism import Mechanism
from services.placement.core.mechanisms.slicing.memory import of
from services.placement.core.mechanisms.slicing.service_time import begin_anew, begins, ends, has_begun, joins
from services.placement.core.mechanisms.slicing.shrinking import make_room, next_end_s
from services.placement.core.mechanisms.slicing.turns import choose, runs
from services.placement.core.mechanisms.slicing.why import why_here, why_it_waits, why_its_turn, why_now
from services.placement.core.sharing.packs import crowded, pack_two, unpack_all


class SlicingMechanism(Mechanism):
    """No job waits for long: where there are more jobs than GPUs, they take turns."""

    kind = Kind.TURNS
    brings_back = True
    reassigns_paused = True

    def step(self, cell: Cell, turn: Turn[Cell]) -> None:
        # 1. Suspended jobs first: what has become free on their servers needs no turn, and may be theirs alone.
        _go_on_where_possible(cell, turn)
        # 2. Free GPUs next, because a job that gets some need not share a server's turns.
        if cell.queue:
            _place_on_free_gpus(cell, turn)
        # 3. Elastic jobs shrink before any job has to take turns; what one was to grow onto is free at once.
        promised = make_room(cell, _queued(cell), turn)
        if promised:
            _place_on_free_gpus(cell, turn)
        # 4. The others are assigned to servers, and begin there when a slice is over.
        coming = _assign(cell, promised) if cell.queue else {}
        for domain in domains(cell):
            newcomers = coming.get(domain.name, [])
            if _is_over(cell, domain, turn.now_s) and (domain.suspended or newcomers):
                _rearrange(cell, domain, newcomers, turn, anew=True)
            elif newcomers:
                _rearrange(cell, domain, _urgent(domain, newcomers), turn, anew=False)
        # 5. Last what is said to the jobs that still wait, as it is true only now.
        _tell_why(cell, coming, promised, turn)

    def moments(self, cell: Cell) -> Iterator[float]:
        """When slices end while a job waits for one, and when patience with a job that is to shrink ends."""
        if cell.queue or any(job.suspended for job in cell.jobs.values()):
            yield from (current.ends_s for current in cell.slices.values())
        if (end_s := next_end_s(cell)) is not None:
            yield end_s

    def wind_down(self, cell: Cell, in_force: Mechanism, turn: Turn[Cell]) -> None:
        """Part packs, which would last for ever; let suspended jobs go on as soon as their GPUs are free."""
        unpack_all(cell, turn)
        if cell.slices and not in_force.brings_back:
            _go_on_where_possible(cell, turn)

    def placed(self, cell: Cell, job: Job, now_s: float) -> None:
        if self.realises(cell.policy):
            joins(cell, of(cell), job, now_s)
            begins(of(cell), job, now_s)

    def resumed(self, cell: Cell, job: Job, now_s: float) -> None:
        begins(of(cell), job, now_s)

    def moved(self, cell: Cell, job: Job, now_s: float) -> None:
        if self.realises(cell.policy):
            ends(of(cell), job, now_s)
            begins(of(cell), job, now_s)

    def leaving(self, cell: Cell, job: Job, now_s: float) -> None:
        ends(of(cell), job, now_s)

    def ended(self, cell: Cell, job: Job) -> None:
        of(cell).times.pop(job.job_id, None)

    def begun(self, cell: Cell, job: Job, now_s: float) -> None:
        has_begun(of(cell), job, now_s)

    def stands_still(self, cell: Cell, job: Job, now_s: float) -> None:
        ends(of(cell), job, now_s)

    def policy_changing(self, cell: Cell, policy: str, now_s: float) -> None:
        if self.realises(policy) and not self.realises(cell.policy):
            begin_anew(cell, of(cell), now_s)


def _tell_why(cell: Cell, coming: Mapping[str, list[Job]], promised: Mapping[str, str], turn: Turn[Cell]) -> None:
    """Tell the jobs on the queue why they wait, where the cause is news."""
    turns = {job.job_id: name for name, jobs in coming.items() for job in jobs}
    causes: dict[str, str] = {}
    for job in _queued(cell):
        if job.job_id in promised:
            cause: str = PendingReason.INSUFFICIENT_GPUS
        elif job.job_id in turns:
            cause = PendingReason.FAIR_SHARE
        else:  # of all jobs of a shape the same
            if job.shape not in causes:
                causes[job.shape] = waiting.cause_to_wait(cell, job, cell.servers(), None)
            cause = causes[job.shape]
        if cause != job.wait_code:
            reason = why_it_waits(cell, job, turns.get(job.job_id), promised.get(job.job_id), turn.now_s)
            tell(cell, job, reason, turn)


def _go_on_where_possible(cell: Cell, turn: Turn[Cell]) -> None:
    """Suspended jobs take GPUs that became free; jobs that were packed part."""
    for domain in domains(cell):
        if (domain.suspended and _may_change(domain)) or crowded(cell, domain):
            _rearrange(cell, domain, [], turn, anew=False)


def _may_change(domain: Domain) -> bool:
    """Whether a suspended job might get GPUs before the slice is over: idle ones, a paused job's, or by its priority.

    Mostly none can, and then the jobs of the domain need not be put in order.
    """
    priorities = {job.priority for job in domain.residents}
    idles = any(node.free(gpu_type) for node in domain.nodes for gpu_type in node.healthy)
    return idles or len(priorities) > 1 or any(job.held for job in domain.residents)


def _place_on_free_gpus(cell: Cell, turn: Turn[Cell]) -> None:
    listed = domains(cell)
    for job in HeadsInOrder(cell):
        fit = _free_place(listed, job)
        if fit is not None:
            place(cell, job, fit.gang, why_here(job, fit), turn)
            listed = domains(cell)


def _free_place(listed: list[Domain], job: Job) -> gangs.Fit | None:
    """On free GPUs: of servers with its affinity, of empty ones, of any."""
    kindred = [domain for domain in listed if domain.affinity == job.spec.gpus.count]
    empty = [domain for domain in listed if not domain.residents]
    for group in (kindred, empty, listed):
        fit = gangs.best_fit(job.spec.gpus, Listed([node for domain in group for node in domain.nodes if node.usable]))
        if fit is not None:
            return fit
    return None


def _assign(cell: Cell, promised: Collection[str]) -> dict[str, list[Job]]:
    """{domain: queued jobs that are to begin there}: where the affinity is theirs, then where the height is least.

    Among equals the name decides, as for free GPUs, not the order in which servers happened to join. Jobs that elastic
    ones make room for need no turn.
    """
    listed = domains(cell)
    load = {domain.name: domain.load for domain in listed}
    limits = {domain.name: cell.settings.max_height * domain.gpus for domain in listed}
    candidates: dict[str, _Candidates] = {}
    coming: dict[str, list[Job]] = {}
    for job in _queued(cell):
        if job.job_id in promised:
            continue
        if job.shape not in candidates:
            candidates[job.shape] = _Candidates(listed, job, load)
        best = candidates[job.shape].best(load, limits)
        if best is not None:
            load[best] += job.spec.gpus.count
            coming.setdefault(best, []).append(job)
    return coming


class _Candidates:
    """The domains on which jobs of one shape may begin, the best first.

    Loads only grow while jobs are assigned. So a domain that has no room for the shape will have none later, and only
    the first of the heap has to be up to date.
    """

    def __init__(self, listed: Sequence[Domain], job: Job, load: Mapping[str, int]) -> None:
        self._width = job.spec.gpus.count
        self._gpus = {
            domain.name: domain.gpus
            for domain in listed
            if any(node.usable for node in domain.nodes) and domain.can_hold(job)
        }
        self._strange = {domain.name: domain.affinity not in (0, self._width) for domain in listed}
        self._heap = [self._key(name, load[name]) for name in self._gpus]
        heapify(self._heap)

    def _key(self, name: str, load: int) -> tuple[bool, float, str]:
        return self._strange[name], load / self._gpus[name], name

    def best(self, load: Mapping[str, int], limits: Mapping[str, float]) -> str | None:
        """The best domain that has room for one more; None: none has."""
        while self._heap:
            key = self._heap[0]
            name = key[2]
            if load[name] + self._width > limits[name]:
                heappop(self._heap)
            elif (now := self._key(name, load[name])) != key:
                heapreplace(self._heap, now)
            else:
                return name
        return None


def _queued(cell: Cell) -> list[Job]:
    orders = sorted(order for orders in cell.queue.values() for order in orders)
    return [cell.jobs[job_id] for _, _, job_id in orders]


def _is_over(cell: Cell, domain: Domain, now_s: float) -> bool:
    """Whether the slice has lasted its time."""
    current = cell.slices.get(domain.name)
    return current is None or now_s >= current.ends_s


def _urgent(domain: Domain, newcomers: list[Job]) -> list[Job]:
    """The newcomers that need not wait for the end of the slice: jobs of a lower priority run."""
    lowest = min((job.priority for job in domain.residents if runs(job)), default=0)
    return [job for job in newcomers if job.priority > lowest]


def _rearrange(cell: Cell, domain: Domain, newcomers: list[Job], turn: Turn[Cell], *, anew: bool) -> None:
    """Say which jobs run from now on, if that changes anything or a new slice begins."""
    if anew:
        pack_two(cell, domain, turn)
    assignments = choose(cell, of(cell), domain, newcomers, turn.now_s, anew=anew)
    resumed = [
        assignment
        for assignment in assignments
        if assignment.job.gang and (assignment.job.suspended or assignment.gang != assignment.job.gang)
    ]
    started = [assignment for assignment in assignments if not assignment.job.gang]
    assigned = {assignment.job.job_id: None for assignment in assignments}
    suspended = [job for job in domain.residents if job.stays and job.move is None and job.job_id not in assigned]
    if not anew and not (resumed or started or suspended):
        return
    change_places(
        cell,
        domain,
        running=[
            assignment.job for assignment in assignments if assignment not in resumed and assignment not in started
        ],
        suspended=suspended,
        resumed=resumed,
        started=[assignment.job for assignment in started],
        ends_s=turn.now_s + cell.settings.slice_s if anew else max(slice_of(cell, domain).ends_s, turn.now_s),
        reason=why_now(domain, newcomers, anew=anew, parted=bool(suspended) and not (resumed or started)),
        turn=turn,
    )
    for assignment in started:
        place(cell, assignment.job, assignment.gang, why_its_turn(domain, assignment.job), turn)
