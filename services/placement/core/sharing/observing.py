"""What operators and introspection say about how fast jobs are, alone and beside others."""

from __future__ import annotations

from libs.contracts.gateway import ThroughputsProvided
from libs.contracts.introspection import JobProfiled
from libs.kernel.machine import Turn
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job, Phase
from services.placement.core.lifecycle.table import Look, machine, reacts
from services.placement.core.sharing.estimates import saw_beside
from services.placement.core.sharing.pairs import partner_of
from services.placement.core.sharing.rates import learn_colocated, learn_isolated
from services.placement.core.sharing.spread import learn_placed

NEWS_RATIO = 0.1
"""A rate that differs by less from the one known is the same rate."""


@machine.evolves(ThroughputsProvided)
def throughputs_provided(cell: Cell, event: ThroughputsProvided, now_s: float) -> None:
    for row in event.isolated:
        learn_isolated(cell, row)
    for pair in event.colocated:
        learn_colocated(cell, pair)
    cell.known.version += 1


@machine.evolves(JobProfiled)
def job_profiled(cell: Cell, event: JobProfiled, now_s: float) -> bool:
    """Alone on its GPUs or beside another; only what is news: every change is a new allocation.

    Returns whether guests may have seats beside it now that they had not: its memory or its load was not known so.
    """
    job = cell.jobs.get(event.job_id)
    if job is None or job.phase is not Phase.ACTIVE or job.attempt != event.attempt:
        return False
    partner = partner_of(cell, job)
    if partner is not None:
        saw_beside(cell, job, partner, event.rate_per_s)
        return False
    if cell.book.packed(job.job_id) is not None:
        return False
    cell.measured(job)
    seats_change = job.profile.memory_peak_bytes != event.memory_peak_bytes or job.profile.utilisation is None
    if _beside_guests(cell, job):
        job.profile.memory_peak_bytes = event.memory_peak_bytes
        return seats_change
    job.profile.utilisation, job.profile.memory_peak_bytes = event.gpu_utilisation_ratio, event.memory_peak_bytes
    learn_placed(cell, job, event.rate_per_s)
    if event.rate_per_s > 0 and not job.spec.throughputs:
        before = job.profile.rates.get(job.gpu_type, 0.0)
        if abs(event.rate_per_s - before) > NEWS_RATIO * before:
            job.profile.rates[job.gpu_type] = event.rate_per_s
            cell.known.version += 1
    return seats_change


@reacts(JobProfiled)
def look_for_seats(cell: Cell, event: JobProfiled, turn: Turn[Cell]) -> Look | None:
    """Only while a guest waits: it may have been refused for what was not known of this job."""
    waits = bool(cell.guest_queue or cell.still)
    return Look(guests_alone=True) if waits and turn.changed else None


def _beside_guests(cell: Cell, job: Job) -> bool:
    """Whether its GPUs have been busy, and it has been as fast, not by itself alone."""
    gpus = (cell.nodes[task.node_id].gpus[index] for task in job.gang for index in task.gpu_indices)
    return any(gpu.guests and len(dict.fromkeys([*gpu.holders, *gpu.guests])) > 1 for gpu in gpus)
