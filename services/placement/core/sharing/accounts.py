"""The time on GPUs that each job receives, and the steps that it does with it, under every mechanism."""

from __future__ import annotations

from libs.kernel.runs import remember
from services.placement.core.cell import Cell
from services.placement.core.jobs import ACTIVE, Job
from services.placement.core.lifecycle.hearing import Listener
from services.placement.core.sharing.pairs import partner_of, together
from services.placement.core.sharing.rates import rates
from services.placement.core.sharing.spread import part_here


def charge(job: Job, now_s: float) -> float:
    """Book the time that the job has held its GPUs since the last booking. Returns it, in seconds."""
    account = job.account
    passed_s = now_s - account.charged_s
    if passed_s <= 0:
        return 0.0
    account.charged_s = now_s
    if job.suspended:
        return 0.0
    account.attained_s += passed_s
    account.steps_done += account.steps_per_s * passed_s
    return passed_s


def settle(cell: Cell, job: Job) -> None:
    """The job has new GPUs, or another companion on them: how fast it is from now on."""
    task = job.gang[0]
    job.gpu_type = cell.nodes[task.node_id].gpus[task.gpu_indices[0]].gpu_type
    partner = partner_of(cell, job)
    if partner is not None:
        both = together(cell, job, partner, [job.gpu_type]).get(job.gpu_type)
        if both is not None:
            job.account.steps_per_s = both[0]
            return
    job.account.steps_per_s = rates(cell, job, [job.gpu_type]).get(job.gpu_type, 0.0) * part_here(cell, job)


class Accounts(Listener):
    """Charges jobs whatever is about to change what they hold."""

    hears_of_guests = True

    def placed(self, cell: Cell, job: Job, now_s: float) -> None:
        job.account.charged_s = now_s
        settle(cell, job)

    def moving(self, cell: Cell, job: Job, now_s: float) -> None:
        charge(job, now_s)

    def resumed(self, cell: Cell, job: Job, now_s: float) -> None:
        settle(cell, job)

    def moved(self, cell: Cell, job: Job, now_s: float) -> None:
        settle(cell, job)

    def suspending(self, cell: Cell, job: Job, now_s: float) -> None:
        charge(job, now_s)

    def leaving(self, cell: Cell, job: Job, now_s: float) -> None:
        if job.phase is ACTIVE:
            charge(job, now_s)

    def ended(self, cell: Cell, job: Job) -> None:
        if job.account.attained_s > 0:
            remember(cell.ran_s.setdefault(job.spec.tenant, []), job.account.attained_s)
