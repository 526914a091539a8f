"""How long jobs run from now on, or from their start on, as far as it is known."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from libs.kernel.present import Present, PresentJob, PresentLength

STATED, OTHERS = "stated_work", "other_jobs"
"""What a length rests on, beside what quota says of it: steps at a known rate; what is known of others."""
MEASURED = "remaining_work"
"""Quota's: the steps that are left, at the rate that was measured."""


def lengths_of(now: Present) -> dict[str, PresentLength]:
    """{job: how long it runs}, of all jobs that have not ended; of those of which nothing is known: as others do."""
    found = {job_id: _length(job, now.lengths) for job_id, job in now.jobs.items()}
    known = [length.in_s for length in found.values() if length is not None]
    usual = PresentLength(in_s=median(known) if known else float("inf"), basis=OTHERS)
    return {job_id: length or usual for job_id, length in found.items()}


def _length(job: PresentJob, said: Mapping[str, PresentLength]) -> PresentLength | None:
    of_quota = said.get(job.job_id)
    if of_quota is not None and of_quota.basis == MEASURED:
        return of_quota
    if job.stated_s is not None:
        return PresentLength(in_s=job.stated_s, basis=STATED)
    return of_quota if of_quota is not None and of_quota.in_s < float("inf") else None
