"""How long jobs run on, as far as placement knows: from their steps and rates, else from their time limits."""

from __future__ import annotations

from services.placement.core.cell import Cell
from services.placement.core.jobs import ACTIVE, Job
from services.placement.core.sharing.rates import stated_rates
from services.placement.core.sharing.spread import part_here


def steps_left(job: Job, now_s: float) -> float | None:
    """By its rate and the time that it held GPUs; negative: it should have ended.

    None: its user has not said how many steps it has.
    """
    if job.spec.total_steps is None:
        return None
    account = job.account
    return job.spec.total_steps - account.steps_done - unbooked_s(job, now_s) * account.steps_per_s


def unbooked_s(job: Job, now_s: float) -> float:
    """For how long it has held its GPUs since that was booked last."""
    return now_s - job.account.charged_s if job.phase is ACTIVE and not job.suspended else 0.0


def stated_s(cell: Cell, job: Job, now_s: float) -> float | None:
    """What is left of its steps, at the rate that is known of it, in seconds; None: one of both is not known."""
    left_s = _at_known_rate_s(cell, job, now_s)
    return None if left_s is None else max(0.0, left_s)


def _at_known_rate_s(cell: Cell, job: Job, now_s: float) -> float | None:
    """The same; negative: it should have ended so long ago."""
    left = steps_left(job, now_s)
    if left is None:
        return None
    known = stated_rates(cell, job) or job.profile.rates
    here = known.get(job.gpu_type, 0.0) * part_here(cell, job) if job.gang else 0.0
    rate = here or max((rate for gpu_type, rate in known.items() if job.spec.gpus.accepts(gpu_type)), default=0.0)
    return left / rate if rate > 0 else None


def expected_s(cell: Cell, job: Job, now_s: float) -> float:
    """How long a job that holds GPUs is expected to hold them, in seconds.

    By its steps, else by its time limit, else as long again as it has held them; one that should have ended, as long
    again as it is late. One that is being stopped leaves at once.
    """
    if not job.lasts:
        return 0.0
    age_s = now_s - job.since_s
    left_s = _at_known_rate_s(cell, job, now_s)
    if left_s is None and job.spec.time_limit_s is not None:
        left_s = job.spec.time_limit_s - age_s
    return age_s if left_s is None else abs(left_s)
