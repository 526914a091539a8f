"""The runs that Gavel's section 7 needs, at a size; what they are compared with is in `claims/gavel.toml`.

Loads are parts of what an ideal scheduler could just sustain on the cluster (`generators.capacity`): the paper's 5.6
and 2.6 jobs an hour on 36 GPUs of each type are 0.96 and 0.93 of that with the authors' measured rates. Numbers of jobs
are the paper's, on 108 GPUs; on fewer there are as many fewer, so that a window of measured jobs lies as many mean
durations after the start as the paper's does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from libs.sim.clusters import parse_cluster
from libs.sim.throughputs import Throughputs, read_throughputs
from libs.studies.experiments.runs import Result, RunSpec
from libs.studies.generators.capacity import sustainable_jobs_per_hour
from libs.studies.generators.computed_rates import computed_throughputs
from libs.studies.generators.gavel import DAY_S, FIGURE_1, GavelWorkload
from libs.studies.generators.hierarchy import ENTITIES, HierarchyWorkload
from libs.studies.report import completion, timelines
from libs.studies.report.drawing import Drawing
from libs.studies.report.intervals import from_rows
from libs.studies.reproduce.computed import COMPUTED
from libs.studies.reproduce.stated import Arm, table_of
from libs.studies.reproduce.study import Chapter, Point, Study, study_of

PAPER_GPUS = 108
PAPER_WINDOW = (4000, 5000)
"""The jobs that the authors measure, in order of arrival."""
PAPER_JOBS = 20_000
"""So many that jobs go on arriving until the last of the window has ended, as in the authors' simulator. Under an
overloaded baseline, by equal parts for all, that is when 14,100 jobs on one GPU, or 17,000 on up to eight, have come;
without newcomers it would empty and end the measured ones much earlier."""
QUICK_JOBS = 6000
"""At other sizes than the paper's, for the time that runs take."""
ESTIMATOR_GPUS_OF_EACH_TYPE = 4
PAPER_CONFIGS = 26
"""Configurations on one GPU in the authors' table. Numbers of references (16) are of these; of smaller tables as many
fewer."""
PHYSICAL_CLUSTER = "v100=8,p100=16,k80=24"
PHYSICAL_JOBS = 96
"""Of the authors' continuous trace; `STATIC_JOBS` of their static one."""
STATIC_JOBS = 100
PHYSICAL_HOURS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Durations on a V100 of the drawn jobs that stand for the authors' physical traces, of the same order as theirs."""
COST_JOBS, FEWER_COST_JOBS = 500, 200
"""At the paper's size, and at a smaller one."""
COST_LOAD = 0.1
"""So few jobs at a time that none waits, which the study of costs supposes."""
COST_DAYS = (0.5, 1.0, 2.0, 4.0, 8.0)
SLO_FACTORS = (1.2, 2.0, 10.0)


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large the study is."""

    gpus_of_each_type: int = 8
    seeds: tuple[int, ...] = (0, 1)
    full: bool = False
    """Whether it counts as the paper's own: other loads and other accepted ranges."""
    throughputs: str | None = None
    """A `throughputs/1` file; None: the computed table."""
    physical_trace: str | None = None
    """The authors' continuous physical trace, `traces/1`; None: drawn jobs of the same order."""
    shrink: float = 1.0
    """Numbers of jobs are so many times smaller still, for tests."""

    @property
    def gpus(self) -> int:
        return 3 * self.gpus_of_each_type

    @property
    def cluster(self) -> str:
        """As `--cluster` takes it."""
        return cluster_of(self.gpus_of_each_type)

    @property
    def window(self) -> tuple[int, int]:
        """The measured jobs, in order of arrival."""
        first, end = (self.jobs(papers) for papers in PAPER_WINDOW)
        return first, end

    def jobs(self, papers: float, gpus: int | None = None) -> int:
        """As many as the paper's number corresponds to on so many GPUs (default: this size's)."""
        return max(3, round(papers * (gpus or self.gpus) / PAPER_GPUS / self.shrink))


