"""What the time slices remember: how much time on GPUs each job has had (Gandiva, OSDI'18, section 4.1)."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

import msgspec

from services.placement.core.cell import Cell
from services.placement.core.jobs import Job


class ServiceTime(msgspec.Struct, frozen=True, kw_only=True):
    """Of one job. Initially it has had none."""

    served_s: float = 0.0
    """Time on GPUs that it has had, per unit of its weight, up to when it began to run last."""
    running_since_s: float | None = None
    """Since when its time on GPUs counts; None while it does not."""
    awaited: bool = False
    """Its agents have not said yet that it runs on the GPUs that it was given last."""


class Memory(msgspec.Struct, kw_only=True, dict=True):
    """Initially empty."""

    times: dict[str, ServiceTime] = {}
    """{job id: its time}, of jobs that have been given GPUs."""

    def time(self, job: Job) -> ServiceTime:
        """Of any job."""
        return self.times.get(job.job_id, NONE)


NONE = ServiceTime()

of: Callable[[Cell], Memory] = attrgetter("slicing")
"""The time slices' part of the state."""
