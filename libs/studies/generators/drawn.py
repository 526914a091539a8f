"""What every generated workload can do."""

from __future__ import annotations

from abc import ABC, abstractmethod

from libs.sim.learning import Surface, no_surface
from libs.sim.sharing.demands import JobModels
from libs.sim.throughputs import Throughputs
from libs.sim.traces import TraceJob
from libs.sim.workloads import Planned


class DrawnWorkload(ABC):
    """Jobs that a seed draws. Implementations are frozen dataclasses: the fields are what is drawn from."""

    surface: Surface = staticmethod(no_surface)
    """What the jobs report of how good they are."""

    jobs_per_hour: float
    """Mean rate of arrivals, where they arrive."""

    @property
    @abstractmethod
    def arrives(self) -> bool:
        """False: all jobs are there from the start."""

    @abstractmethod
    def rates(self) -> Throughputs:
        """The table for users without a measured one."""

    @abstractmethod
    def draw(self, seed: int, throughputs: Throughputs) -> list[TraceJob]:
        """The jobs, in order of arrival; the first arrives at 0. The same seed gives the same jobs.

        Raises:
            BadInput: the table has no rate that is needed.
        """

    def utilisations(self) -> dict[str, float]:
        """{model: part of a GPU that a job of it uses alone}, where that is known."""
        return {}

    def demands(self) -> JobModels | None:
        """What the jobs ask of GPUs that they share, where that is known."""
        return None

    def requests(self, seed: int) -> list[Planned]:
        """What users ask for beside jobs."""
        return []
