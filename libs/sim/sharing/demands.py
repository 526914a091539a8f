"""What a job asks of its GPUs: how busy it keeps them, how much memory it needs, and how that changes while it runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

GIB = 1024**3
Curve = tuple[tuple[float, float], ...]
"""(Part of the wanted memory that is on the GPU, speed as a part of the full one), ascending, ends at (1, 1)."""
EVEN: Curve = ((0.0, 0.25), (1.0, 1.0))
"""Of a model without a measured sensitivity: an assumption."""


@dataclass(frozen=True)
class Demand:
    """What a job asks of each of its GPUs while nothing changes."""

    minibatch_s: float
    """Length of a mini-batch alone."""
    busy_ratio: float
    """Part of that time in which it uses the GPU; 0: it computes on the CPU, and has no mini-batches."""
    memory_bytes: int
    """The most that it wants on the GPU."""
    weight: float = 1.0
    """How much of the GPU it gets against another one, when both have kernels to run and nothing holds one back."""
    sensitivity: Curve = EVEN

    @property
    def computes(self) -> bool:
        """Whether it uses the GPU."""
        return self.busy_ratio > 0

    def speed_with(self, limit_bytes: int | None) -> float:
        """Its speed with so much memory on the GPU and the rest on the host (AntMan, OSDI'20, figure 10)."""
        if limit_bytes is None or limit_bytes >= self.memory_bytes or not self.memory_bytes:
            return 1.0
        kept = limit_bytes / self.memory_bytes
        for (low, slower), (high, faster) in pairwise(self.sensitivity):
            if kept <= high:
                return slower + (faster - slower) * max(0.0, kept - low) / (high - low)
        return 1.0


@dataclass(frozen=True)
class Phase:
    """A stretch of a job's work."""

    work_s: float
    """How long it takes alone."""
    demand: Demand


@dataclass(frozen=True)
class JobModel:
    """What the jobs of one model ask for: some phases once, then others again and again."""

    cycle: tuple[Phase, ...]
    first: tuple[Phase, ...] = ()

    def at(self, work_s: float) -> tuple[Demand, float]:
        """What it asks for when so much of its work is done, and at which point of its work that changes next."""
        end_s = 0.0
        for phase in self.first:
            end_s += phase.work_s
            if work_s < end_s:
                return phase.demand, end_s
        if len(self.cycle) == 1:
            return self.cycle[0].demand, math.inf
        period_s = sum(phase.work_s for phase in self.cycle)
        end_s += (work_s - end_s) // period_s * period_s
        for phase in self.cycle:
            end_s += phase.work_s
            if work_s < end_s:
                return phase.demand, end_s
        return self.cycle[0].demand, end_s + self.cycle[0].work_s

    @property
    def usual(self) -> Demand:
        """The demand that takes up most of its time: what a profile of it would show."""
        return max(self.cycle, key=lambda phase: phase.work_s).demand

    @property
    def peak_bytes(self) -> int:
        """The most that it ever wants on a GPU."""
        return max(phase.demand.memory_bytes for phase in (*self.first, *self.cycle))

    @property
    def busy_ratio(self) -> float:
        """Mean of a whole cycle."""
        total_s = sum(phase.work_s for phase in self.cycle)
        return sum(phase.work_s * phase.demand.busy_ratio for phase in self.cycle) / total_s


def steady(demand: Demand) -> JobModel:
    """A model without phases."""
    return JobModel(cycle=(Phase(1.0, demand),))


UNKNOWN = steady(Demand(minibatch_s=0.3, busy_ratio=0.5, memory_bytes=4 * GIB))
"""Of jobs with a model that the table lacks: half busy, as placement takes it, most mini-batches are below 600 ms."""


@dataclass(frozen=True)
class JobModels:
    """The table: models by name."""

    models: Mapping[str, JobModel] = field(default_factory=dict)

    def of(self, name: str) -> JobModel:
        """The model of that name; of one that is not there, what is assumed of any."""
        return self.models.get(name, UNKNOWN)
