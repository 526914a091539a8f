"""The runs that the claims of the Philly study need; what they are compared with is in `claims/philly.toml`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from libs.sim.choice import Failures
from libs.studies.experiments.runs import RunSpec
from libs.studies.generators.philly import GPU_TYPE, GPUS_PER_SERVER, KEPT_WHEN_SPREAD, PhillyWorkload
from libs.studies.reproduce.philly_computed import COMPUTED
from libs.studies.reproduce.stated import Arm, table_of
from libs.studies.reproduce.study import Point, Study, study_of

TWO_THIRDS = 2 / 3
"""Mean occupancy, where an arm names none."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large the study is."""

    trace: str | None = None
    """A `traces/1` file; None: drawn jobs."""
    days: int = 7
    """Of the busiest ones of the trace; their jobs are measured."""
    seeds: tuple[int, ...] = (0,)
    full: bool = False


FULL = Size(days=28, seeds=(0, 1, 2), full=True)


class PhillyPlan:
    """Makes the runs. See `study.Plan`."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.full = size.full

    def compute(self, name: str) -> dict[str, float]:
        """See `study.Plan`."""
        return COMPUTED[name]()

    def points(self, arm: Arm, seeds: int | None) -> list[Point]:
        """See `study.Plan`. An arm is varied by the mean occupancy."""
        return [
            Point(at, self._run(arm, at, seed)) for at in arm.at or [TWO_THIRDS] for seed in self.size.seeds[:seeds]
        ]

    def _run(self, arm: Arm, at: float, seed: int) -> RunSpec:
        """The cluster is as large for every arm of an occupancy, so that arms differ in what they name alone."""
        workload = PhillyWorkload(trace=self.size.trace, days=self.size.days, occupancy=at)
        spec = RunSpec(
            policy=arm.policy,
            workload=workload,
            cluster=f"{GPU_TYPE}={workload.servers(seed) * GPUS_PER_SERVER}",
            gpus_per_server=GPUS_PER_SERVER,
            failures=Failures.TABLE6,
            keep_study=True,
            seed=seed,
            measure=workload.measured(seed),
        )
        match arm.workload:
            case "lent":
                return spec
            case "reclaimed at 0 %":
                return replace(spec, workload=replace(workload, reclaim_above=0.0))
            case "reclaimed at 100 %":
                return replace(spec, workload=replace(workload, reclaim_above=1.0))
            case "never relaxed":
                return replace(spec, workload=replace(workload, relax_after=NEVER))
            case "small jobs apart":
                small = round(workload.servers(seed) * SMALL_WORK)
                return replace(spec, workload=replace(workload, small_servers=small))
            case "spread costs":
                return replace(spec, workload=replace(workload, kept_when_spread=KEPT_WHEN_SPREAD))
            case "locality is waited for":
                waits = replace(workload, kept_when_spread=KEPT_WHEN_SPREAD, wait_for_locality_s=WAIT_FOR_LOCALITY_S)
                return replace(spec, workload=waits)
            case "without failures":
                return replace(spec, failures=Failures.NONE)
            case "with trials":
                return replace(spec, trial_above_gpus=TRIAL_ABOVE_GPUS)
        raise ValueError(f"no workload is called {arm.workload!r}")


NEVER = 1e9
"""So many tries no gang makes."""
SMALL_WORK = 0.18
"""Part of the public trace's GPU time that jobs of one GPU have: so many of the servers are set apart for them."""
WAIT_FOR_LOCALITY_S = 4 * 3600.0
"""Longest wait of a gang for few servers where it gains more; with a day 0.2 % is saved in the place of 0.7."""
TRIAL_ABOVE_GPUS = 4
"""Jobs with more GPUs run a trial: the study's large ones."""


def scaling(size: Size) -> str:
    """The size in words, with the factor of the first seed at two thirds."""
    workload, seed = PhillyWorkload(trace=size.trace, days=size.days), size.seeds[0]
    first, end = workload.measured(seed)
    return (
        f"{end - first:,} jobs of the {size.days} busiest days, servers and quotas times {workload.factor(seed):.3f}: "
        f"{workload.servers(seed)} servers of {GPUS_PER_SERVER} GPUs"
    )


def study(size: Size | None = None) -> Study:
    """All claims and pictures, at a size."""
    return study_of("philly", table_of("philly"), PhillyPlan(size or Size()), ())
