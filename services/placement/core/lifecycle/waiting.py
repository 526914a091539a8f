"""Why a queued job is not placed now, and why a suspended one does not go on, in numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from libs.contracts.cluster import TaskPlacement
from libs.contracts.reasons import Number, PendingReason, Reason, Rejected
from libs.kernel.words import counted, plural
from services.placement.core.cell import Cell
from services.placement.core.cluster import gangs
from services.placement.core.cluster.nodes import Node
from services.placement.core.cluster.servers import Servers
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.placing import told
from services.placement.core.lifecycle.plan import Plan
from services.placement.core.lifecycle.reservations import before, kept
from services.placement.core.lifecycle.suspending.returning import may_return, place_again, type_of


def told_why(cell: Cell, job: Job, open_servers: Servers, fit: gangs.Fit | None, now_s: float) -> Plan:
    """The decision to tell the job why it waits, if that is another cause than before.

    Args:
        open_servers: usable servers that are not reserved for a job that goes first.
        fit: a place that was found but is not accepted yet, or None.
    """
    # The cause first: at most events it is the one before, and the numbers of all servers are not asked for.
    if cause_to_wait(cell, job, open_servers, fit) != job.wait_code:
        yield from told(job, reason_to_wait(cell, job, open_servers, fit, now_s))


def cause_to_wait(cell: Cell, job: Job, open_servers: Servers, fit: gangs.Fit | None) -> str:
    """The first cause that holds, in the order of `PendingReason`; arguments as for `told_why`."""
    request = job.spec.gpus
    if fit is not None:
        return PendingReason.LOCALITY_RELAXING
    if gangs.capacity(request, cell.servers()) < request.count:
        return PendingReason.HEALTHY_GPUS_MISSING
    if cell.reservations and gangs.best_fit(request, cell.servers()) is not None:
        return PendingReason.FAIR_SHARE
    if gangs.free_gpus(request, open_servers) < request.count:
        return PendingReason.INSUFFICIENT_GPUS
    return PendingReason.GANG_FRAGMENTED


def reason_to_wait(cell: Cell, job: Job, open_servers: Servers, fit: gangs.Fit | None, now_s: float) -> Reason:
    """The cause with what was compared; arguments as for `told_why`."""
    request, usable = job.spec.gpus, cell.servers()
    free, wanted = gangs.free_gpus(request, open_servers), request.count
    numbers: dict[str, Number] = {"gpus": wanted, "free_gpus": free}
    cause = cause_to_wait(cell, job, open_servers, fit)
    if fit is not None:
        return _relaxing(cell, job, fit, numbers, now_s)
    if cause == PendingReason.HEALTHY_GPUS_MISSING:
        healthy = gangs.capacity(request, usable)
        found = f"{counted(healthy, 'is', 'are')} on nodes that are up, healthy and not draining"
        message = f"needs {counted(wanted, 'GPU')} of one type; {found}"
        return Reason(code=cause, message=message, numbers={**numbers, "healthy_gpus": healthy})
    if cause == PendingReason.FAIR_SHARE:
        message = f"the GPUs that it could use are kept for {_holders(cell, job)}"
        with_reserved = gangs.free_gpus(request, usable)
        return Reason(code=cause, message=message, numbers={**numbers, "free_gpus_with_reserved": with_reserved})
    if cause == PendingReason.INSUFFICIENT_GPUS:
        message = f"needs {counted(wanted, 'GPU')}; {counted(free, 'is', 'are')} free"
    else:
        within = f" on at most {counted(request.max_nodes, 'node')}" if request.max_nodes is not None else ""
        message = f"needs {counted(wanted, 'GPU')}{within}; {counted(free, 'is', 'are')} free, but on more"
    return Reason(code=cause, message=message, numbers=numbers, rejected=_rejected(job, open_servers))


def told_why_it_stands_still(cell: Cell, job: Job, free: Mapping[str, Sequence[int]]) -> Plan:
    """The decision to tell a suspended job why it does not go on, if that is another cause than before.

    Args:
        free: {server: GPUs of those where it was that it might have}, not enough for it.
    """
    places = [(cell.nodes[task.node_id], task) for task in job.gang]
    gpus, here = job.width, sum(map(len, free.values()))
    cause, found = PendingReason.INSUFFICIENT_GPUS, f"{counted(here, 'is', 'are')} free"
    if not all(may_return(node, task) for node, task in places):
        cause, found = PendingReason.HEALTHY_GPUS_MISSING, "not all of them are up, healthy and not draining"
    elif place_again(cell.nodes, job, {node.node_id: node.free(type_of(node, task)) for node, task in places}):
        cause, found = PendingReason.FAIR_SHARE, f"they are kept for {_holders(cell, job)}"
    wanted = " and ".join(_wanted(node, task) for node, task in places)
    message = f"goes on where its memory is parked, and needs {wanted}; {found}"
    yield from told(job, Reason(code=cause, message=message, numbers={"gpus": gpus, "free_gpus": here}))


def _wanted(node: Node, task: TaskPlacement) -> str:
    """What the task needs to go on."""
    count = len(task.gpu_indices)
    if node.remaps:
        return f"{counted(count, 'GPU')} of {node.node_id}"
    return f"{plural(count, 'GPU')} {', '.join(map(str, task.gpu_indices))} of {node.node_id}"


def behind_others(job: Job) -> Reason:
    """For a job that is not the first of its shape: it is looked at when those before it are placed.

    How many these are changes with every job that starts, and is not said each time: its place in the queue tells it.
    """
    return Reason(
        code=PendingReason.FAIR_SHARE,
        message="behind other jobs with the same needs",
        numbers={"gpus": job.spec.gpus.count},
    )


def _holders(cell: Cell, job: Job) -> str:
    """Gangs that go before the job and have GPUs kept for them, at most five, and where these are."""
    listed = [(other.job_id, kept(cell, other)) for other in before(cell, job)]
    having = [(job_id, ", ".join(node for node, gpus in nodes.items() if gpus)) for job_id, nodes in listed]
    named = [f"{job_id} (on {where})" for job_id, where in having if where]
    more = f" and {counted(len(named) - 5, 'other')}" if len(named) > 5 else ""
    return f"{', '.join(named[:5])}{more}, which {plural(len(named), 'goes', 'go')} first"


def _relaxing(cell: Cell, job: Job, fit: gangs.Fit, numbers: dict[str, Number], now_s: float) -> Reason:
    left_s = max(0.0, job.queued_since_s + cell.settings.locality_relax_s - now_s)
    return Reason(
        code=PendingReason.LOCALITY_RELAXING,
        message=f"fits on {counted(fit.nodes, 'node')} now; waits {left_s:.0f} s more for fewer",
        numbers={**numbers, "nodes_now": fit.nodes, "relaxes_in_s": left_s},
    )


def _rejected(job: Job, servers: Servers) -> list[Rejected]:
    """The nodes that came closest, at most five."""
    closest = servers.closest(gangs.accepted_types(job.spec.gpus, servers), 5)
    return [Rejected(what=node_id, code="TooFewFree", numbers={"free_gpus": n}) for n, node_id in closest]
