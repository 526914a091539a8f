"""A job without a lease leaves its GPUs, in the first of the policy's ways that is open to it."""

from __future__ import annotations

from libs.contracts.placement import JobPreempted, Lease
from libs.policies.policy import Way
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.giving_way import way_of
from services.placement.core.lifecycle.placing import preempted
from services.placement.core.lifecycle.plan import Plan
from services.placement.core.lifecycle.suspending.deciding import suspended
from services.placement.core.lifecycle.suspending.domains import domains
from services.placement.core.lifecycle.suspending.returning import can_return
from services.placement.core.mechanisms.rounds.memory import Rounds
from services.placement.core.mechanisms.rounds.pinning import gives_way
from services.placement.core.mechanisms.rounds.places import Places, Present
from services.placement.core.mechanisms.rounds.why import why_it_leaves, why_it_moves, why_some_leave


def way_made(cell: Cell, rounds: Rounds, present: Present, places: Places) -> Plan:
    """Free the GPUs of all jobs without a renewed lease, and end the processes of those that go on elsewhere."""
    renewed = dict.fromkeys(places.renewed)
    leases = {lease.job_id: lease for lease in places.leases}
    standing = {job.job_id: job for job in cell.without_guests() if job.held and gives_way(cell, job)}
    for job_id, job in present.running.items():
        if job_id in renewed:
            continue
        way = _way(cell, job, leases.get(job_id))
        if way is Way.SUSPEND:
            standing[job_id] = job
        elif way is not None:
            yield _stopped(rounds, job, leases.get(job_id))
    for job_id, job in present.suspended.items():
        lease = leases.get(job_id)
        if _goes_elsewhere(cell, job, lease) and _way(cell, job, lease) is not None:
            yield _stopped(rounds, job, lease)
    if standing:
        yield from _suspended(cell, rounds, standing)


def _way(cell: Cell, job: Job, lease: Lease | None) -> Way | None:
    """How the job leaves its GPUs; processes that stand still cannot go to another server."""
    return way_of(cell, job, but=Way.SUSPEND if _goes_elsewhere(cell, job, lease) else None)


def _goes_elsewhere(cell: Cell, job: Job, lease: Lease | None) -> bool:
    """Whether its place in this round is one that its processes cannot go to."""
    return lease is not None and not can_return(cell.nodes, job, lease.gang)


def _stopped(rounds: Rounds, job: Job, lease: Lease | None) -> JobPreempted:
    return preempted(job, why_it_leaves(rounds, job) if lease is None else why_it_moves(rounds, job, lease))


def _suspended(cell: Cell, rounds: Rounds, leaving: dict[str, Job]) -> Plan:
    for domain in domains(cell):
        jobs = [job for job in domain.residents if job.job_id in leaving]
        if jobs:
            yield suspended(cell, domain, jobs, ends_s=rounds.ends_s, reason=why_some_leave(rounds, jobs))
