"""Time slices decided the long way: every domain is grouped anew, every queued job assigned, at every step.

What `SlicingMechanism` keeps up to date and leaves out must not show: `test_slices_decide_alike.py` compares the two.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from libs.contracts.reasons import PendingReason
from services.placement.core.cell import Cell
from services.placement.core.cluster import gangs
from services.placement.core.cluster.servers import Listed
from services.placement.core.jobs import Job
from services.placement.core.lifecycle import waiting
from services.placement.core.lifecycle.placing import placed, told
from services.placement.core.lifecycle.plan import Plan
from services.placement.core.lifecycle.queue import HeadsInOrder
from services.placement.core.lifecycle.suspending.deciding import places_changed, slice_of
from services.placement.core.lifecycle.suspending.domains import Domain, grouped
from services.placement.core.mechanism import Mechanism, Moment
from services.placement.core.mechanisms.slicing import shrinking
from services.placement.core.mechanisms.slicing.mechanism import SlicingMechanism
from services.placement.core.mechanisms.slicing.memory import of
from services.placement.core.mechanisms.slicing.turns import choose, runs
from services.placement.core.mechanisms.slicing.why import why_here, why_it_waits, why_its_turn, why_now
from services.placement.core.sharing.packs import all_parted, crowded, two_packed


class LongWay(SlicingMechanism):
    """Decides the same as the mechanism that it extends."""

    def step(self, cell: Cell, moment: Moment) -> Plan:
        now_s = moment.now_s
        yield from _gone_on_where_possible(cell, now_s)
        yield from _placed_on_free_gpus(cell)
        promised: dict[str, str] = {}
        yield from _room_made(cell, promised, moment)
        if promised:
            yield from _placed_on_free_gpus(cell)
        coming = _assign(cell, promised)
        for domain in grouped(cell):
            newcomers = coming.get(domain.name, [])
            current = cell.slices.get(domain.name)
            over = current is None or now_s >= current.ends_s
            if over and (domain.suspended or newcomers):
                yield from _rearranged(cell, domain, newcomers, now_s, anew=True)
            elif newcomers:
                lowest = min((job.priority for job in domain.residents if runs(job)), default=0)
                urgent = [job for job in newcomers if job.priority > lowest]
                yield from _rearranged(cell, domain, urgent, now_s, anew=False)
        yield from _told_why(cell, coming, promised, now_s)

    def moments(self, cell: Cell) -> Iterator[float]:
        if cell.queue or any(job.suspended for job in cell.jobs.values()):
            yield from (current.ends_s for current in cell.slices.values())
        resizes = (shrinking._resize_of(job) for job in cell.jobs.values())
        yield from (resize.since_s + shrinking.PATIENCE_S for resize in resizes if resize is not None)

    def wind_down(self, cell: Cell, in_force: Mechanism, moment: Moment) -> Plan:
        packed = [cell.jobs[host] for host, _ in cell.book.packs()]
        yield from all_parted(cell)
        for domain in [domain for domain in grouped(cell) if any(job in domain.residents for job in packed)]:
            if crowded(cell, domain):
                yield from _rearranged(cell, domain, [], moment.now_s, anew=False)
        if cell.slices and not in_force.brings_back:
            yield from _gone_on_where_possible(cell, moment.now_s)


def _queued(cell: Cell) -> list[Job]:
    orders = sorted(order for orders in cell.queue.values() for order in orders)
    return [cell.jobs[job_id] for _, _, job_id in orders]


def _gone_on_where_possible(cell: Cell, now_s: float) -> Plan:
    for domain in grouped(cell):
        idles = any(node.free(gpu_type) for node in domain.nodes for gpu_type in node.healthy)
        several = len({job.priority for job in domain.residents}) > 1
        may_change = idles or several or any(job.held for job in domain.residents)
        if (domain.suspended and may_change) or crowded(cell, domain):
            yield from _rearranged(cell, domain, [], now_s, anew=False)


def _placed_on_free_gpus(cell: Cell) -> Plan:
    for job in HeadsInOrder(cell):
        fit = _free_place(grouped(cell), job)
        if fit is not None:
            yield placed(job, fit.gang, why_here(job, fit))


def _free_place(listed: list[Domain], job: Job) -> gangs.Fit | None:
    kindred = [domain for domain in listed if domain.affinity == job.spec.gpus.count]
    empty = [domain for domain in listed if not domain.residents]
    for group in (kindred, empty, listed):
        fit = gangs.best_fit(job.spec.gpus, Listed([node for domain in group for node in domain.nodes if node.usable]))
        if fit is not None:
            return fit
    return None


def _room_made(cell: Cell, promised: dict[str, str], moment: Moment) -> Plan:
    elastic = [job for job in cell.jobs.values() if job.spec.elastic is not None and len(job.gang) == 1 and job.stays]
    yield from shrinking._hopeless_given_up(elastic, moment.now_s)
    queued = _queued(cell)
    servers = shrinking._servers(cell, elastic) if queued else []
    for job in queued:
        found = shrinking._first_with_room(cell, servers, job)
        if found is not None:
            server, steps = found
            for other, gpus in steps:
                server.room += shrinking._lent(other) - gpus
                yield shrinking._shrunk(cell, other, gpus, job, moment)
            server.room -= job.spec.gpus.count
            promised[job.job_id] = server.node.node_id


def _assign(cell: Cell, promised: Collection[str]) -> dict[str, list[Job]]:
    listed = [domain for domain in grouped(cell) if any(node.usable for node in domain.nodes)]
    load = {domain.name: domain.load for domain in listed}
    coming: dict[str, list[Job]] = {}
    for job in _queued(cell):
        width = job.spec.gpus.count
        possible = [
            (domain.affinity not in (0, width), load[domain.name] / domain.gpus, domain.name)
            for domain in listed
            if domain.can_hold(job) and load[domain.name] + width <= cell.settings.max_height * domain.gpus
        ]
        if possible and job.job_id not in promised:
            _, _, best = min(possible)
            load[best] += width
            coming.setdefault(best, []).append(job)
    return coming


def _rearranged(cell: Cell, domain: Domain, newcomers: Sequence[Job], now_s: float, *, anew: bool) -> Plan:
    if anew:
        yield from two_packed(cell, domain, now_s)
    assignments = choose(cell, of(cell), domain, newcomers, now_s, anew=anew)
    started = [each for each in assignments if not each.job.gang]
    resumed = [each for each in assignments if each.job.gang and (each.job.suspended or each.gang != each.job.gang)]
    assigned = [each.job.job_id for each in assignments]
    suspended = [job for job in domain.residents if job.stays and job.move is None and job.job_id not in assigned]
    if not anew and not (resumed or started or suspended):
        return
    yield places_changed(
        cell,
        domain,
        running=[each.job for each in assignments if each not in resumed and each not in started],
        suspended=suspended,
        resumed=resumed,
        started=[each.job for each in started],
        ends_s=now_s + cell.settings.slice_s if anew else max(slice_of(cell, domain).ends_s, now_s),
        reason=why_now(domain, list(newcomers), anew=anew, parted=bool(suspended) and not (resumed or started)),
    )
    for each in started:
        yield placed(each.job, each.gang, why_its_turn(domain, each.job))


def _told_why(cell: Cell, coming: Mapping[str, list[Job]], promised: Mapping[str, str], now_s: float) -> Plan:
    turns = {job.job_id: name for name, jobs in coming.items() for job in jobs}
    for job in _queued(cell):
        if job.job_id in promised:
            cause: str = PendingReason.INSUFFICIENT_GPUS
        elif job.job_id in turns:
            cause = PendingReason.FAIR_SHARE
        else:
            cause = waiting.cause_to_wait(cell, job, cell.servers(), None)
        if cause != job.wait_code:
            reason = why_it_waits(cell, job, turns.get(job.job_id), promised.get(job.job_id), now_s)
            yield from told(job, reason)
