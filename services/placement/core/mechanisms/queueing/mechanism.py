"""The pass over the queue: which jobs are placed now, and what the others are told."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from itertools import islice

from msgspec.structs import replace

from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.placement import GangReserved, JobPlaced
from libs.contracts.reasons import Number, Reason
from libs.kernel.beside import beside
from libs.policies.policy import Kind
from libs.policies.queueing.policy import QueuePolicy
from libs.policies.queueing.table import QUEUE_POLICIES
from services.placement.core.cell import Cell, Reservation
from services.placement.core.cluster import gangs
from services.placement.core.cluster.servers import Servers
from services.placement.core.jobs import Job, Phase
from services.placement.core.lifecycle import waiting
from services.placement.core.lifecycle.placing import placed
from services.placement.core.lifecycle.plan import Plan
from services.placement.core.lifecycle.queue import HeadsInOrder, TenantsInTurn, place_of
from services.placement.core.lifecycle.reservations import (
    before,
    free_where_it_was,
    in_order,
    overbooked,
    released,
    reservation_of,
    servers_besides,
    servers_open_to,
    width_kept,
)
from services.placement.core.lifecycle.suspending.deciding import resumed
from services.placement.core.lifecycle.suspending.domains import takes_part
from services.placement.core.lifecycle.suspending.returning import place_again
from services.placement.core.mechanism import Mechanism, Moment
from services.placement.core.mechanisms.queueing import acquiring
from services.placement.core.mechanisms.queueing.lines import Lines
from services.placement.core.mechanisms.queueing.suspended import (
    in_order_of_queue,
    waiting_to_return,
    where_it_was,
    why_back,
)
from services.placement.core.mechanisms.queueing.weighing import Weighed, Weighing
from services.placement.core.promises import open_to


class QueueingMechanism(Mechanism):
    """A job that has been given GPUs keeps them to its end; the others are placed in order, where they fit.

    A job that is suspended, because it was paused or took turns before, stands in the same order: it goes on in its
    turn, on its servers.
    """

    kind = Kind.ORDER
    brings_back = True

    def step(self, cell: Cell, moment: Moment) -> Plan:
        """Place every queued job that the policy lets start now; tell the others why they wait."""
        policy, now_s = QUEUE_POLICIES[cell.policy], moment.now_s
        # 1. First what is kept in vain is given up, because what these nodes still have is free for others.
        yield from _unneeded_released(cell)
        yield from _overbooked_released(cell)
        if policy.acquires:
            yield from acquiring.given_back(cell, now_s)
        # 2. Then in queue order, so that each job is offered what those before it have left, and nothing is kept from a
        #    job for one behind it. When a job is refused, others of its shape are looked at for reservations alone.
        lines, weighing = Lines(cell, policy), Weighing(cell, now_s)
        heads, jobs = _walk(cell, policy)
        for job in jobs:
            if not lines.may_pass(job):
                continue
            given, weighed = False, None
            if job.suspended:
                given = yield from _brought_back(cell, job, lines, now_s)
            elif lines.is_worth_a_look(job):
                given, weighed = yield from _started(cell, job, policy, lines, weighing, now_s)
            if given:
                continue
            if lines.is_over:
                break
            yield from _reserved_if_due(cell, job, policy, now_s, weighed)
            if not job.suspended and (weighed is not None or acquiring.goes_on_after(cell, job, now_s)):
                heads.go_on()
        # 3. Last what the jobs are told that still wait, as it is true only now.
        yield from lines.told(now_s)

    def moments(self, cell: Cell) -> Iterator[float]:
        """When a gang accepts more servers, and when the next of its shape has waited long enough for a reservation."""
        policy = QUEUE_POLICIES[cell.policy]
        # What was refused, and not what is first in some order: the walk may have gone by another one.
        yield from waiting.moments(cell)
        if policy.acquires:
            yield from acquiring.moments(cell)
        for orders in cell.queue.values() if not policy.acquires else ():
            yield from _patience(cell, policy, orders)
        if policy.reservations and not policy.reserves_at_once:
            for job in waiting_to_return(cell):
                if (job.width > 1 or job.spec.is_host_bound) and job.job_id not in cell.reservations:
                    yield job.queued_since_s + cell.settings.reserve_after_s

    def wind_down(self, cell: Cell, in_force: Mechanism, moment: Moment) -> Plan:
        """Reserved GPUs, which nothing else would release."""
        for reservation in in_order(cell) if cell.reservations else ():
            reason = Reason(code="PolicyChanged", message=f"{cell.policy} reserves nothing")
            yield from released(cell, reservation.job_id, reason)

    def unqueued(self, cell: Cell, job: Job, code: str) -> Plan:
        """Others may use what was kept for the job."""
        yield from released(cell, job.job_id, Reason(code=code, message="the gang does not wait any more"))


def _brought_back(cell: Cell, job: Job, lines: Lines, now_s: float) -> Generator[Event, None, bool]:
    """Let a suspended job go on where it was, or tell it why it stands still; returns whether it goes on."""
    free = free_where_it_was(cell, job)
    gang = place_again(cell.nodes, job, free)
    if gang is None:
        yield from waiting.told_why_it_stands_still(cell, job, free, lines.place_of_suspended(job))
        lines.block(job)
        return False
    yield from _given(cell, job, gang, resumed(cell, job, gang, [], ends_s=now_s, reason=why_back(job)))
    lines.given += 1
    return True


def _started(
    cell: Cell, job: Job, policy: QueuePolicy, lines: Lines, weighing: Weighing, now_s: float
) -> Generator[Event, None, tuple[bool, Weighed | None]]:
    """Place a queued job where it fits and that is good enough.

    Returns:
        Whether it is placed; and the better place that it waits for instead, if there is one.
    """
    servers = servers_open_to(cell, job)
    fit = _place_for(cell, job, policy, servers)
    found = weighing.of(job, fit, servers) if policy.acquires else None
    weighed = found if found is not None and found.pays else None
    if fit is None or weighed is not None or not (policy.acquires or _accepts(cell, job, fit, now_s)):
        lines.refuse(job, servers, fit, weighed)
        lines.block(job)
        return False, weighed
    yield from _given(cell, job, fit.gang, _placed(cell, job, fit, lines, now_s, found))
    lines.given += 1
    return True, None


def _patience(cell: Cell, policy: QueuePolicy, orders: list[tuple[int, int, str]]) -> Iterator[float]:
    """When the first job of a shape accepts more servers, and when the next one has waited for a reservation."""
    job = cell.jobs[orders[0][2]]
    if job.spec.gpus.count > 1 or job.spec.is_host_bound:
        # Also where it was told that it waits for something else: a timer too many costs one pass.
        yield job.queued_since_s + cell.settings.locality_relax_s
        if policy.reservations and not policy.reserves_at_once:
            rest = (cell.jobs[job_id] for _, _, job_id in orders if job_id not in cell.reservations)
            yield from (each.queued_since_s + cell.settings.reserve_after_s for each in islice(rest, 1))


def _place_for(cell: Cell, job: Job, policy: QueuePolicy, servers: Servers) -> gangs.Fit | None:
    return acquiring.fit_of(cell, job, servers) if policy.acquires else gangs.best_fit(job.spec.gpus, servers)


def _placed(cell: Cell, job: Job, fit: gangs.Fit, lines: Lines, now_s: float, weighed: Weighed | None) -> JobPlaced:
    """The decision; where gangs acquire GPUs, with what it means for those that are passed."""
    why = acquiring.why_here(cell, job, fit, weighed) if lines.acquires else None
    decision = placed(job, fit.gang, why or _why_here(job, fit, now_s))
    if not lines.acquires or not lines.refused:
        return decision
    passed = next(iter(lines.refused.values())).job.job_id
    return replace(decision, passed=passed, delays=acquiring.delayed_by(cell, fit, lines.refused.values()))


def _accepts(cell: Cell, job: Job, fit: gangs.Fit, now_s: float) -> bool:
    """Whether the place is good enough: the fewest servers possible, or the job has waited for better."""
    if fit.nodes == 1 or now_s >= job.queued_since_s + cell.settings.locality_relax_s:
        return True
    ideal = gangs.fewest_servers(job.spec.gpus, open_to(cell, job))
    return ideal is None or fit.nodes <= ideal


def _given(cell: Cell, job: Job, gang: list[TaskPlacement], decision: Event) -> Plan:
    """Let the gang start, or go on; a gang behind it that loses GPUs by that looks for others in its turn."""
    nodes = [task.node_id for task in gang]
    place = place_of(cell, job)
    behind = [other for other in in_order(cell) if place_of(cell, cell.jobs[other.job_id]) > place]
    near = [(other, width_kept(cell, other)) for other in behind if any(node_id in other.parts for node_id in nodes)]
    yield from released(cell, job.job_id, Reason(code="Placed", message="the gang starts"))
    yield decision
    for other, had in near:
        if width_kept(cell, other) < had:
            message = f"{job.job_id} goes first, and starts on GPUs that were kept for it"
            yield from released(cell, other.job_id, Reason(code="Outranked", message=message))


def _why_here(job: Job, fit: gangs.Fit, now_s: float) -> Reason:
    where = ", ".join(task.node_id for task in fit.gang)
    numbers: dict[str, Number] = {
        "gpus": job.spec.gpus.count,
        "nodes": fit.nodes,
        "racks": fit.racks,
        "waited_s": now_s - job.queued_since_s,
    }
    return Reason(
        code="FewestServers",
        message=f"{job.spec.gpus.count} free {fit.gpu_type}{beside(job.spec)} on {where}: "
        "the fewest servers that can take the gang",
        numbers=numbers,
    )


def _walk(cell: Cell, policy: QueuePolicy) -> tuple[HeadsInOrder | TenantsInTurn, Iterable[Job]]:
    """What is walked over, and so in which order."""
    returning = waiting_to_return(cell)
    if policy.by_quota:
        tenants = TenantsInTurn(cell, returning)
        return tenants, tenants
    heads = HeadsInOrder(cell)
    return heads, in_order_of_queue(heads, returning)


def _reserved_if_due(cell: Cell, job: Job, policy: QueuePolicy, now_s: float, weighed: Weighed | None) -> Plan:
    """Keep GPUs for a gang that does not fit, at once or when it has waited long enough, as the policy says.

    A job on one GPU needs none: it is offered every GPU that becomes free before those that are behind it. It does need
    one where it asks for CPUs or memory, which may become free piece by piece as GPUs do. At most so many gangs have
    one, the first of the queue that have waited long enough.
    """
    most = policy.reservations
    alone = job.width == 1 and not job.spec.is_host_bound
    if job.job_id in cell.reservations or alone or not _is_due(cell, job, policy, now_s):
        return
    first, place = before(cell, job), weighed.place if weighed is not None else None
    if len(first) >= most:
        return
    # One that waits for a place has its GPUs kept there.
    chosen = place.collection(job.width) if place is not None else _to_collect(cell, job, policy, first)
    if chosen is None:
        return
    reserved = GangReserved(
        job_id=job.job_id,
        attempt=job.attempt,
        node_ids=[part.node_id for part in chosen.parts],
        gpus_held=sum(len(part.kept) for part in chosen.parts),
        reason=_why_reserved(cell, job, policy, chosen, now_s),
        gpu_type=chosen.gpu_type,
        parts=chosen.parts,
        gpus_missing=sum(part.gpus - len(part.kept) for part in chosen.parts),
    )
    if policy.acquires and not job.suspended:
        reserved = acquiring.as_a_try(cell, job, reserved, place.in_s if place is not None else None, now_s)
    # What is in the way ends before: at no time is more reserved of a node than it has.
    outranked = Reason(code="Outranked", message=f"{job.job_id} goes first, and is to have GPUs that were kept for it")
    fulfilled = [*first, reservation_of(reserved)]
    for other in in_order(cell)[len(first) :]:
        if len(fulfilled) == most or overbooked(cell, [*fulfilled, other]):
            yield from released(cell, other.job_id, outranked)
        else:
            fulfilled.append(other)
    yield reserved


def _is_due(cell: Cell, job: Job, policy: QueuePolicy, now_s: float) -> bool:
    """Whether the job has waited for long enough; a suspended one makes no tries, because it goes on where it was."""
    if policy.acquires and not job.suspended:
        return acquiring.is_due(cell, job, now_s)
    return policy.reserves_at_once or now_s >= job.queued_since_s + cell.settings.reserve_after_s


def _to_collect(cell: Cell, job: Job, policy: QueuePolicy, first: list[Reservation]) -> gangs.Collection | None:
    """What is to be kept for the gang, of what those before it leave; a suspended one goes on where it was alone."""
    left = servers_besides(cell, job, first)
    if job.suspended:
        return where_it_was(cell, job, left)
    return acquiring.collection_of(cell, job, left) if policy.acquires else gangs.to_collect(job.spec.gpus, left)


def _why_reserved(cell: Cell, job: Job, policy: QueuePolicy, chosen: gangs.Collection, now_s: float) -> Reason:
    waited_s, count = now_s - job.queued_since_s, sum(part.gpus for part in chosen.parts)
    where = ", ".join(f"{part.gpus} of {part.node_id}" for part in chosen.parts)
    kept_now = sum(len(part.kept) for part in chosen.parts)
    now = f"{kept_now} of {count} now"
    if policy.reserves_at_once:
        return Reason(
            code="GangIncomplete",
            message=f"GPUs are kept for it at once, more as they become free ({where}), {now}",
            numbers={"gpus": count, "kept": kept_now},
        )
    return Reason(
        code="WaitedLongEnough",
        message=f"has waited for {waited_s:.0f} s: GPUs are kept for it as they become free ({where}), {now}",
        numbers={"waited_s": waited_s, "reserve_after_s": cell.settings.reserve_after_s, "gpus": count},
    )


def _unneeded_released(cell: Cell) -> Plan:
    """A suspended job is ended, moved or paused by others, and may have GPUs kept for it then."""
    for reservation in in_order(cell):
        job = cell.jobs[reservation.job_id]
        if job.phase is not Phase.QUEUED and not (job.suspended and takes_part(job)):
            reason = Reason(code="NotWaiting", message="the gang does not wait any more")
            yield from released(cell, job.job_id, reason)


def _overbooked_released(cell: Cell) -> Plan:
    """A node that cannot be used any more, or has fewer GPUs that work, gives those gangs theirs that go first."""
    if not cell.reservations:
        return
    fulfilled: list[Reservation] = []
    reservations = in_order(cell)
    if not overbooked(cell, reservations):
        return
    for reservation in reservations:
        short = overbooked(cell, [*fulfilled, reservation])
        if short:
            message = f"{', '.join(short)} cannot give it its GPUs any more"
            yield from released(cell, reservation.job_id, Reason(code="NodeUnusable", message=message))
        else:
            fulfilled.append(reservation)
