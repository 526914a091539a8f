"""What is said about turns: why a job begins, why jobs change places, why one waits."""

from __future__ import annotations

from libs.contracts.reasons import Number, PendingReason, Reason
from libs.kernel.words import counted
from services.placement.core.cell import Cell
from services.placement.core.cluster import gangs
from services.placement.core.jobs import Job
from services.placement.core.lifecycle import waiting
from services.placement.core.lifecycle.suspending.domains import Domain
from services.placement.core.promises import lacks_memory, open_to


def why_here(job: Job, fit: gangs.Fit) -> Reason:
    """Why the job gets free GPUs."""
    where = ", ".join(task.node_id for task in fit.gang)
    numbers: dict[str, Number] = {"gpus": job.spec.gpus.count, "nodes": fit.nodes, "racks": fit.racks}
    return Reason(code="FreeGpus", message=f"{job.spec.gpus.count} free {fit.gpu_type} on {where}", numbers=numbers)


def why_its_turn(domain: Domain, job: Job) -> Reason:
    """Why the job gets GPUs that other jobs had."""
    numbers: dict[str, Number] = {**_height(domain), "affinity": domain.affinity}
    message = f"no GPU is free; it takes turns with {counted(len(domain.residents), 'other')} on {domain.name}"
    return Reason(code="OverSubscribed", message=message, numbers=numbers)


def why_now(domain: Domain, newcomers: list[Job], *, anew: bool, parted: bool) -> Reason:
    """Why jobs change places.

    Args:
        domain: the servers of the jobs.
        newcomers: those that may begin.
        anew: the slice is over.
        parted: jobs leave and none comes: they shared GPUs until now.
    """
    waiting_jobs = len(domain.suspended) + len(newcomers)
    numbers: dict[str, Number] = {**_height(domain), "waiting": waiting_jobs, "gpus": domain.gpus}
    if parted and not anew:
        return Reason(code="Parted", message="jobs that shared GPUs take turns from now on", numbers=numbers)
    if not anew:
        return Reason(code="GpusBecameFree", message="suspended jobs go on where others have left", numbers=numbers)
    message = f"the slice is over, and {counted(waiting_jobs, 'job waits', 'jobs wait')} for a turn"
    return Reason(code="SliceIsOver", message=message, numbers=numbers)


def _height(domain: Domain) -> dict[str, Number]:
    """Its height, as reasons name it; nothing where no GPU is healthy: no number says that it is infinite."""
    return {"height": round(domain.height, 6)} if domain.gpus else {}


def cause_until_others_shrink(cell: Cell, job: Job) -> str:
    """Why a queued job waits that elastic jobs make room for: where it would fit, the GPUs are for suspended jobs."""
    servers = open_to(cell, job)
    if gangs.best_fit(job.spec.gpus, servers) is not None:
        return PendingReason.FAIR_SHARE
    return waiting.cause_to_wait(cell, job, servers, None)


def _until_others_shrink(cell: Cell, job: Job, promised_on: str) -> Reason:
    message, code = f"elastic jobs on {promised_on} shrink to make room for it", cause_until_others_shrink(cell, job)
    if code == PendingReason.FAIR_SHARE:
        message += "; GPUs that are free elsewhere are for suspended jobs"
    return Reason(code=code, message=message, numbers={"gpus": job.spec.gpus.count})


def why_it_waits(cell: Cell, job: Job, turn_on: str | None, promised_on: str | None, now_s: float) -> Reason:
    """Why the queued job has no GPUs.

    Args:
        turn_on: the domain on which it is to begin in its turn.
        promised_on: the server on which elastic jobs make room for it.
    """
    if promised_on is not None:
        return _until_others_shrink(cell, job, promised_on)
    if turn_on is not None:
        ends_s = cell.slices[turn_on].ends_s if turn_on in cell.slices else now_s
        return Reason(
            code=PendingReason.FAIR_SHARE,
            message=f"its turn on {turn_on} comes when a slice is over",
            numbers={"next_slice_in_s": max(0.0, ends_s - now_s)},
        )
    if lacks_memory(cell, job):
        numbers: dict[str, Number] = {"gpus": job.spec.gpus.count}
        return waiting.beside_free_gpus(cell, job, cell.servers_for(job), PendingReason.INSUFFICIENT_MEMORY, numbers)
    return waiting.reason_to_wait(cell, job, open_to(cell, job), None, now_s)
