"""Gangs that acquire GPUs as they become free, give them back, and accept less locality after some tries.

The Philly study (Jeon et al., ATC'19, section 2.3). What a gang has acquired is a reservation that lasts for
`acquire_s`; the next try begins `backoff_s` after its end, and each `relax_after` tries relax one step (`Locality`). A
gang that accepts any servers and has waited for `reserve_after_s` gives nothing back any more, so that none starves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from libs.contracts.placement import GangReleased, GangReserved
from libs.contracts.reasons import Number, Reason
from libs.kernel.words import counted
from services.placement.core.cell import Acquisition, Cell
from services.placement.core.cluster import gangs
from services.placement.core.cluster.locality import Locality, collect_within, fit_within
from services.placement.core.cluster.servers import Servers
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.plan import Plan
from services.placement.core.lifecycle.reservations import in_order, servers_open_to, width_kept
from services.placement.core.mechanisms.queueing.apart import preferred
from services.placement.core.mechanisms.queueing.lines import Refused
from services.placement.core.mechanisms.queueing.weighing import Weighed

LOOKED_AT = 5
"""Gangs that are asked whether a job that passes them delays them."""


def tries_of(cell: Cell, job: Job) -> Acquisition:
    """The tries that the gang has made in vain since it waits."""
    return cell.acquiring.get(job.job_id, Acquisition())


def locality_of(cell: Cell, job: Job) -> Locality:
    """What the gang accepts by now."""
    steps = int(tries_of(cell, job).tries // max(1.0, cell.settings.relax_after))
    return Locality(min(steps, Locality.ANYWHERE))


def fit_of(cell: Cell, job: Job, servers: Servers) -> gangs.Fit | None:
    """The place that the gang accepts, or None."""
    above, locality = cell.settings.emptiest_above_gpus, locality_of(cell, job)
    packed = not 0 < above < job.width
    fits = (fit_within(job.spec.gpus, some, locality, packed=packed) for some in preferred(cell, job, servers))
    return next((fit for fit in fits if fit is not None), None)


def collection_of(cell: Cell, job: Job, servers: Servers) -> gangs.Collection | None:
    """Where it is to acquire GPUs."""
    return collect_within(job.spec.gpus, servers, locality_of(cell, job))


def goes_on_after(cell: Cell, job: Job, now_s: float) -> bool:
    """Whether those behind it may acquire GPUs, too: it does so itself, or is in its back-off."""
    return job.job_id in cell.reservations or now_s < tries_of(cell, job).retry_s


def is_due(cell: Cell, job: Job, now_s: float) -> bool:
    """Whether the gang may begin a try."""
    return now_s >= tries_of(cell, job).retry_s


def as_a_try(cell: Cell, job: Job, reserved: GangReserved, wait_s: float | None, now_s: float) -> GangReserved:
    """What is kept for the gang as one of its tries: until when, which try it is, what was relaxed.

    Args:
        wait_s: it could start, and waits so long for the fewest servers; None: it does not.
    """
    locality, number = locality_of(cell, job), tries_of(cell, job).tries + 1
    if wait_s is not None:
        locality = Locality.FEWEST_SERVERS
    lasts_s = cell.settings.acquire_s + (wait_s or 0.0)
    for_good = locality is Locality.ANYWHERE and now_s >= job.queued_since_s + cell.settings.reserve_after_s
    until_s = None if for_good else now_s + lasts_s
    lasts = "until it has all of them" if until_s is None else f"for {lasts_s:g} s"
    kept, count = reserved.gpus_held, reserved.gpus_held + reserved.gpus_missing
    where = ", ".join(f"{part.gpus} of {part.node_id}" for part in reserved.parts)
    reason = Reason(
        code="Acquiring",
        message=f"try {number}, on {locality.words}: GPUs are held {lasts} as they become free ({where}), "
        f"{kept} of {count} now",
        numbers={"gpus": count, "held": kept, "try": number},
    )
    return GangReserved(
        job_id=reserved.job_id,
        attempt=reserved.attempt,
        node_ids=reserved.node_ids,
        gpus_held=kept,
        reason=reason,
        gpu_type=reserved.gpu_type,
        parts=reserved.parts,
        gpus_missing=reserved.gpus_missing,
        until_s=until_s,
        try_number=number,
        relaxed=locality.name.lower(),
    )


def given_back(cell: Cell, now_s: float) -> Plan:
    """What was acquired in vain, and has been held for as long as it may be."""
    for reservation in in_order(cell):
        if reservation.until_s is not None and now_s >= reservation.until_s:
            held, count = width_kept(cell, reservation), sum(reservation.parts.values())
            again = f"tries again after {cell.settings.backoff_s:g} s"
            message = f"has acquired {held} of {counted(count, 'GPU')} in time; {again}"
            yield GangReleased(
                job_id=reservation.job_id,
                attempt=reservation.attempt,
                reason=Reason(code="AcquireTimedOut", message=message, numbers={"gpus": count, "held": held}),
                gpus_held=held,
                try_number=reservation.try_number,
                retry_s=now_s + cell.settings.backoff_s,
            )


def why_here(cell: Cell, job: Job, fit: gangs.Fit, weighed: Weighed | None) -> Reason | None:
    """Why the gang gets a place that is not the best there could be; None: it accepts no other.

    Args:
        weighed: what it would gain by waiting for the fewest servers, and how long it would wait.
    """
    locality, tries = locality_of(cell, job), tries_of(cell, job).tries
    if locality is Locality.FEWEST_SERVERS:
        return None
    where = ", ".join(task.node_id for task in fit.gang)
    message = (
        f"{job.spec.gpus.count} free {fit.gpu_type} on {where}: it accepts {locality.words} after "
        f"{counted(tries, 'try', 'tries')}"
    )
    numbers: dict[str, Number] = {
        "gpus": job.spec.gpus.count,
        "nodes": fit.nodes,
        "racks": fit.racks,
        "tries": tries,
    }
    if weighed is not None:
        message, numbers = f"{message}; {weighed.words}", numbers | weighed.numbers
    return Reason(code="LocalityRelaxed", message=message, numbers=numbers)


def moments(cell: Cell) -> Iterator[float]:
    """When what was acquired is given back, when the next tries begin, and when gangs wait no longer for locality."""
    if (limit_s := cell.settings.wait_for_locality_s) > 0:
        weighing = {**cell.acquiring, **cell.reservations}
        yield from (cell.jobs[job_id].queued_since_s + limit_s for job_id in weighing)
    yield from (each.until_s for each in cell.reservations.values() if each.until_s is not None)
    yield from (each.retry_s for job_id, each in cell.acquiring.items() if job_id not in cell.reservations)


def delayed_by(cell: Cell, fit: gangs.Fit, passed: Iterable[Refused]) -> str:
    """The first of the gangs that a job passes which loses free GPUs where it would acquire them; empty: none does.

    One for which GPUs are kept loses none.
    """
    taken = {task.node_id: len(task.gpu_indices) for task in fit.gang}
    waiting = (each.job for each in passed if each.job.width > 1 and each.job.job_id not in cell.reservations)
    for job in islice(waiting, LOOKED_AT):
        collection = collection_of(cell, job, servers_open_to(cell, job))
        for part in collection.parts if collection is not None else ():
            free = len(cell.nodes[part.node_id].free(fit.gpu_type))
            if free - taken.get(part.node_id, 0) < min(len(part.kept), free):
                return job.job_id
    return ""
