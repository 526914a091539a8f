"""Time slices: free GPUs are given away at once, over-subscribed servers change hands when their slice is over.

Where a job goes is Gandiva's Algorithm 1 (OSDI'18): free GPUs on servers of its affinity, then on empty servers, then
anywhere; and only when there are none, over-subscription: the servers of its affinity with the least height.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter

from libs.contracts.reasons import PendingReason
from libs.policies.policy import Kind
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job, Phase
from services.placement.core.lifecycle import waiting
from services.placement.core.lifecycle.placing import placed, told
from services.placement.core.lifecycle.plan import Plan
from services.placement.core.lifecycle.queue import HeadsInOrder
from services.placement.core.lifecycle.suspending.deciding import Assignment, places_changed, slice_of
from services.placement.core.lifecycle.suspending.domains import Domain, domain_of, up_to_date
from services.placement.core.mechanism import Mechanism, Moment
from services.placement.core.mechanisms.slicing.attention import Attention
from services.placement.core.mechanisms.slicing.free_gpus import free_place
from services.placement.core.mechanisms.slicing.memory import of
from services.placement.core.mechanisms.slicing.newcomers import (
    Newcomers,
    every_job_has_a_turn,
    forget,
    known,
    may_begin_on,
    newcomers,
)
from services.placement.core.mechanisms.slicing.service_time import begin_anew, begins, ends, has_begun, joins
from services.placement.core.mechanisms.slicing.shrinking import next_end_s, room_made
from services.placement.core.mechanisms.slicing.turns import choose, lowest_running
from services.placement.core.mechanisms.slicing.why import (
    cause_until_others_shrink,
    why_here,
    why_it_waits,
    why_its_turn,
    why_now,
)
from services.placement.core.promises import lacks_memory, open_to
from services.placement.core.sharing.packs import all_parted, crowded, two_packed


class SlicingMechanism(Mechanism):
    """No job waits for long: where there are more jobs than GPUs, they take turns."""

    kind = Kind.TURNS
    brings_back = True
    reassigns_paused = True

    def step(self, cell: Cell, moment: Moment) -> Plan:
        now_s = moment.now_s
        if cell.takes_guests:
            yield from all_parted(cell)
        # 1. Suspended jobs first: what has become free on their servers needs no turn, and may be theirs alone.
        yield from _gone_on_where_possible(cell, now_s)
        # 2. Free GPUs next, because a job that gets some need not share a server's turns.
        yield from _placed_on_free_gpus(cell)
        # 3. Elastic jobs shrink before any job has to take turns; what one was to grow onto is free at once.
        promised: dict[str, str] = {}
        yield from room_made(cell, promised, moment)
        if promised:
            yield from _placed_on_free_gpus(cell)
        # 4. The others are assigned to servers, and begin there when a slice is over.
        coming = newcomers(cell, of(cell), promised) if _must_assign(cell, promised, now_s) else None
        yield from _turns_given(cell, coming.by_domain if coming is not None else {}, now_s)
        # 5. Last what is said to the jobs that still wait, as it is true only now.
        if coming is not None:
            yield from _told_why(cell, coming, promised, now_s)
        # What the step has changed is taken note of by the step, not by the next event that needs it: the step that
        # begins slices is costly anyway, an arrival is not.
        up_to_date(cell)
        cell.servers()
        if coming is not None and not promised:
            newcomers(cell, of(cell), ())

    def moments(self, cell: Cell) -> Iterator[float]:
        """When the next slice ends while a job waits for one, and when patience with a job that is to shrink ends."""
        if cell.queue or cell.suspended:
            following = bisect_right(cell.ends, cell.looked_s, key=lambda end: end[0])
            yield from (end_s for end_s, _ in cell.ends[following : following + 1])
        if (end_s := next_end_s(cell)) is not None:
            yield end_s

    def wind_down(self, cell: Cell, in_force: Mechanism, moment: Moment) -> Plan:
        """Part packs, which would last for ever; let suspended jobs go on where no other mechanism does."""
        if cell.book.companions:
            packed = [cell.jobs[host] for host, _ in cell.book.packs()]
            yield from all_parted(cell)
            # Of two that are parted one gives way at once: no other mechanism looks for jobs that share GPUs unasked.
            for domain in [domain_of(cell, job) for job in packed if job.lasts]:
                if crowded(cell, domain):
                    yield from _rearranged(cell, domain, [], moment.now_s, anew=False)
        if cell.slices and not in_force.brings_back:
            yield from _gone_on_where_possible(cell, moment.now_s)

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

    def queued(self, cell: Cell, job: Job) -> None:
        found = known(of(cell))
        if found is not None and not (found.holds(cell) and found.add(job)):
            forget(of(cell))

    def dequeued(self, cell: Cell, job: Job) -> None:
        forget(of(cell))

    def ended(self, cell: Cell, job: Job) -> None:
        of(cell).times.pop(job.job_id, None)

    def begun(self, cell: Cell, job: Job, now_s: float) -> None:
        has_begun(of(cell), job, now_s)

    def stands_still(self, cell: Cell, job: Job, now_s: float) -> None:
        ends(of(cell), job, now_s)

    def policy_changing(self, cell: Cell, policy: str, now_s: float) -> None:
        if self.realises(policy) and not self.realises(cell.policy):
            begin_anew(cell, of(cell), now_s)


def _must_assign(cell: Cell, promised: Mapping[str, str], now_s: float) -> bool:
    """Whether anything depends on which queued job is to begin where.

    Mostly nothing does: each has been told that its turn comes, and has one wherever it is, and no slice is over.
    """
    if not cell.queue:
        return False
    if promised or any(cause != PendingReason.FAIR_SHARE for by_cause in cell.told.values() for cause in by_cause):
        return True
    attention = up_to_date(cell).view(Attention)
    return (
        not every_job_has_a_turn(cell)
        or _highest_queued(cell) > attention.lowest()
        or may_begin_on(cell, attention.over(now_s))
        or _would_change(cell, attention, now_s)
    )


def _highest_queued(cell: Cell) -> int:
    """The highest priority that waits."""
    return max(cell.jobs[orders[0][2]].priority for orders in cell.queue.values())


def _would_change(cell: Cell, attention: Attention, now_s: float) -> bool:
    """Whether jobs would change places somewhere inside a slice as soon as any job is to begin there."""
    for domain in up_to_date(cell).ordered(attention.unsettled):
        if not _change(cell, domain, [], now_s, anew=False):
            attention.settled(domain)
    return bool(attention.unsettled)


def _turns_given(cell: Cell, coming: Mapping[str, list[Job]], now_s: float) -> Plan:
    """New slices where they are over and jobs wait; a higher priority does not wait for that."""
    listed = up_to_date(cell)
    attention = listed.view(Attention)
    due = attention.waiting(now_s)
    if coming:
        urgent = _highest_queued(cell) > attention.lowest()
        early = coming.keys() if urgent else attention.unsettled.keys() & coming.keys()
        due.update(dict.fromkeys((attention.over(now_s).keys() & coming.keys()) | early))
    for domain in listed.ordered(due):
        newcomers_here = coming.get(domain.name, [])
        if _is_over(cell, domain, now_s):
            if domain.suspended or newcomers_here:
                yield from _rearranged(cell, domain, newcomers_here, now_s, anew=True)
        elif newcomers_here:
            hurried = _urgent(domain, newcomers_here)
            if hurried or domain.name in attention.unsettled:
                yield from _rearranged(cell, domain, hurried, now_s, anew=False)


def _told_why(cell: Cell, coming: Newcomers, promised: Mapping[str, str], now_s: float) -> Plan:
    """Tell the jobs on the queue why they wait, where the cause is news."""
    for job in sorted(_uninformed(cell, coming, promised), key=attrgetter("order")):
        reason = why_it_waits(cell, job, coming.turns.get(job.job_id), promised.get(job.job_id), now_s)
        yield from told(job, reason)


def _uninformed(cell: Cell, coming: Newcomers, promised: Mapping[str, str]) -> Iterator[Job]:
    """The queued jobs that wait for another cause than they were told, in any order."""
    for job in (cell.jobs[job_id] for job_id in promised):
        if job.phase is Phase.QUEUED and job.wait_code != cause_until_others_shrink(cell, job):
            yield job
    for shape, by_cause in cell.told.items():
        for said, jobs in by_cause.items():
            for job_id in _told_otherwise(cell, coming, shape, said, jobs):
                if job_id not in promised:
                    yield cell.jobs[job_id]


def _told_otherwise(cell: Cell, coming: Newcomers, shape: str, said: str, jobs: Mapping[str, None]) -> Collection[str]:
    """Of the jobs of a shape that were told this cause, those that wait for another one."""
    if shape not in coming.refused:  # then all have a turn
        return () if said == PendingReason.FAIR_SHARE else jobs
    # Of all jobs of a shape that have none the same.
    job = cell.jobs[next(iter(jobs))]
    cause = _cause(cell, job)
    if said == cause:
        return () if cause == PendingReason.FAIR_SHARE else jobs.keys() & coming.turns.keys()
    return jobs.keys() - coming.turns.keys() if said == PendingReason.FAIR_SHARE else jobs


def _cause(cell: Cell, job: Job) -> str:
    """Why a job that has no turn waits: the code of what `why_it_waits` says."""
    if lacks_memory(cell, job):
        return PendingReason.INSUFFICIENT_MEMORY
    return waiting.cause_to_wait(cell, job, open_to(cell, job), None)


def _gone_on_where_possible(cell: Cell, now_s: float) -> Plan:
    """Suspended jobs take GPUs that became free; jobs that were packed part."""
    listed = up_to_date(cell)
    attention = listed.view(Attention)
    # Where none could before, none can until something changes there: time alone only changes the order in which
    # suspended jobs are tried.
    changed = listed.ordered(attention.changed)
    attention.changed.clear()
    for domain in changed:
        if (domain.suspended and _may_change(domain)) or crowded(cell, domain):
            yield from _rearranged(cell, domain, [], now_s, anew=False)


def _may_change(domain: Domain) -> bool:
    """Whether a suspended job might get GPUs before the slice is over: idle ones, a paused job's, or by its priority.

    Mostly none can, and then the jobs of the domain need not be put in order.
    """
    priorities = {job.priority for job in domain.residents}
    idles = any(node.free(gpu_type) for node in domain.nodes for gpu_type in node.healthy)
    return idles or len(priorities) > 1 or any(job.held for job in domain.residents)


def _placed_on_free_gpus(cell: Cell) -> Plan:
    for job in HeadsInOrder(cell):
        fit = free_place(cell, job)
        if fit is not None:
            yield placed(job, fit.gang, why_here(job, fit))


def _is_over(cell: Cell, domain: Domain, now_s: float) -> bool:
    """Whether the slice has lasted its time."""
    current = cell.slices.get(domain.name)
    return current is None or now_s >= current.ends_s


def _urgent(domain: Domain, newcomers: list[Job]) -> list[Job]:
    """The newcomers that need not wait for the end of the slice: jobs of a lower priority run."""
    lowest = lowest_running(domain)
    return [job for job in newcomers if job.priority > lowest]


@dataclass(frozen=True)
class _Change:
    """Which jobs of a domain run from now on, and which do not any more."""

    running: list[Job]
    """They go on where they are."""
    suspended: list[Job]
    resumed: list[Assignment]
    started: list[Assignment]

    def __bool__(self) -> bool:
        """Whether any job's place is another one."""
        return bool(self.resumed or self.started or self.suspended)


