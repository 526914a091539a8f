"""Gandiva's figure 9 (OSDI'18, section 6.1): two short jobs come to a server on which four long ones run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from libs.sim.throughputs import NO_THROUGHPUTS, Throughputs
from libs.sim.traces import TraceJob
from libs.studies.generators.drawn import DrawnWorkload

LONG_S, SHORT_S, COME_AT_S = 3600.0, 900.0, 1500.0


@dataclass(frozen=True, kw_only=True)
class Figure9Workload(DrawnWorkload):
    """Six jobs of one GPU each, for four GPUs."""

    jobs_per_hour: float = math.nan

    @property
    def arrives(self) -> bool:
        """See `DrawnWorkload`: not at a rate that a load could be."""
        return False

    def rates(self) -> Throughputs:
        """See `DrawnWorkload`."""
        return NO_THROUGHPUTS

    def draw(self, seed: int, throughputs: Throughputs) -> list[TraceJob]:
        """See `DrawnWorkload`; the seed does not matter."""
        long = [TraceJob(job_id=f"long-{n}", submit_time_s=0.0, gpus=1, duration_s=LONG_S) for n in range(4)]
        return long + [
            TraceJob(job_id=f"short-{n}", submit_time_s=COME_AT_S, gpus=1, duration_s=SHORT_S) for n in range(2)
        ]
