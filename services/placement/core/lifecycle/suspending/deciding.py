"""The decisions by which jobs of a server change places: `changes.py` carries them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from libs.contracts.cluster import TaskPlacement
from libs.contracts.placement import ResumedJob, TimeSliceStarted
from libs.contracts.reasons import Reason
from services.placement.core.cell import Cell, Slice
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.suspending.domains import Domain, domain_of


@dataclass(frozen=True)
class Assignment:
    """A job's place from now on."""

    job: Job
    gang: list[TaskPlacement]
    packed_with: list[str]


def slice_of(cell: Cell, domain: Domain) -> Slice:
    """The latest turn on these servers."""
    return cell.slices.get(domain.name, Slice())


def places_changed(
    cell: Cell,
    domain: Domain,
    *,
    running: Sequence[Job],
    suspended: Sequence[Job] = (),
    resumed: Sequence[Assignment] = (),
    started: Sequence[Job] = (),
    ends_s: float,
    reason: Reason,
) -> TimeSliceStarted:
    """The decision that jobs change places. The agent lets no task in before those that are to leave have left.

    Args:
        cell: says how often that has happened here.
        domain: the servers.
        running: jobs that go on where they are.
        suspended: jobs that stand still.
        resumed: jobs that go on where they are given a assignment.
        started: jobs that are placed here next.
        ends_s: until when no job has to make room.
        reason: why.
    """
    return TimeSliceStarted(
        server=domain.name,
        nodes=[node.node_id for node in domain.nodes],
        number=slice_of(cell, domain).number + 1,
        ends_s=ends_s,
        running=[job.job_id for job in running],
        resumed=[
            ResumedJob(job_id=assignment.job.job_id, gang=assignment.gang, packed_with=assignment.packed_with)
            for assignment in resumed
        ],
        suspended=[job.job_id for job in suspended],
        started=[job.job_id for job in started],
        reason=reason,
    )


def suspended(cell: Cell, domain: Domain, jobs: Sequence[Job], *, ends_s: float, reason: Reason) -> TimeSliceStarted:
    """The decision that jobs of these servers stand still there, and others may have their GPUs."""
    running = [other for other in domain.residents if other.stays and other not in jobs]
    return places_changed(cell, domain, running=running, suspended=jobs, ends_s=ends_s, reason=reason)


def resumed(
    cell: Cell, job: Job, gang: list[TaskPlacement], packed_with: list[str], *, ends_s: float, reason: Reason
) -> TimeSliceStarted:
    """The decision that a suspended job gets these GPUs of its servers."""
    domain = domain_of(cell, job)
    running = [other for other in domain.residents if other.stays]
    assignment = Assignment(job, gang, packed_with)
    return places_changed(cell, domain, running=running, resumed=[assignment], ends_s=ends_s, reason=reason)