def _change(cell: Cell, domain: Domain, newcomers: list[Job], now_s: float, *, anew: bool) -> _Change:
    assignments = choose(cell, of(cell), domain, newcomers, now_s, anew=anew)
    started = [assignment for assignment in assignments if not assignment.job.gang]
    resumed = [
        assignment
        for assignment in assignments
        if assignment.job.gang and (assignment.job.suspended or assignment.gang != assignment.job.gang)
    ]
    assigned = {assignment.job.job_id: None for assignment in assignments}
    return _Change(
        running=[each.job for each in assignments if each not in resumed and each not in started],
        suspended=[job for job in domain.residents if job.stays and job.move is None and job.job_id not in assigned],
        resumed=resumed,
        started=started,
    )


def _rearranged(cell: Cell, domain: Domain, newcomers: list[Job], now_s: float, *, anew: bool) -> Plan:
    """Say which jobs run from now on, if that changes anything or a new slice begins."""
    if anew:
        yield from two_packed(cell, domain, now_s)
    change = _change(cell, domain, newcomers, now_s, anew=anew)
    if not anew and not change:
        if not newcomers:
            up_to_date(cell).view(Attention).settled(domain)
        return
    yield places_changed(
        cell,
        domain,
        running=change.running,
        suspended=change.suspended,
        resumed=change.resumed,
        started=[assignment.job for assignment in change.started],
        ends_s=now_s + cell.settings.slice_s if anew else max(slice_of(cell, domain).ends_s, now_s),
        reason=why_now(
            domain, newcomers, anew=anew, parted=bool(change.suspended) and not (change.resumed or change.started)
        ),
    )
    for assignment in change.started:
        yield placed(assignment.job, assignment.gang, why_its_turn(domain, assignment.job))
