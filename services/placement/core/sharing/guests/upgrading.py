"""A guest becomes the owner of its GPUs, when they have none and its tenant has quota for it (AntMan, "job upgrade").

    every GPU of its gang without owner, and kept for no other gang ──> UpgradeOffered: its GPUs are kept for it
        ──JobUpgraded──> an ordinary job; its agents get SetClass, and nothing interrupts it
        ──UpgradeDeclined──> a guest as before; offered again when its tenant uses less quota, or may use more

Offers are made to one job of a tenant at a time, and to the oldest that may have one, so that none overtakes another.
"""

from __future__ import annotations

from operator import attrgetter

from libs.contracts.jobs import JobClass
from libs.contracts.placement import UpgradeOffered
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


def offers(cell: Cell, now_s: float) -> Plan:
    """To the oldest job of each tenant that may become an owner, unless that one has its answer already, or waits."""
    if not cell.guests:
        return
    reserved = _reserved(cell)
    guests = sorted((cell.jobs[job_id] for job_id in cell.guests), key=attrgetter("seq"))
    seen: dict[str, None] = {}
    for job in guests:
        if job.spec.tenant not in seen and (job.offered or _may_be_owner(cell, job, reserved)):
            seen[job.spec.tenant] = None
            if not (job.offered or job.declined):
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
    quota = cell.tenant_quotas.get(job.spec.tenant)
    if not job.stays or job.held or job.spec.job_class is JobClass.OPPORTUNISTIC or (quota or job.width) < job.width:
        return False
    for task in job.gang:
        node = cell.nodes[task.node_id]
        if not node.usable or not node.are_healthy(task.gpu_indices):
            return False
        if any(owners_on(cell, node, i) or (task.node_id, i) in reserved for i in task.gpu_indices):
            return False
    return shortage(cell, [(job, job.gang)]) is None


def _offered(job: Job, now_s: float) -> UpgradeOffered:
    since_s = now_s if job.unowned_since_s is None else job.unowned_since_s
    where = ", ".join(task.node_id for task in job.gang)
    numbers = {"gpus": job.width, "unowned_s": now_s - since_s}
    return UpgradeOffered(
        job_id=job.job_id,
        attempt=job.attempt,
        tenant=job.spec.tenant,
        gpus=job.width,
        since_s=since_s,
        reason=Reason(
            code="NoOwner",
            message=f"no job owns its {counted(job.width, 'GPU')} on {where}, and no gang waits for them",
            numbers=dict(numbers),
        ),
    )


@machine.evolves(UpgradeOffered)
def upgrade_offered(cell: Cell, event: UpgradeOffered, now_s: float) -> None:
    job = cell.jobs[event.job_id]
    job.declined, job.unowned_since_s = False, event.since_s
    cell.keep_for(job, kept=True)


@machine.evolves(UpgradeDeclined)
def upgrade_declined(cell: Cell, event: UpgradeDeclined, now_s: float) -> bool:
    """Whether GPUs were kept until now."""
    job = active(cell, event.job_id, event.attempt)
    if job is None or not job.offered:
        return False
    job.declined = True
    cell.keep_for(job, kept=False)
    return True


@reacts(UpgradeDeclined)
def give_gpus_free(cell: Cell, event: UpgradeDeclined, turn: Turn[Cell]) -> Look | None:
    return Look() if turn.changed else None


@machine.evolves(JobUpgraded)
def job_upgraded(cell: Cell, event: JobUpgraded, now_s: float) -> bool:
    """Whether the job was a guest until now."""
    job = active(cell, event.job_id, event.attempt)
    if job is None or not job.guest:
        return False
    cell.make_owner(job)
    for listener in listeners if not job.suspended else ():
        listener.upgraded(cell, job, now_s)
    return True


@reacts(JobUpgraded)
def tell_agents(cell: Cell, event: JobUpgraded, turn: Turn[Cell]) -> Look | None:
    """Other guests on its GPUs make room for it, as for any owner."""
    job = active(cell, event.job_id, event.attempt)
    if job is None or not turn.changed:
        return None
    if not job.suspended:
        beside_guests(cell, job, job.gang, turn)
    for order in class_orders(job) if job.lasts else ():
        turn.emit(order)
    return Look()


class FreedQuota(Listener):
    """What quota has declined may be asked again when the tenant uses less, or may use more."""

    hears_of_guests = True

    def leaving(self, cell: Cell, job: Job, now_s: float) -> None:
        if not job.guest:
            self.quota_changed(cell, job.spec.tenant)

    def quota_changed(self, cell: Cell, tenant: str) -> None:
        for guest in (cell.jobs[job_id] for job_id in cell.guests):
            if guest.spec.tenant == tenant:
                guest.declined = False
