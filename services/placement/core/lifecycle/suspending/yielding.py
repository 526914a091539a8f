"""An owner gets GPUs on which there are guests: which of them stay beside it, and how the others leave.

The rule is the same for an owner that comes and for a guest that comes (`may_share`): a guest is beside an owner only
where the node gives out shares of its GPUs' time, and where the memory of all is enough, or the node moves what is too
much to the host. There the node itself makes its guests small before the owner's task starts (AntMan, section 3.3).
Everywhere else guests have GPUs without owners alone, and leave when one comes: they stand still on their servers,
with their memory off the GPUs, and go on in their turn. A guest that has not begun, or with memory that cannot be taken
off the GPUs, is preempted.
"""

from __future__ import annotations

from collections.abc import Sequence

from libs.contracts.agent import JobSuspended
from libs.contracts.cluster import TaskPlacement
from libs.contracts.placement import JobPreempted
from libs.contracts.reasons import Reason
from libs.kernel.machine import Turn
from services.placement.core.cell import Cell
from services.placement.core.cluster.nodes import Node
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.plan import Plan, carry_out
from services.placement.core.lifecycle.suspending.deciding import slice_of, suspended
from services.placement.core.lifecycle.suspending.domains import domain_of

SCALES_ALL = "all"
"""Of `NodeJoined.scales_memory`: a guest's memory on a GPU can be made as small as need be."""


def may_share(cell: Cell, node: Node, index: int, guests: Sequence[Job], owners: Sequence[Job]) -> bool:
    """Whether these guests may have seats on the GPU, beside its owners, or with none.

    A job of which it has not been measured how much memory it needs may need all of the GPU's.
    """
    if len(guests) > cell.settings.max_guests:
        return False
    if owners and not (cell.takes_guests and node.scales_compute):
        return False
    if any(owner.job_id in guest.expelled_by for guest in guests for owner in owners):
        return False
    if node.scales_memory == SCALES_ALL or len(guests) + len(owners) == 1:
        return True
    memory = node.gpus[index].memory_bytes
    return sum(job.profile.memory_peak_bytes or memory for job in (*guests, *owners)) <= memory


def owners_on(cell: Cell, node: Node, index: int) -> list[Job]:
    """The jobs that hold the GPU, but for guests that have been offered to."""
    return [job for job in (cell.jobs[job_id] for job_id in node.gpus[index].holders) if not job.guest]


def no_seat(cell: Cell, guest: Job, gang: Sequence[TaskPlacement]) -> str | None:
    """The first GPU on which the job cannot be a guest, as a sentence; None: it can."""
    for task in gang:
        node = cell.nodes.get(task.node_id)
        if node is None or not node.usable:
            return f"node {task.node_id} takes no new job"
        for index in task.gpu_indices:
            if not node.is_healthy(index):
                return f"GPU {node.node_id}:{index} is not healthy"
            guests = [cell.jobs[other] for other in node.gpus[index].guests if other != guest.job_id]
            if not may_share(cell, node, index, [*guests, guest], owners_on(cell, node, index)):
                return f"GPU {node.node_id}:{index} has no seat for it beside the jobs that are there"
    return None


def beside_guests(cell: Cell, owner: Job, gang: Sequence[TaskPlacement], turn: Turn[Cell]) -> list[str]:
    """Have those guests leave these GPUs that cannot stay beside their new owner; returns those that stay."""
    if not any(cell.nodes[task.node_id].guests_on(task.gpu_indices) for task in gang):
        return []
    staying, leaving = _divided(cell, owner, gang)
    for guest in leaving:
        carry_out(cell, given_way(cell, guest, _why(owner), turn.now_s), turn)
    return [guest.job_id for guest in staying]


def _divided(cell: Cell, owner: Job, gang: Sequence[TaskPlacement]) -> tuple[list[Job], list[Job]]:
    """The guests that stay, and those that are to leave; those that came first stay first.

    One that is being stopped is among neither: it leaves anyway, and the owner's tasks wait for that.
    """
    staying: dict[str, Job] = {}
    leaving: dict[str, Job] = {}
    for task in gang:
        node = cell.nodes[task.node_id]
        for index in task.gpu_indices:
            beside: list[Job] = []
            for guest in [cell.jobs[job_id] for job_id in node.gpus[index].guests if job_id != owner.job_id]:
                if not guest.stays:
                    continue
                if may_share(cell, node, index, [*beside, guest], [owner]):
                    beside.append(guest)
                    staying[guest.job_id] = guest
                else:
                    leaving[guest.job_id] = guest
    return [guest for guest in staying.values() if guest.job_id not in leaving], list(leaving.values())


def given_way(cell: Cell, guest: Job, reason: Reason, now_s: float) -> Plan:
    """The decision that the guest leaves its GPUs."""
    if _has_begun(guest):
        domain = domain_of(cell, guest)
        yield suspended(cell, domain, [guest], ends_s=max(slice_of(cell, domain).ends_s, now_s), reason=reason)
    else:
        yield JobPreempted(job_id=guest.job_id, attempt=guest.attempt, reason=reason)


def stays_in_the_way(cell: Cell, event: JobSuspended) -> Plan:
    """The decision to end a guest that stands still with memory that its node could not take off its GPUs."""
    job = cell.jobs.get(event.job_id)
    if job is None or not (job.guest and job.suspended and job.lasts) or job.held or event.parked:
        return
    note = f": {event.note}" if event.note else ""
    message = f"its memory could not be taken off the GPUs of {event.node_id}{note}"
    yield JobPreempted(job_id=job.job_id, attempt=job.attempt, reason=Reason(code="NotParked", message=message))


def too_slow(cell: Cell, now_s: float) -> Plan:
    """The decisions to end guests that were to have left their GPUs by now."""
    for guest in filter(_is_leaving, cell.guests_that_stand_still()):
        if now_s >= guest.since_s + cell.settings.yield_s:
            message = f"it was to have left its GPUs within {cell.settings.yield_s:g} s"
            reason = Reason(code="TooSlow", message=message, numbers={"yield_s": cell.settings.yield_s})
            yield JobPreempted(job_id=guest.job_id, attempt=guest.attempt, reason=reason)


def next_limit_s(cell: Cell) -> float | None:
    """When patience with the first guest that is leaving its GPUs ends."""
    leaving = filter(_is_leaving, cell.guests_that_stand_still())
    return min((job.since_s + cell.settings.yield_s for job in leaving), default=None)


def _is_leaving(guest: Job) -> bool:
    """Whether not all tasks of a guest stand still that has been told to."""
    return guest.lasts and any(node not in guest.tasks.still for node in guest.live_nodes())


def _has_begun(guest: Job) -> bool:
    return all(task.node_id in guest.tasks.started for task in guest.gang)


def _why(owner: Job) -> Reason:
    return Reason(code="OwnerCame", message=f"{owner.job_id} is the owner of its GPUs from now on")
