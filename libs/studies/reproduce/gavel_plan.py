"""The runs that Gavel's section 7 needs, in a size of one's choice.

Loads are parts of what an ideal scheduler could just sustain on the cluster (`generators.capacity`): the paper's high
loads, 5.6 and 2.6 jobs an hour on 36 GPUs of each type, are 0.96 and 0.93 of that with the authors' measured rates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from libs.sim.clusters import parse_cluster
from libs.sim.throughputs import read_throughputs
from libs.studies.experiments.runs import RunSpec
from libs.studies.generators.capacity import sustainable_jobs_per_hour
from libs.studies.generators.computed_rates import computed_throughputs
from libs.studies.generators.gavel import DAY_S, GavelWorkload

SINGLE, MULTIPLE = "continuous-single", "continuous-multiple"
LAS, GANDIVA = "max_min_fairness", "gandiva_packing"
AWARE: Mapping[str, Any] = {}
AGNOSTIC: Mapping[str, Any] = {"heterogeneity_agnostic": True}
SHARING: Mapping[str, Any] = {"space_sharing": True}
REFERENCES = 4
ESTIMATED: Mapping[str, Any] = {"space_sharing": True, "references": REFERENCES}
IDEAL: Mapping[str, Any] = {"ideal": True}
ENTITIES = {"entity0": 1.0, "entity1": 2.0, "entity2": 3.0}


@dataclass(frozen=True)
class Size:
    """How large the study is."""

    gpus_of_each_type: int = 8
    jobs: int = 1000
    measure: tuple[int, int] = (500, 700)
    static_jobs: int = 100
    seeds: tuple[int, ...] = (0, 1)
    loads: tuple[float, ...] = (0.4, 0.7, 0.95)
    """Parts of the sustainable load, rising; the last one is the high load."""
    round_minutes: tuple[float, ...] = (6.0, 24.0, 48.0)
    multi_level_days: float = 4.0
    """Length of the jobs under multi-level fairness, on a V100."""
    throughputs: str | None = None
    """A `throughputs/1` file; None: the computed table."""

    @property
    def cluster(self) -> str:
        """As `--cluster` takes it."""
        return ",".join(f"{gpu_type}={self.gpus_of_each_type}" for gpu_type in ("v100", "p100", "k80"))


PAPER_SIZE = Size(
    gpus_of_each_type=36,
    jobs=6000,
    measure=(4000, 5000),
    static_jobs=500,
    seeds=(0, 1, 2),
    loads=(0.2, 0.4, 0.6, 0.8, 0.95),
    round_minutes=(6.0, 12.0, 24.0, 48.0),
)
"""The paper's own: hours of computing per run."""


class Plan:
    """Makes the runs."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.rates = computed_throughputs() if size.throughputs is None else read_throughputs(size.throughputs)

    def sustainable(self, workload: GavelWorkload, cluster: str) -> float:
        return sustainable_jobs_per_hour(workload, self.rates, parse_cluster(cluster).gpus)

    def continuous(
        self, kind: str, policy: str, options: Mapping[str, Any], loads: Sequence[float], **more: Any
    ) -> list[RunSpec]:
        """One run per load and seed."""
        plain = GavelWorkload(kind=kind, jobs=self.size.jobs, **more)
        whole = self.sustainable(plain, self.size.cluster)
        workloads = [replace(plain, jobs_per_hour=round(part * whole, 4)) for part in loads]
        return [
            self._run(policy, workload, seed, measure=self.size.measure, **options)
            for workload in workloads
            for seed in self.size.seeds
        ]

    def at_high_load(self, kind: str, policy: str, options: Mapping[str, Any], **more: Any) -> list[RunSpec]:
        return self.continuous(kind, policy, options, self.size.loads[-1:], **more)

    def at_all_loads(self, kind: str, policy: str, options: Mapping[str, Any]) -> list[RunSpec]:
        return self.continuous(kind, policy, options, self.size.loads)

    def static(self, policy: str, options: Mapping[str, Any]) -> list[RunSpec]:
        """One run per seed, all jobs there from the start."""
        workload = GavelWorkload(kind="static", jobs=self.size.static_jobs)
        return [self._run(policy, workload, seed, **options) for seed in self.size.seeds]

    def batch_over_time(self, policy: str, part: float, **more: Any) -> list[RunSpec]:
        """One run per seed of as many jobs as a static workload has, arriving at a part of the sustainable load."""
        plain = GavelWorkload(kind=SINGLE, jobs=self.size.static_jobs, **more)
        load = round(part * self.sustainable(plain, self.size.cluster), 4)
        return [self._run(policy, replace(plain, jobs_per_hour=load), seed) for seed in self.size.seeds]

    def _run(self, policy: str, workload: GavelWorkload, seed: int, **options: Any) -> RunSpec:
        chosen = {"cluster": self.size.cluster, "throughputs": self.size.throughputs, **options}
        return RunSpec(policy=policy, workload=workload, seed=seed, **chosen)

    def multi_level(self) -> RunSpec:
        """Three entities on a small cluster, all with more long jobs than they can have GPUs for."""
        long_s = self.size.multi_level_days * DAY_S
        workload = GavelWorkload(kind="static-single", jobs=30, tenants=tuple(ENTITIES), duration_choices_s=(long_s,))
        return RunSpec(
            policy="hierarchical",
            workload=workload,
            throughputs=self.size.throughputs,
            cluster="v100=3,p100=3,k80=3",
            tenant_weights=ENTITIES,
            measure=(0, 1),
            keep_intervals=True,
        )

    def rounds(self, minutes: Sequence[float]) -> list[RunSpec]:
        """Rounds of these lengths, at high load."""
        runs = self.at_high_load(SINGLE, LAS, AWARE)
        return [replace(spec, round_s=60.0 * length) for length in minutes for spec in runs]