FULL = Size(gpus_of_each_type=PAPER_GPUS // 3, seeds=(0, 1, 2), full=True)


def cluster_of(gpus_of_each_type: int) -> str:
    """Equal numbers of the three types."""
    return ",".join(f"{gpu_type}={gpus_of_each_type}" for gpu_type in ("v100", "p100", "k80"))


class GavelPlan:
    """Makes the runs. See `study.Plan`."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.full = size.full

    @cached_property
    def rates(self) -> Throughputs:
        """The table that loads are computed from."""
        return computed_throughputs() if self.size.throughputs is None else read_throughputs(self.size.throughputs)

    def compute(self, name: str) -> dict[str, float]:
        """See `study.Plan`."""
        return COMPUTED[name](self.rates)

    def points(self, arm: Arm, seeds: int | None) -> list[Point]:
        """See `study.Plan`."""
        places = arm.full_at if self.full and arm.full_at is not None else arm.at
        chosen = self.size.seeds if self.full else self.size.seeds[:seeds]
        return [
            Point(at, replace(self._run(arm, at), seed=seed))
            for at in places or [0.0]
            for seed in (chosen if arm.workload != "physical-trace" else chosen[:1])
        ]

    def _run(self, arm: Arm, at: float) -> RunSpec:
        chosen = {"throughputs": self.size.throughputs, "cluster": self.size.cluster, **self._jobs(arm.workload, at)}
        options = arm.options
        if (references := options.get("references")) is not None:
            known = len({config for config, _ in self.rates.isolated if config[2] == 1})
            options = {**options, "references": max(1, round(references * known / PAPER_CONFIGS))}
        return RunSpec(policy=arm.policy, **{**chosen, **options})

    def _jobs(self, name: str, at: float) -> dict[str, Any]:
        """The fields of a run that say what arrives, on which cluster, and which jobs count."""
        match name:
            case "single" | "multiple":
                return self._continuous(GavelWorkload(kind=f"continuous-{name}"), at, self.size.gpus_of_each_type)
            case "priorities":
                workload = GavelWorkload(kind="continuous-multiple", high_priority_share=0.2)
                return self._continuous(workload, at, self.size.gpus_of_each_type)
            case "estimator":
                return self._continuous(GavelWorkload(), at, ESTIMATOR_GPUS_OF_EACH_TYPE)
            case "static":
                return {"workload": GavelWorkload(kind="static", jobs=self.size.jobs(at))}
            case "cost":
                return self._cost()
            case "hierarchy":
                return {
                    "workload": HierarchyWorkload(),
                    "cluster": cluster_of(3),
                    "tenant_weights": ENTITIES,
                    "keep_intervals": True,
                }
            case "physical-trace" | "physical-static":
                return self._physical(continuous=name == "physical-trace")
        raise ValueError(f"no workload is called {name!r}")

    def _continuous(self, plain: GavelWorkload, part: float, gpus_of_each_type: int) -> dict[str, Any]:
        cluster, gpus = cluster_of(gpus_of_each_type), 3 * gpus_of_each_type
        whole = sustainable_jobs_per_hour(plain, self.rates, parse_cluster(cluster).gpus)
        first, end = (self.size.jobs(papers, gpus) for papers in PAPER_WINDOW)
        jobs = self.size.jobs(PAPER_JOBS if self.full else QUICK_JOBS, gpus)
        workload = replace(plain, jobs=jobs, jobs_per_hour=round(part * whole, 4))
        return {"workload": workload, "cluster": cluster, "measure": (first, end)}

    def _cost(self) -> dict[str, Any]:
        plain = GavelWorkload(
            jobs=self.size.jobs(COST_JOBS if self.full else FEWER_COST_JOBS, PAPER_GPUS),
            table=FIGURE_1,
            duration_choices_s=tuple(days * DAY_S for days in COST_DAYS),
            slo_factors=SLO_FACTORS,
        )
        whole = sustainable_jobs_per_hour(plain, plain.rates(), parse_cluster(self.size.cluster).gpus)
        return {"workload": replace(plain, jobs_per_hour=round(COST_LOAD * whole, 4)), "throughputs": None}

    def _physical(self, *, continuous: bool) -> dict[str, Any]:
        cluster = {"cluster": PHYSICAL_CLUSTER, "round_s": 1200.0}
        if continuous and self.size.physical_trace is not None:
            return {"trace": self.size.physical_trace, **cluster}
        hours = tuple(3600 * each for each in PHYSICAL_HOURS)
        kind, jobs = ("continuous-multiple", PHYSICAL_JOBS) if continuous else ("static", STATIC_JOBS)
        workload = GavelWorkload(kind=kind, jobs=self.size.jobs(jobs, PAPER_GPUS), duration_choices_s=hours)
        if continuous:
            whole = sustainable_jobs_per_hour(workload, self.rates, parse_cluster(PHYSICAL_CLUSTER).gpus)
            workload = replace(workload, jobs_per_hour=round(0.8 * whole, 4))
        return {"workload": workload, **cluster}


def study(size: Size | None = None) -> Study:
    """All claims and pictures, at a size."""
    return study_of("gavel", table_of("gavel"), GavelPlan(size or Size()), CHAPTERS)


def _distributions(results: Sequence[Result]) -> list[Drawing]:
    high = max((result.spec.jobs_per_hour or 0.0 for result in results), default=0.0)
    at_high = [result for result in results if result.spec.jobs_per_hour == high]
    title = f"Distribution of completion times at {high:.3g} jobs per hour"
    return [completion.distribution(at_high, "fig8-cdf", title)] if at_high else []


def _over_time(results: Sequence[Result]) -> list[Drawing]:
    drawings: list[Drawing] = []
    for result in results[:1]:
        intervals = from_rows(result.document.get("intervals", ()))
        if intervals:
            drawings += [
                timelines.shares(intervals, result.spec.gpus, result.spec.tenant_weights, "fig11-shares"),
                timelines.utilisation(intervals, result.spec.gpus, "fig11-utilisation"),
            ]
    return drawings


CHAPTERS = (
    Chapter(
        "Figure 8b: distribution of completion times",
        "Completion times of the measured jobs, one GPU per job, at the high load.",
        ("fig8-jct", "fig8-sharing", "fig8-starvation"),
        _distributions,
    ),
    Chapter(
        "Figure 11a: multi-level fairness over time",
        "Three entities of weights 1, 2 and 3 on 3 V100, 3 P100 and 3 K80; six jobs of each come one after the other.",
        ("fig11-shares",),
        _over_time,
    ),
)
