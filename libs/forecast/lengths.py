"""How long jobs run from now on, or from their start on, as far as it is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from statistics import median

from libs.contracts.jobs import JobSpec
from libs.kernel.present import Present, PresentJob, PresentLength

NEVER = float("inf")
STATED, OTHERS = "stated_work", "other_jobs"
"""What a length rests on, beside what quota says of it: steps at a known rate; what is known of others."""
MEASURED = "remaining_work"
"""Quota's: the steps that are left, at the rate that was measured."""


class Lengths:
    """Of all jobs that have not ended; of those of which nothing is known: as others do."""

    def __init__(self, now: Present) -> None:
        found = {job_id: _length(job, now.lengths) for job_id, job in now.jobs.items()}
        known = [length.in_s for length in found.values() if length is not None]
        self._usual = PresentLength(in_s=median(known) if known else NEVER, basis=OTHERS)
        self._of_tenants = now.usual
        self.of = {job_id: length or self._usual for job_id, length in found.items()}
        """{job: how long it runs}."""
        self.rests_on = dict(Counter(length.basis for length in self.of.values()))
        """{basis: number of jobs}."""
        self.basis = max(self.rests_on, key=self.rests_on.__getitem__, default="")
        """That of most jobs."""

    def expect(self, job_id: str, spec: JobSpec) -> None:
        """A job arrives that is not there yet: it runs for as long as its user says, else as others of its tenant."""
        stated = _stated(spec)
        self.of[job_id] = stated or self._of_tenants.get(spec.tenant) or self._usual


def left_s(lengths: Mapping[str, PresentLength], job_id: str) -> float:
    """How long the job runs on; infinite: nothing is known of it."""
    length = lengths.get(job_id)
    return length.in_s if length is not None else NEVER


def _length(job: PresentJob, said: Mapping[str, PresentLength]) -> PresentLength | None:
    of_quota = said.get(job.job_id)
    if of_quota is not None and of_quota.basis == MEASURED:
        return of_quota
    if job.stated_s is not None:
        return PresentLength(in_s=job.stated_s, basis=STATED)
    return of_quota if of_quota is not None and of_quota.in_s < NEVER else None


def _stated(spec: JobSpec) -> PresentLength | None:
    rate = max((rate for gpu_type, rate in spec.throughputs.items() if spec.gpus.accepts(gpu_type)), default=0.0)
    return PresentLength(in_s=spec.total_steps / rate, basis=STATED) if spec.total_steps is not None and rate else None
