"""How long the work of a job would have taken on its own 1/n of the cluster (Gavel, OSDI'20, section 4.2).

n and the cluster change while a job runs. What it does between two questions counts at the rate that it would have had
by itself at the first of them, as in the authors' simulator: at the n of today, a job that has come through a crowd
would seem to have had nearly all of its time to itself, and be made to wait again.
"""

from __future__ import annotations

from services.placement.core.cell import Cell
from services.placement.core.jobs import Job
from services.placement.core.mechanisms.rounds.memory import Divided, of
from services.placement.core.sharing.rates import rates


def keep_isolated_time(cell: Cell, jobs: list[Job], gpus: dict[str, int]) -> None:
    """Count what the jobs have done since the last question, at the 1/n of then; the first one counts at its own.

    Where a job could have run on no GPU of then, its work is counted at a later question.
    """
    memory = of(cell)
    now = Divided(jobs=len(jobs), gpus=gpus)
    then, memory.divided = memory.divided or now, now
    for job in jobs:
        account = job.account
        if (steps := account.steps_done - account.isolated_steps) > 0:
            rate_per_s = isolated_rate(rates(cell, job, list(then.gpus)), then, job.spec.gpus.count)
            if rate_per_s > 0:
                account.isolated_s += steps / rate_per_s
                account.isolated_steps = account.steps_done


def isolated_rate(throughputs: dict[str, float], divided: Divided, width: int) -> float:
    """Steps per second on 1/n of the cluster, in the cluster's own mix of types; 0 where the job can run on none."""
    total = sum(divided.gpus.values())
    if not total or not divided.jobs:
        return 0.0
    mixed = sum(throughputs.get(t, 0.0) * n / total for t, n in divided.gpus.items())
    return mixed * min(1.0, total / (divided.jobs * width))
