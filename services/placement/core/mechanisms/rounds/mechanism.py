"""Allocation, rounds, leases, and idle GPUs given away at once."""

from __future__ import annotations

from collections.abc import Iterator

from libs.contracts.placement import AllocationComputed, AllocationRequested, RoundStarted
from libs.contracts.reasons import Number, Reason
from libs.kernel.words import counted
from libs.policies.allocation.solve import solve
from libs.policies.allocation.table import ALLOCATION_POLICIES
from libs.policies.baselines.isolated import isolated
from libs.policies.policy import Kind
from libs.policies.problem import SolverFailed
from services.placement.core.book import Grounds
from services.placement.core.cell import Cell
from services.placement.core.jobs import ACTIVE, Job
from services.placement.core.lifecycle.plan import Plan, plans
from services.placement.core.lifecycle.table import machine
from services.placement.core.mechanism import Mechanism, Moment
from services.placement.core.mechanisms.rounds.claims import backfill, by_deficit, claims
from services.placement.core.mechanisms.rounds.isolation import keep_isolated_time
from services.placement.core.mechanisms.rounds.leaving import way_made
from services.placement.core.mechanisms.rounds.ledger import book, booked, keep_credit, pay
from services.placement.core.mechanisms.rounds.memory import Rounds, of
from services.placement.core.mechanisms.rounds.pinning import crowded, host_rooms, pinned_ones, resting, rooms
from services.placement.core.mechanisms.rounds.places import Places, Present, assign
from services.placement.core.mechanisms.rounds.question import (
    Offered,
    competitors,
    fingerprint,
    offered,
    question,
    shared,
)
from services.placement.core.mechanisms.rounds.ranking import forget, known
from services.placement.core.mechanisms.rounds.selection import Assignment, Claim, fill, select
from services.placement.core.mechanisms.rounds.work_conservation import conserved
from services.placement.core.sharing.accounts import settle
from services.placement.core.sharing.estimates import missing


class RoundsMechanism(Mechanism):
    """Realises shares of time: each round GPUs go to the rows with the largest deficits, and idle ones to any job."""

    kind = Kind.SHARES
    brings_back = True

    def step(self, cell: Cell, moment: Moment) -> Plan:
        """Begin a round when one is due, place the jobs that the round waits for, give idle GPUs away."""
        memory, now_s = of(cell), moment.now_s
        if _round_is_due(memory.current, now_s):
            jobs = competitors(cell)
            if memory.asked or not jobs:
                return
            gpus = offered(cell)
            counts = shared(cell, jobs, gpus)
            mark = fingerprint(cell, jobs, counts)
            if memory.current is None or _must_compute(cell, memory.current, mark, now_s):
                yield from _asked(cell, mark, jobs, counts, now_s)
                return
            yield from _round_begun(cell, memory.current, jobs, gpus, now_s)
        if memory.current is not None:
            yield from conserved(cell, memory, memory.current)

    def moments(self, cell: Cell) -> Iterator[float]:
        """When the round is over, unless an allocation is awaited: the next one begins with that."""
        memory = of(cell)
        if memory.current is not None and cell.jobs and not memory.asked:
            yield memory.current.ends_s

    def placed(self, cell: Cell, job: Job, now_s: float) -> None:
        _takes(of(cell).current, job)

    def resumed(self, cell: Cell, job: Job, now_s: float) -> None:
        _takes(of(cell).current, job)

    def moving(self, cell: Cell, job: Job, now_s: float) -> None:
        rounds = of(cell).current
        if rounds is not None:
            pay(cell, rounds, [job], now_s)

    def suspending(self, cell: Cell, job: Job, now_s: float) -> None:
        _leaves(cell, of(cell).current, job, now_s)

    def leaving(self, cell: Cell, job: Job, now_s: float) -> None:
        _leaves(cell, of(cell).current, job, now_s)

    def queued(self, cell: Cell, job: Job) -> None:
        if (ranking := known(of(cell))) is not None:
            ranking.add(job)

    def dequeued(self, cell: Cell, job: Job) -> None:
        if (ranking := known(of(cell))) is not None:
            ranking.remove(job)

    def withdrawn(self, cell: Cell, job: Job) -> None:
        rounds = of(cell).current
        if rounds is not None:
            rounds.plan.pop(job.job_id, None)

    def time_passed(self, cell: Cell, now_s: float) -> None:
        book(cell, of(cell), now_s)

    def policy_changing(self, cell: Cell, policy: str, now_s: float) -> None:
        memory = of(cell)
        memory.current, memory.asked, memory.divided = None, "", None
        forget(memory)
        cell.book.end_pairs()


