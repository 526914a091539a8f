"""Why a queued job is not placed now, and why a suspended one does not go on, in numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from libs.contracts.cluster import TaskPlacement
from libs.contracts.features import described, missing
from libs.contracts.reasons import Number, PendingReason, Reason, Rejected
from libs.kernel.beside import beside, beside_them, on_nodes_with
from libs.kernel.words import bytes_of, counted, plural
from libs.policies.table import POLICIES
from services.placement.core.cell import Cell
from services.placement.core.cluster import gangs
from services.placement.core.cluster.features import has
from services.placement.core.cluster.hosts import Amount, Limited, total_of
from services.placement.core.cluster.nodes import Node
from services.placement.core.cluster.servers import Servers
from services.placement.core.jobs import Job
from services.placement.core.lifecycle import pools
from services.placement.core.lifecycle.placing import ALONE, InLine, behind_in, told, wait_code
from services.placement.core.lifecycle.plan import Plan
from services.placement.core.lifecycle.reservations import before, kept, width_kept
from services.placement.core.lifecycle.suspending.returning import may_return, place_again, type_of
from services.placement.core.promises import (
    asked_by,
    limited_to,
    needed_by,
    open_to,
    promised,
    shortage,
)


def told_why(cell: Cell, job: Job, open_servers: Servers, fit: gangs.Fit | None, now_s: float, line: str = "") -> Plan:
    """The decision to tell the job why it waits, if that is another cause than before.

    Args:
        open_servers: usable servers that are not reserved for a job that goes first.
        fit: a place that was found but is not accepted yet, or None.
        line: which it leads; empty: it stands in none.
    """
    # The cause first: at most events it is the one before, and the numbers of all servers are not asked for.
    cause = cause_to_wait(cell, job, open_servers, fit)
    behind = _first_ahead(cell, job) if cause == PendingReason.BEHIND else ""
    place = InLine(line=line, leads=bool(line), behind=behind)
    if wait_code(cause, place) != job.wait_code:
        yield from told(job, reason_to_wait(cell, job, open_servers, fit, now_s), place)


def told_that_it_waits(job: Job, reason: Reason, line: str) -> Plan:
    """The decision to tell a job that leads its line why it takes no place that it could have, if that is new."""
    yield from told(job, reason, InLine(line=line, leads=True))


def cause_to_wait(cell: Cell, job: Job, open_servers: Servers, fit: gangs.Fit | None) -> str:
    """The first cause that holds, in the order of `PendingReason`; arguments as for `told_why`."""
    request, usable = job.spec.gpus, open_to(cell, job)
    if fit is not None:
        return _acquires(cell, job) or PendingReason.LOCALITY_RELAXING
    if gangs.capacity(request, usable) < request.count:
        return PendingReason.FEATURE_MISSING if _lacks_features(cell, job) else PendingReason.HEALTHY_GPUS_MISSING
    if cell.reservations and gangs.best_fit(request, usable) is not None:
        return PendingReason.BEHIND
    if isinstance(open_servers, Limited) and gangs.best_fit(request, open_servers.whole) is not None:
        return _missing_beside(cell, job, open_servers.whole)
    if gangs.free_gpus(request, open_servers) < request.count:
        return PendingReason.INSUFFICIENT_GPUS
    return _acquires(cell, job) or PendingReason.GANG_FRAGMENTED


def moments(cell: Cell) -> Iterator[float]:
    """When those gangs accept more servers that were told last that they wait for fewer, in seconds since the epoch.

    They follow from what is on the log and from the settings of now: a restart finds them again, whichever order the
    policy looks at jobs in.
    """
    for by_cause in cell.told.values():
        for job_id in by_cause.get(PendingReason.LOCALITY_RELAXING, ()):
            if (until_s := _relaxed_s(cell, cell.jobs[job_id])) is not None:
                yield until_s


def _relaxed_s(cell: Cell, job: Job) -> float | None:
    """When the gang accepts more servers than now; None: it does after more tries, and no time is set for these."""
    if not POLICIES[cell.policy].acquires:
        return job.queued_since_s + cell.settings.locality_relax_s
    limit_s = cell.settings.wait_for_locality_s
    return job.queued_since_s + limit_s if limit_s > 0 else None


def _acquires(cell: Cell, job: Job) -> str:
    """That it acquires GPUs, or waits to try again; empty: neither."""
    reservation = cell.reservations.get(job.job_id)
    if reservation is not None:
        return PendingReason.GANG_ACQUIRING if reservation.try_number else ""
    made = cell.acquiring.get(job.job_id)
    return PendingReason.ACQUIRE_BACKOFF if made is not None and cell.looked_s < made.retry_s else ""


def reason_to_wait(cell: Cell, job: Job, open_servers: Servers, fit: gangs.Fit | None, now_s: float) -> Reason:
    """The cause with what was compared; arguments as for `told_why`."""
    request, usable = job.spec.gpus, open_to(cell, job)
    free, wanted = gangs.free_gpus(request, open_servers), request.count
    numbers: dict[str, Number] = {"gpus": wanted, "free_gpus": free}
    cause = cause_to_wait(cell, job, open_servers, fit)
    if cause in (PendingReason.GANG_ACQUIRING, PendingReason.ACQUIRE_BACKOFF):
        return _acquiring(cell, job, cause, numbers)
    if fit is not None:
        return _relaxing(cell, job, fit, numbers, now_s)
    if cause == PendingReason.HEALTHY_GPUS_MISSING:
        return _missing_healthy(cell, job, numbers)
    if cause == PendingReason.FEATURE_MISSING:
        return _lacking(cell, job, numbers)
    if cause == PendingReason.BEHIND:
        message = f"the GPUs that it could use are kept for {_holders(cell, job)}"
        with_reserved = gangs.free_gpus(request, usable)
        return Reason(code=cause, message=message, numbers={**numbers, "free_gpus_with_reserved": with_reserved})
    if cause in (PendingReason.INSUFFICIENT_CPUS, PendingReason.INSUFFICIENT_MEMORY):
        return beside_free_gpus(cell, job, open_servers, cause, numbers)
    needs, found = _needs(job), f"{counted(free, 'is', 'are')} free"
    if cause == PendingReason.INSUFFICIENT_GPUS:
        message = f"{needs}; {found}"
    else:
        within = f" on at most {counted(request.max_nodes, 'node')}" if request.max_nodes is not None else ""
        message = f"{needs}{within}; {found}, but on more"
    return Reason(code=cause, message=message, numbers=numbers, rejected=_rejected(job, open_servers))


def _missing_healthy(cell: Cell, job: Job, numbers: dict[str, Number]) -> Reason:
    healthy = gangs.capacity(job.spec.gpus, open_to(cell, job))
    found = f"{counted(healthy, 'is', 'are')} on nodes that are up, healthy and not draining"
    return Reason(
        code=PendingReason.HEALTHY_GPUS_MISSING,
        message=f"{_needs(job, ' of one type')}; {found}",
        numbers={**numbers, "healthy_gpus": healthy},
    )


def _needs(job: Job, which: str = "") -> str:
    """Its GPUs, and what it needs with them."""
    where = f"{pools.words(job)}{on_nodes_with(job.spec)}"
    return f"needs {counted(job.spec.gpus.count, 'GPU')}{which}{beside(job.spec)}{where}"


def why_no_server(cell: Cell, job: Job) -> Reason | None:
    """Why the job could not be placed were all usable servers empty: they have too few GPUs, or not what else it needs.

    None: that is not what it waits for.
    """
    if gangs.capacity(job.spec.gpus, open_to(cell, job)) >= job.spec.gpus.count:
        return None
    numbers: dict[str, Number] = {"gpus": job.spec.gpus.count}
    return _lacking(cell, job, numbers) if _lacks_features(cell, job) else _missing_healthy(cell, job, numbers)


def _lacks_features(cell: Cell, job: Job) -> bool:
    """Whether the job would fit on all usable servers were they empty, and does not on those with its features."""
    request = job.spec.gpus
    if not job.needs or gangs.capacity(request, open_to(cell, job)) >= request.count:
        return False
    return gangs.capacity(request, open_to(cell, job, cell.servers())) >= request.count


def _lacking(cell: Cell, job: Job, numbers: dict[str, Number]) -> Reason:
    """What is missing, and where: at most five servers."""
    needs, healthy = job.needs, gangs.capacity(job.spec.gpus, open_to(cell, job))
    found = f"{counted(healthy, 'GPU')} of one type{beside_them(job.spec)}"
    lacks = {
        node.node_id: missing(needs, node.features, node.node_id)
        for node in cell.nodes.values()
        if node.usable and not has(node, needs)
    }
    return Reason(
        code=PendingReason.FEATURE_MISSING,
        message=f"needs {described(needs)}; usable nodes that have this have {found}",
        numbers={**numbers, "healthy_gpus": healthy},
        rejected=[
            Rejected(what=node_id, code="Lacks", numbers={"needs": described(features)})
            for node_id, features in list(lacks.items())[:5]
        ],
    )


def _missing_beside(cell: Cell, job: Job, servers: Servers) -> str:
    """Which of both there is too little of, where GPUs are free for the job: CPUs, if it would fit without them."""
    with_memory = limited_to(cell, servers, Amount(0, needed_by(job).memory_bytes))
    lacks_memory = gangs.best_fit(job.spec.gpus, with_memory) is None
    return PendingReason.INSUFFICIENT_MEMORY if lacks_memory else PendingReason.INSUFFICIENT_CPUS


def beside_free_gpus(cell: Cell, job: Job, servers: Servers, cause: str, numbers: dict[str, Number]) -> Reason:
    """There are GPUs for the job, and too few CPUs or too little memory beside them.

    With what is left of the servers with most free GPUs, at most five.
    """
    whole = servers.whole if isinstance(servers, Limited) else servers
    closest = whole.closest(gangs.accepted_types(job.spec.gpus, whole), 5)
    left = {node_id: total_of(cell.nodes[node_id]).minus(promised(cell, node_id)) for _, node_id in closest}
    count, asked = job.spec.gpus.count, asked_by(job.spec)
    if cause == PendingReason.INSUFFICIENT_CPUS:
        code, wanted = "TooFewCpus", counted(count * asked.cpus, "CPU")
        has = {node_id: str(max(0, amount.cpus)) for node_id, amount in left.items()}
    else:
        code, wanted = "TooLittleMemory", f"{bytes_of(count * asked.memory_bytes)} of memory"
        has = {node_id: bytes_of(max(0, amount.memory_bytes)) for node_id, amount in left.items()}
    are = "GPUs are free" if gangs.best_fit(job.spec.gpus, whole) is not None else "GPUs come in turns"
    found = ", ".join(f"{node_id} has {amount}" for node_id, amount in has.items())
    message = f"{_needs(job)}; {are}, but not {wanted} beside them: {found}"
    rejected = [
        Rejected(
            what=node_id,
            code=code,
            numbers={
                "free_gpus": gpus,
                "free_cpus": max(0, left[node_id].cpus),
                "free_memory_bytes": max(0, left[node_id].memory_bytes),
            },
        )
        for gpus, node_id in closest
    ]
    numbers = {**numbers, "cpus_per_gpu": asked.cpus, "memory_bytes_per_gpu": asked.memory_bytes}
    return Reason(code=cause, message=message, numbers=numbers, rejected=rejected)


def told_why_it_stands_still(cell: Cell, job: Job, free: Mapping[str, Sequence[int]], place: InLine = ALONE) -> Plan:
    """The decision to tell a suspended job why it does not go on, if that is another cause than before.

    Args:
        free: {server: GPUs of those where it was that it might have}, not enough for it.
        place: where it stands.
    """
    places = [(cell.nodes[task.node_id], task) for task in job.gang]
    gpus, here = job.width, sum(map(len, free.values()))
    cause, found = PendingReason.INSUFFICIENT_GPUS, f"{counted(here, 'is', 'are')} free"
    if not all(may_return(node, task) for node, task in places):
        cause, found = PendingReason.HEALTHY_GPUS_MISSING, "not all of them are up, healthy and not draining"
    elif gang := place_again(cell.nodes, job, {node.node_id: node.free(type_of(node, task)) for node, task in places}):
        short = shortage(cell, [(job, gang)])
        if short is not None:
            yield from told(job, _stands_still_for_cpus(job, short), place)
            return
        cause, found = PendingReason.BEHIND, f"they are kept for {_holders(cell, job)}"
        place = place._replace(behind=_first_ahead(cell, job))
    wanted = " and ".join(_wanted(node, task) for node, task in places)
    message = f"goes on where its memory is parked, and needs {wanted}; {found}"
    yield from told(job, Reason(code=cause, message=message, numbers={"gpus": gpus, "free_gpus": here}), place)


def _stands_still_for_cpus(job: Job, short: str) -> Reason:
    message = f"goes on where its memory is parked, where GPUs are free, and needs them{beside(job.spec)}: {short}"
    return Reason(code=PendingReason.INSUFFICIENT_CPUS, message=message, numbers={"cpus_per_gpu": job.spec.cpus or 0})


def _wanted(node: Node, task: TaskPlacement) -> str:
    """What the task needs to go on."""
    count = len(task.gpu_indices)
    if node.remaps:
        return f"{counted(count, 'GPU')} of {node.node_id}"
    return f"{plural(count, 'GPU')} {', '.join(map(str, task.gpu_indices))} of {node.node_id}"


def told_behind(job: Job, first: Job, line: str) -> Plan:
    """The decision to tell a job that another one of its line goes first: it is looked at when that one is placed.

    Which one that is changes with every job that starts, and is not said each time: the line tells it.
    """
    reason = Reason(
        code=PendingReason.BEHIND,
        message=f"behind {first.job_id}, which goes first, and others that come before it",
        numbers={"gpus": job.spec.gpus.count},
    )
    yield from told(job, reason, InLine(line=line, behind=first.job_id))


def _ahead(cell: Cell, job: Job) -> dict[str, list[str]]:
    """{gang that goes before the job: servers on which GPUs are kept for it now}, in queue order."""
    listed = {other.job_id: kept(cell, other) for other in before(cell, job)}
    having = {job_id: [node for node, gpus in nodes.items() if gpus] for job_id, nodes in listed.items()}
    return {job_id: nodes for job_id, nodes in having.items() if nodes}


def _first_ahead(cell: Cell, job: Job) -> str:
    """The gang that the job is behind: the one that it was told, as long as GPUs are kept for that, else the first."""
    ahead = _ahead(cell, job)
    named = next((job_id for job_id in ahead if behind_in(job.wait_code) == job_id), "")
    return named or next(iter(ahead), "")


def _holders(cell: Cell, job: Job) -> str:
    """Gangs that go before the job and have GPUs kept for them, at most five, and where these are."""
    named = [f"{job_id} (on {', '.join(nodes)})" for job_id, nodes in _ahead(cell, job).items()]
    more = f" and {counted(len(named) - 5, 'other')}" if len(named) > 5 else ""
    return f"{', '.join(named[:5])}{more}, which {plural(len(named), 'goes', 'go')} first"


def _acquiring(cell: Cell, job: Job, cause: str, numbers: dict[str, Number]) -> Reason:
    """How far its tries are; GangReserved and GangReleased say the rest."""
    if cause == PendingReason.ACQUIRE_BACKOFF:
        tries = cell.acquiring[job.job_id]
        message = f"has given back what it had acquired after try {tries.tries}, and tries again"
        return Reason(code=cause, message=message, numbers={**numbers, "tries": tries.tries, "retry_s": tries.retry_s})
    reservation = cell.reservations[job.job_id]
    where, held = ", ".join(reservation.parts), width_kept(cell, reservation)
    message = f"{_needs(job)} close together, and acquires them on {where} as they become free: {held} of them now"
    ends: dict[str, Number] = {"until_s": reservation.until_s} if reservation.until_s is not None else {}
    return Reason(code=cause, message=message, numbers={**numbers, "held": held, "try": reservation.try_number, **ends})


def _relaxing(cell: Cell, job: Job, fit: gangs.Fit, numbers: dict[str, Number], now_s: float) -> Reason:
    found, until_s = f"fits on {counted(fit.nodes, 'node')} now", _relaxed_s(cell, job)
    numbers = {**numbers, "nodes_now": fit.nodes}
    if POLICIES[cell.policy].acquires or until_s is None:
        message = f"{found}; accepts more nodes after more tries to acquire GPUs"
        return Reason(code=PendingReason.LOCALITY_RELAXING, message=message, numbers=numbers)
    left_s = max(0.0, until_s - now_s)
    return Reason(
        code=PendingReason.LOCALITY_RELAXING,
        message=f"{found}; waits {left_s:.0f} s more for fewer",
        numbers={**numbers, "relaxes_in_s": left_s, "until_s": until_s},
    )


def _rejected(job: Job, servers: Servers) -> list[Rejected]:
    """The nodes that came closest, at most five."""
    closest = servers.closest(gangs.accepted_types(job.spec.gpus, servers), 5)
    return [Rejected(what=node_id, code="TooFewFree", numbers={"free_gpus": n}) for n, node_id in closest]
