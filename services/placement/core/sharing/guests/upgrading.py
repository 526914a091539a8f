"""A guest becomes the owner of its GPUs, when they have none and its tenant has quota for it (AntMan, "job upgrade").

    every GPU of its gang without owner, and kept for no other gang ──> UpgradeOffered: its GPUs are kept for it
        ──JobUpgraded──> an ordinary job; its agents get SetClass, and nothing interrupts it
        ──UpgradeDeclined──> its GPUs are kept no more, and the offer stands: JobUpgraded may come later
            ──an owner comes, GPUs are kept for a gang, the guest leaves them──> UpgradeWithdrawn
        ──another guest on them is upgraded first, or it leaves them──> UpgradeWithdrawn, and its GPUs are kept no more

Which of a tenant's guests is the first to be upgraded is for quota to say. A JobUpgraded that crosses with
UpgradeWithdrawn on the log changes nothing here, and quota takes it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter

from libs.contracts.placement import UpgradeOffered, UpgradeWithdrawn
from libs.contracts.quota import JobUpgraded, UpgradeDeclined
from libs.contracts.reasons import Reason
from libs.kernel.machine import Turn
from libs.kernel.words import counted
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.current import active
from services.placement.core.lifecycle.hearing import Listener, listeners
from services.placement.core.lifecycle.orders import class_orders
from services.placement.core.lifecycle.plan import Plan
from services.placement.core.lifecycle.reservations import in_order, kept
from services.placement.core.lifecycle.suspending.yielding import beside_guests, owners_on
from services.placement.core.lifecycle.table import Look, machine, reacts
from services.placement.core.promises import shortage

Place = tuple[str, int]
"""Node id and index of a GPU."""


def unanswered(cell: Cell) -> dict[str, int]:
    """The offers that keep GPUs, because quota has not answered them yet: {guest: its attempt}."""
    return {job_id: attempt for job_id, attempt in cell.offers.items() if cell.jobs[job_id].offered}


def withdrawals(cell: Cell, offered: Mapping[str, int]) -> Plan:
    """Withdraw the offers to those of these guests that can no longer be owners of their GPUs."""
    reserved = _reserved(cell) if offered else {}
    for job_id, attempt in list(offered.items()):
        job = active(cell, job_id, attempt)
        if job is None or not _may_be_owner(cell, job, reserved):
            yield _withdrawn(job_id, attempt)


def offers(cell: Cell, now_s: float) -> Plan:
    """Which guests could be owners from now on, in order of arrival."""
    guests = [job for job_id in cell.upgradable if job_id not in cell.offers and (job := cell.jobs[job_id]).stays]
    reserved = _reserved(cell) if guests else {}
    for job in sorted(guests, key=attrgetter("seq")):
        if _may_be_owner(cell, job, reserved):
            yield _offered(job, now_s)


def _reserved(cell: Cell) -> dict[Place, None]:
    """The GPUs that are kept for gangs that wait."""
    return {
        (node_id, index): None
        for reservation in in_order(cell)
        for node_id, indices in kept(cell, reservation).items()
        for index in indices
    }


def _may_be_owner(cell: Cell, job: Job, reserved: dict[Place, None]) -> bool:
    """Whether nothing but quota is in the way.

    A job of which its user wants that it uses no quota is never asked, nor one that would need more than its tenant's.
    """
    quota = cell.tenant_quotas.get(job.spec.tenant, job.width)
    wants = job.guest and job.wants_quota and job.width <= quota
    if not (cell.takes_guests and wants and job.stays) or job.held or job.trial is not None:
        return False
    for task in job.gang:
        node = cell.nodes[task.node_id]
        if not node.usable or not node.are_healthy(task.gpu_indices):
            return False
        if any((task.node_id, index) in reserved for index in task.gpu_indices):
            return False
    if _is_owned(cell, job):
        return False
    return shortage(cell, [(job, job.gang)]) is None


def _offered(job: Job, now_s: float) -> UpgradeOffered:
    where = ", ".join(task.node_id for task in job.gang)
    message = f"no job owns its {counted(job.width, 'GPU')} on {where}, and no gang waits for them"
    return UpgradeOffered(
        job_id=job.job_id,
        attempt=job.attempt,
        tenant=job.spec.tenant,
        gpus=job.width,
        since_s=now_s,
        reason=Reason(code="NoOwner", message=message, numbers={"gpus": job.width}),
    )


def _withdrawn(job_id: str, attempt: int) -> UpgradeWithdrawn:
    message = "its GPUs have an owner, or are kept for a gang, or it has left them"
    return UpgradeWithdrawn(job_id=job_id, attempt=attempt, reason=Reason(code="GpusAreTaken", message=message))


@machine.evolves(UpgradeOffered)
def upgrade_offered(cell: Cell, event: UpgradeOffered, now_s: float) -> None:
    cell.offers[event.job_id] = event.attempt
    cell.keep_for(cell.jobs[event.job_id], kept=True)


@machine.evolves(UpgradeWithdrawn)
def upgrade_withdrawn(cell: Cell, event: UpgradeWithdrawn, now_s: float) -> None:
    del cell.offers[event.job_id]
    job = cell.jobs[event.job_id]
    if job.offered:
        cell.keep_for(job, kept=False)


@machine.evolves(UpgradeDeclined)
def upgrade_declined(cell: Cell, event: UpgradeDeclined, now_s: float) -> bool:
    """Whether GPUs were kept until now."""
    job = active(cell, event.job_id, event.attempt)
    if job is None or not job.offered:
        return False
    cell.keep_for(job, kept=False)
    return True


@reacts(UpgradeDeclined)
def give_gpus_free(cell: Cell, event: UpgradeDeclined, turn: Turn[Cell]) -> Look | None:
    return Look() if turn.changed else None


@machine.evolves(JobUpgraded)
def job_upgraded(cell: Cell, event: JobUpgraded, now_s: float) -> bool:
    """Whether the job is an owner from now on; not if its GPUs have another one, which came before this was heard."""
    job = active(cell, event.job_id, event.attempt)
    if job is None or cell.offers.get(event.job_id) != event.attempt or _is_owned(cell, job):
        return False
    del cell.offers[event.job_id]
    cell.make_owner(job)
    for listener in listeners if not job.suspended else ():
        listener.upgraded(cell, job, now_s)
    return True


@reacts(JobUpgraded)
def tell_agents(cell: Cell, event: JobUpgraded, turn: Turn[Cell]) -> Look:
    """Other guests on its GPUs make room for it, as for any owner. What does not take effect is withdrawn now."""
    job = active(cell, event.job_id, event.attempt)
    if job is not None and turn.changed:
        if not job.suspended:
            beside_guests(cell, job, job.gang, turn)
        for order in class_orders(job) if job.lasts else ():
            turn.emit(order)
    return Look()


def _is_owned(cell: Cell, job: Job) -> bool:
    """Whether any of its GPUs has an owner."""
    return any(owners_on(cell, cell.nodes[task.node_id], i) for task in job.gang for i in task.gpu_indices)


class Offers(Listener):
    """An offer ends with its job, also where nothing says so."""

    hears_of_guests = True

    def ended(self, cell: Cell, job: Job) -> None:
        cell.offers.pop(job.job_id, None)
