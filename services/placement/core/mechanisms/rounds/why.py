"""What is said about leases: where a job is and why, why it leaves, why it waits."""

from __future__ import annotations

from collections.abc import Sequence

from libs.contracts.placement import Lease
from libs.contracts.reasons import Number, PendingReason, Reason
from libs.kernel.words import plural
from services.placement.core.jobs import Job
from services.placement.core.mechanisms.rounds.memory import Rounds


def why_here(rounds: Rounds, job: Job, lease: Lease) -> Reason:
    """Why the job gets this place."""
    words, numbers = _share_of(rounds, job)
    if job.job_id in rounds.beyond:
        return Reason(code="IdleGpus", message=f"no share claims {lease.gpu_type} in this round", numbers=numbers)
    owed_s = rounds.credit.get(job.job_id, {}).get(lease.gpu_type, 0.0)
    return Reason(
        code="Lease",
        message=f"{words}; its deficit on {lease.gpu_type} is {max(0.0, owed_s):.0f} s",
        numbers={**numbers, "owed_s": owed_s, "round": rounds.number},
    )


def why_idle(job: Job, gpu_type: str) -> Reason:
    """Why the job gets GPUs in the middle of a round."""
    numbers: dict[str, Number] = {"gpus": job.spec.gpus.count}
    return Reason(code="IdleGpus", message=f"{gpu_type} idles until the round ends", numbers=numbers)


def why_it_leaves(rounds: Rounds, job: Job) -> Reason:
    """Why the job has to give its GPUs up."""
    words, numbers = _share_of(rounds, job)
    message = f"its lease has ended: {words}, and in round {rounds.number} other rows have larger deficits"
    return Reason(code=PendingReason.FAIR_SHARE, message=message, numbers=numbers)


def why_it_moves(rounds: Rounds, job: Job, lease: Lease) -> Reason:
    """Why the job gives its GPUs up for others."""
    words, numbers = _share_of(rounds, job)
    where = ", ".join(task.node_id for task in lease.gang)
    message = f"{words}; in round {rounds.number} its place is on {lease.gpu_type} of {where}"
    return Reason(code=PendingReason.FAIR_SHARE, message=message, numbers=numbers)


def why_some_leave(rounds: Rounds, jobs: Sequence[Job]) -> Reason:
    """Why jobs are suspended."""
    message = f"their leases have ended with round {rounds.number - 1}"
    return Reason(code=PendingReason.FAIR_SHARE, message=message, numbers={"jobs": len(jobs), "round": rounds.number})


def why_it_waits(rounds: Rounds, job: Job) -> Reason:
    """Why the job gets none now."""
    words, numbers = _share_of(rounds, job)
    known = job.job_id in rounds.rows
    waits = f"{words}; in round {rounds.number} other rows have larger deficits"
    message = waits if known else "its share begins with a round"
    return Reason(code=PendingReason.FAIR_SHARE, message=message, numbers=numbers)


def why_it_waits_for(lease: Lease, victims: Sequence[str]) -> Reason:
    """Why the job does not have the GPUs of its lease yet."""
    named = f"{', '.join(victims[:5])}{' and others' if len(victims) > 5 else ''}"
    where = ", ".join(task.node_id for task in lease.gang)
    return Reason(
        code=PendingReason.WAITING_FOR_VICTIMS,
        message=f"has its lease on {where} as soon as {named} {plural(len(victims), 'has', 'have')} left",
        numbers={"jobs": len(victims)},
    )


def _share_of(rounds: Rounds, job: Job) -> tuple[str, dict[str, Number]]:
    """The job's share, as words and as numbers."""
    time: dict[str, float] = {}
    for row in rounds.rows.get(job.job_id, ()):
        for gpu_type, fraction in rounds.shares[row].time.items():
            time[gpu_type] = time.get(gpu_type, 0.0) + fraction
    parts = " and ".join([f"{100 * fraction:.0f} % of the time on {gpu_type}" for gpu_type, fraction in time.items()])
    words = f"its share is {parts}" if parts else "it has no share"
    return words, {f"share.{gpu_type}": round(fraction, 6) for gpu_type, fraction in time.items()}
