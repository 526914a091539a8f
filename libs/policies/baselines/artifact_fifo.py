"""FIFO without knowledge of rates as the public simulator of the Gavel paper's authors has it, defect included.

There a job keeps the GPU type that it was first put on, which is drawn by lot, and the next job in the queue takes the
place of one that has ended on that type, even where it needs more GPUs than are free. So a slow type collects more jobs
than it has GPUs for, and GPUs of other types stand idle while jobs wait. This function keeps no state; it imitates that
with a lot that depends on the job's id alone: the first jobs that together ask for as many GPUs as there are take part,
each on its own type, whatever the others have drawn. It is for comparisons with the paper's figures; `fifo` is the
policy to run.
"""

from __future__ import annotations

from hashlib import blake2b

from libs.contracts.placement import Share
from libs.policies.problem import Job, Problem, Solution


def artifact_fifo(problem: Problem) -> Solution:
    """Jobs on an overfilled type have equal parts of its time; the objective is the GPUs in use."""
    own = {t: pool.gpus for t, pool in problem.cluster.items() if pool.shares_gpus_with is None and pool.gpus > 0}
    left, drawn = sum(own.values()), dict[str, list[Job]]()
    for job in problem.jobs:
        types = sorted(t for t in own if job.throughputs.get(t, 0.0) > 0 and job.scale_factor <= own[t])
        if not types:
            continue
        if job.scale_factor > left:
            break
        left -= job.scale_factor
        drawn.setdefault(types[_lot(job) % len(types)], []).append(job)
    asked = {t: sum(job.scale_factor for job in jobs) for t, jobs in drawn.items()}
    part = {t: min(1.0, own[t] / gpus) for t, gpus in asked.items()}
    shares = [Share(jobs=(job.id,), time={t: part[t]}) for t, jobs in drawn.items() for job in jobs]
    return Solution(objective=sum(part[t] * gpus for t, gpus in asked.items()), allocation=shares)


def _lot(job: Job) -> int:
    return int.from_bytes(blake2b(job.id.encode(), digest_size=8).digest(), "big")
