"""Packs: two jobs on the same GPUs at the same time, on trial first (Gandiva, OSDI'18, section 4.2).

Only where more jobs want to run than can, greedily the two that use their GPUs least, memory permitting. Whether they
do more together than by turns is introspection's verdict; pairs that did not are remembered.
"""

from __future__ import annotations

from itertools import combinations

from libs.contracts.introspection import PackFailed, PackSucceeded
from libs.contracts.placement import JobPacked, JobUnpacked
from libs.contracts.reasons import Number, Reason
from libs.kernel.machine import Turn
from services.placement.core.book import Grounds
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.hearing import Listener
from services.placement.core.lifecycle.plan import Plan
from services.placement.core.lifecycle.suspending.domains import Domain, takes_part
from services.placement.core.lifecycle.table import Look, machine, reacts
from services.placement.core.sharing.rates import configuration_of

JOIN = " + "


def two_packed(cell: Cell, domain: Domain, now_s: float) -> Plan:
    """The decision to begin a trial, unless one is under way here: two at a time could not be told apart.

    Where guests use what owners leave, no owners are packed.
    """
    if cell.takes_guests or any(cell.book.on_trial(job.job_id) for job in domain.residents):
        return
    single = [job for job in domain.residents if _may_share(cell, job)]
    for a, b in combinations(sorted(single, key=lambda job: (job.profile.utilisation, job.seq)), 2):
        if _fit_together(cell, a, b):
            host, guest = (b, a) if a.suspended and not b.suspended else (a, b)
            yield JobPacked(
                job_id=host.job_id,
                attempt=host.attempt,
                with_job=guest.job_id,
                with_attempt=guest.attempt,
                trial_ends_s=now_s + cell.settings.pack_trial_s,
                reason=_why(host, guest),
            )
            return


def all_parted(cell: Cell) -> Plan:
    """The decision to part all packs, as the policy in force does not pack in this way."""
    if not cell.book.companions:
        return
    message = f"{cell.policy} gives each GPU to one job, or packs otherwise"
    if cell.takes_guests:
        message = "what its owner leaves of a GPU is for guests"
    reason = Reason(code="PolicyChanged", message=message)
    for host, guest in list(cell.book.packs()):
        yield JobUnpacked(job_id=host, with_job=guest, reason=reason)


def pack_of(cell: Cell, job: Job, takers: dict[str, Job]) -> list[Job]:
    """The jobs that run when this one does, the one that holds the GPUs first."""
    partner = takers.get(cell.book.packed(job.job_id) or "")
    if partner is None:
        return [job]
    return [job, partner] if job.suspended <= partner.suspended else [partner, job]


def crowded(cell: Cell, domain: Domain) -> bool:
    """Whether jobs hold the same GPU that are not packed (any more)."""
    return any(
        a != b and cell.book.packed(a) != b
        for node in domain.nodes
        for gpu in node.gpus
        for a, b in combinations(gpu.holders, 2)
    )


def _may_share(cell: Cell, job: Job) -> bool:
    alone = cell.book.packed(job.job_id) is None
    return alone and takes_part(job) and len(job.gang) == 1 and job.profile.utilisation is not None


def _fit_together(cell: Cell, a: Job, b: Job) -> bool:
    task, other = a.gang[0], b.gang[0]
    node = cell.nodes[task.node_id]
    if task.node_id != other.node_id or a.width != b.width or a.priority != b.priority:
        return False
    if not node.remaps and task.gpu_indices != other.gpu_indices:
        return False
    memory = min(node.gpus[index].memory_bytes for index in task.gpu_indices)
    return (
        (a.profile.utilisation or 0.0) + (b.profile.utilisation or 0.0) < cell.settings.pack_utilisation
        and a.profile.memory_peak_bytes + b.profile.memory_peak_bytes <= memory
        and _pair(a, b) not in cell.book.incompatible
    )


def _pair(a: Job, b: Job) -> str:
    """What is remembered of two: their configurations, where both are known."""
    return JOIN.join(sorted((_name(a), _name(b))))


def _name(job: Job) -> str:
    return configuration_of(job) or job.job_id


def _why(host: Job, guest: Job) -> Reason:
    numbers: dict[str, Number] = {
        f"utilisation.{job.job_id}": round(job.profile.utilisation or 0.0, 4) for job in (host, guest)
    }
    words = " and ".join(f"{job.job_id} uses {job.profile.utilisation or 0.0:.0%}" for job in (host, guest))
    return Reason(code="LeastUtilisation", message=f"{words} of a GPU, the least of those that wait", numbers=numbers)


@machine.evolves(JobPacked)
def job_packed(cell: Cell, event: JobPacked, now_s: float) -> None:
    cell.book.pair(event.job_id, event.with_job, Grounds.TRIAL)
    _affects(cell, event.job_id, event.with_job)


@machine.evolves(JobUnpacked)
def job_unpacked(cell: Cell, event: JobUnpacked, now_s: float) -> None:
    cell.book.part(event.job_id)
    _affects(cell, event.job_id, event.with_job)
    jobs = [cell.jobs[job_id] for job_id in (event.job_id, event.with_job) if job_id in cell.jobs]
    if event.reason.code in FAILURES and len(jobs) > 1:
        cell.book.incompatible[_pair(*jobs)] = None


class Packs(Listener):
    """A job shares its GPUs until its attempt ends; what is known of an ended job is forgotten."""

    def leaving(self, cell: Cell, job: Job, now_s: float) -> None:
        cell.book.part(job.job_id)

    def ended(self, cell: Cell, job: Job) -> None:
        name = _name(job)
        if name == job.job_id:  # what is known of a configuration holds for the jobs that come
            gone = [pair for pair in cell.book.incompatible if name in pair.split(JOIN)]
            for pair in gone:
                del cell.book.incompatible[pair]


@reacts(PackFailed)
def undo_the_pack(cell: Cell, event: PackFailed, turn: Turn[Cell]) -> Look | None:
    """They take turns again, unless they have been parted meanwhile."""
    if cell.book.packed(event.job_id) != event.with_job:
        return None
    turn.emit(JobUnpacked(job_id=event.job_id, with_job=event.with_job, reason=event.reason))
    return Look()


@machine.evolves(PackSucceeded)
def pack_succeeded(cell: Cell, event: PackSucceeded, now_s: float) -> None:
    cell.book.keep(event.job_id, event.with_job)
    _affects(cell, event.job_id, event.with_job)


def _affects(cell: Cell, *job_ids: str) -> None:
    """Whether two jobs are packed, and how, decides which have their turn on their servers."""
    for job in (cell.jobs[job_id] for job_id in job_ids if job_id in cell.jobs):
        cell.affects(job)


FAILURES = ("SlowerThanByTurns", "NoProgress")
"""Codes of verdicts after which a pair is not tried again."""
