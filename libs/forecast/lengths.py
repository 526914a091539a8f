"""How long jobs run from now on, or from their start on, as far as it is known."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

from libs.contracts.jobs import JobSpec
from libs.kernel.present import Present, PresentJob, PresentLength
from libs.kernel.runs import REMAINING_WORK, RESIDUAL_LIFE, TIME_SO_FAR

NEVER = float("inf")
STATED, OTHERS = "stated_work", "other_jobs"
"""What a length may rest on besides (`libs/kernel/runs.py`): steps at a known rate; what is known of any other job."""
GOLDEN_RATIO = (1 + 5**0.5) / 2


class Lengths:
    """Of all jobs that have not ended, as time for which they hold GPUs.

    Of those of which nothing is known that their users or measurements say: as others of the tenant have run that held
    GPUs for longer than they have so far; of the others as what is known of any.
    """

    def __init__(self, now: Present) -> None:
        self._ran_s = {tenant: sorted(ran_s) for tenant, ran_s in now.ran_s.items()}
        self._taken = Counter[str]()
        found = {job_id: self._length(job, now.lengths.get(job_id)) for job_id, job in now.jobs.items()}
        known = [length.in_s for length in found.values() if length is not None]
        self._usual = PresentLength(in_s=median(known) if known else NEVER, basis=OTHERS)
        self.of = {job_id: length or self._usual for job_id, length in found.items()}
        """{job: how long it runs}."""
        self.keep_work = {job_id: None for job_id, job in now.jobs.items() if job.spec.restartable}
        """Jobs that go on where they were when they are placed again."""
        self.rests_on = dict(Counter(length.basis for length in self.of.values()))
        """{basis: number of jobs}."""
        self.basis = max(self.rests_on, key=self.rests_on.__getitem__, default="")
        """That of most jobs."""

    def expect(self, job_id: str, spec: JobSpec) -> None:
        """A job arrives that is not there yet: it runs for as long as its user says, else as others of its tenant."""
        self.of[job_id] = _stated(spec) or self._as_others(spec.tenant, 0.0) or self._usual
        if spec.restartable:
            self.keep_work[job_id] = None

    def _length(self, job: PresentJob, of_quota: PresentLength | None) -> PresentLength | None:
        if of_quota is not None and of_quota.basis == REMAINING_WORK:
            return of_quota
        if job.stated_s is not None:
            return PresentLength(in_s=job.stated_s, basis=STATED)
        return of_quota or self._as_others(job.spec.tenant, job.attained_s)

    def _as_others(self, tenant: str, attained_s: float) -> PresentLength | None:
        """Not the mean: where equals share GPUs, many that run for as long as each other all end at the very last, and
        of many that do not some end soon. So jobs of a tenant take the lengths of others in turn."""
        ran_s = self._ran_s.get(tenant, [])
        longer = ran_s[bisect_right(ran_s, attained_s) :]
        if longer:
            number, self._taken[tenant] = self._taken[tenant], self._taken[tenant] + 1
            return PresentLength(in_s=spread(longer, number) - attained_s, basis=RESIDUAL_LIFE)
        return PresentLength(in_s=attained_s, basis=TIME_SO_FAR) if attained_s > 0 else None


def spread(ascending: Sequence[float], number: int) -> float:
    """One of these for each number from 0 on: any that follow each other are spread about as all of these are.

    Multiples of the golden ratio, without their integer parts, are spread evenly (Weyl's sequence).
    """
    return ascending[int((0.5 + number * GOLDEN_RATIO) % 1.0 * len(ascending))]


def left_s(lengths: Mapping[str, PresentLength], job_id: str) -> float:
    """How long the job runs on; infinite: nothing is known of it."""
    length = lengths.get(job_id)
    return length.in_s if length is not None else NEVER


def _stated(spec: JobSpec) -> PresentLength | None:
    rate = max((rate for gpu_type, rate in spec.throughputs.items() if spec.gpus.accepts(gpu_type)), default=0.0)
    return PresentLength(in_s=spec.total_steps / rate, basis=STATED) if spec.total_steps is not None and rate else None