def _takes(rounds: Rounds | None, job: Job) -> None:
    """The job holds GPUs now: those that the round keeps for it, else such as no share claims."""
    if rounds is not None and rounds.plan.pop(job.job_id, None) is None:
        rounds.beyond[job.job_id] = None


def _leaves(cell: Cell, rounds: Rounds | None, job: Job, now_s: float) -> None:
    """The job holds none any more."""
    if rounds is None:
        return
    if job.phase is ACTIVE:
        pay(cell, rounds, [job], now_s)
    if job.job_id not in rounds.plan:
        rounds.beyond.pop(job.job_id, None)


def _round_is_due(rounds: Rounds | None, now_s: float) -> bool:
    return rounds is None or now_s >= rounds.ends_s


def _must_compute(cell: Cell, rounds: Rounds, mark: str, now_s: float) -> bool:
    """After a reset event; and at intervals where the answer depends on how far each job is."""
    if rounds.question != mark:
        return True
    sees_work = ALLOCATION_POLICIES[cell.policy].sees_work
    return sees_work and now_s - rounds.computed_s >= cell.settings.recompute_s


def _asked(cell: Cell, mark: str, jobs: list[Job], gpus: dict[str, int], now_s: float) -> Plan:
    numbers: dict[str, Number] = {"jobs": len(jobs), **{f"gpus.{t}": count for t, count in gpus.items()}}
    message = f"{counted(len(jobs), 'job')} in competition for {counted(sum(gpus.values()), 'GPU')}"
    reason = Reason(code="RoundIsDue", message=message, numbers=numbers)
    yield AllocationRequested(policy=cell.policy, question=mark, reason=reason)
    if cell.options.space_sharing and gpus:
        yield from missing(cell, jobs, list(gpus))
    problem = question(cell, jobs, gpus, now_s)
    note = ""
    try:
        solution = solve(problem)
    except SolverFailed as error:
        solution, note = isolated(problem), f"every job gets its part of the cluster: {error}"
    yield AllocationComputed(
        policy=cell.policy,
        question=mark,
        objective=solution.objective,
        shares=solution.allocation,
        infeasible=solution.infeasible,
        jobs=len(jobs),
        iterations=solution.iterations,
        note=note,
    )


def _round_begun(cell: Cell, rounds: Rounds, jobs: list[Job], gpus: Offered, now_s: float) -> Plan:
    # A job on its way to other servers goes on nowhere until it has arrived, or its move is given up.
    jobs = [job for job in jobs if not (job.suspended and job.move is not None)]
    present = Present(
        running={job.job_id: job for job in jobs if job.stays},
        suspended={job.job_id: job for job in resting(cell)},
        pinned=pinned_ones(cell, jobs),
    )
    chosen, beyond, places = _planned(cell, rounds, jobs, present, gpus)
    yield RoundStarted(
        policy=cell.policy,
        number=rounds.number + 1,
        ends_s=now_s + cell.settings.round_s,
        renewed=places.renewed,
        leases=places.leases,
        packs=[list(assignment.jobs) for assignment in chosen if len(assignment.jobs) > 1],
        beyond=[job_id for assignment in beyond for job_id in assignment.jobs],
    )
    yield from way_made(cell, rounds, present, places)


def _planned(
    cell: Cell, rounds: Rounds, jobs: list[Job], present: Present, gpus: Offered
) -> tuple[list[Claim], list[Assignment], Places]:
    """Which jobs run by their shares, which on what is left, and where.

    A job that was to begin where no server takes it gives its assignment back, before others have left for it.
    """
    types, claimed = list(gpus), claims(cell, rounds, jobs, present)
    hosts = host_rooms(cell, rounds.plan)
    most: dict[str, int] = {}
    while True:
        left, left_rooms = shared(cell, jobs, gpus), rooms(gpus, hosts, most) if hosts else {}
        chosen = select(claimed, left, left_rooms)
        assigned = {job_id: None for assignment in chosen for job_id in assignment.jobs}
        # Of the others only those that what is left may be enough for: mostly nothing is, and many wait.
        at_most = max(left.values(), default=0)
        others = [job for job in jobs if job.spec.gpus.count <= at_most and job.job_id not in assigned]
        requests = [
            backfill(cell, job, types, pinned=job.job_id in present.pinned) for job in by_deficit(rounds, others)
        ]
        beyond = fill(requests, left, left_rooms)
        places = assign(cell, [*chosen, *beyond], present, gpus, hosts)
        if not places.refused:
            return chosen, beyond, places
        most |= {gpu_type: places.begun.get(gpu_type, 0) for gpu_type in places.refused}


machine.hears(AllocationComputed)


@machine.evolves(AllocationRequested)
def allocation_requested(cell: Cell, event: AllocationRequested, now_s: float) -> None:
    of(cell).asked = event.question
    policy = ALLOCATION_POLICIES.get(event.policy)
    if policy is not None and policy.sees_work:
        jobs = competitors(cell)
        keep_isolated_time(cell, jobs, shared(cell, jobs, offered(cell)))


@machine.evolves(AllocationComputed)
def allocation_computed(cell: Cell, event: AllocationComputed, now_s: float) -> None:
    memory = of(cell)
    if event.question != memory.asked:
        return
    memory.asked = ""
    rounds = booked(cell, memory, now_s)
    rounds.shares, rounds.question, rounds.computed_s = event.shares, event.question, now_s
    rounds.rows = {}
    for row, share in enumerate(event.shares):
        for job_id in share.jobs:
            if (rows := rounds.rows.get(job_id)) is None:
                rounds.rows[job_id] = [row]
            else:
                rows.append(row)
    keep_credit(memory, rounds, event.shares)


@plans(AllocationComputed)
def begin_with_new_shares(cell: Cell, event: AllocationComputed, now_s: float) -> Plan:
    """Whatever has happened since the question: the round begins with these shares, the next one asks again."""
    jobs, rounds = competitors(cell), of(cell).current
    if rounds is None or rounds.question != event.question or not jobs:
        return
    if _round_is_due(rounds, now_s):
        yield from _round_begun(cell, rounds, jobs, offered(cell), now_s)
    yield from conserved(cell, of(cell), rounds)


@machine.evolves(RoundStarted)
def round_started(cell: Cell, event: RoundStarted, now_s: float) -> None:
    rounds = of(cell).current
    if rounds is None:
        return
    # With the credit of the time before, which the round's plan must not have changed yet.
    book(cell, of(cell), now_s)
    rounds.crowded = crowded(cell, rounds)
    rounds.number, rounds.ends_s = event.number, event.ends_s
    rounds.plan = {lease.job_id: lease for lease in event.leases}
    rounds.beyond = dict.fromkeys(event.beyond)
    paired = cell.book.end_pairs()
    for job_id, other in event.packs:
        cell.book.pair(job_id, other, Grounds.ALLOCATION)
    for job_id in dict.fromkeys([*paired, *(job_id for pack in event.packs for job_id in pack)]):
        job = cell.jobs.get(job_id)
        if job is not None and job.phase is ACTIVE:
            settle(cell, job)
