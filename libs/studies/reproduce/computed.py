"""Claims that need no runs: they follow from the table of rates, or from the answer to one question of allocation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

from libs.policies.allocation.solve import solve
from libs.policies.problem import Entity, GpuPool, Job, PolicyOptions, Problem, Solution
from libs.sim.throughputs import Throughputs
from libs.studies.generators.gavel import configurations
from libs.studies.generators.hierarchy import ENTITIES, HierarchyWorkload

FIGURE1_PRICES = {"v100": 2.85, "p100": 1.68, "k80": 0.52}
"""Dollars an hour, of the notebook behind Gavel's figure 1b."""
FIGURE11_STEPS = 72
"""Over which figure 11 reaches; a job arrives at every fourth."""
Computed = Callable[[Throughputs], dict[str, float]]
"""{role: value} from a table of rates."""


def _speed_up(model: str, fast: str = "v100", slow: str = "k80") -> Computed:
    """How many times faster a model is on one type than on another; largest batch size that both have."""

    def computed(rates: Throughputs) -> dict[str, float]:
        by_type = [rates.isolated[config, True] for config in configurations(rates, 1, fast, (model,))]
        both = [row for row in by_type if row.get(fast) and row.get(slow)]
        return {"base": both[-1][slow], "tested": both[-1][fast]}

    return computed


def _per_dollar(model: str) -> Computed:
    """Work per dollar on a V100 against a K80."""

    def computed(rates: Throughputs) -> dict[str, float]:
        plain = _speed_up(model)(rates)
        prices = {"base": FIGURE1_PRICES["k80"], "tested": FIGURE1_PRICES["v100"]}
        return {role: rate / prices[role] for role, rate in plain.items()}

    return computed


def _las_example(rates: Throughputs) -> dict[str, float]:
    """Section 4.1's three jobs on one V100 and one K80: the least normalised throughput, over the isolated one."""
    rows = {"a": (4.0, 1.0), "b": (3.0, 1.0), "c": (2.0, 1.0)}
    jobs = [Job(id=name, throughputs={"v100": fast, "k80": slow}) for name, (fast, slow) in rows.items()]
    cluster = {"v100": GpuPool(gpus=1), "k80": GpuPool(gpus=1)}

    def least(policy: str) -> float:
        made = _rates_of(solve(Problem(policy=policy, cluster=cluster, jobs=jobs)), jobs)
        return min(made[job.id] / sum(job.throughputs.values()) for job in jobs)

    return {"base": least("isolated"), "tested": least("max_min_fairness")}


def _water_filling(rates: Throughputs) -> dict[str, float]:
    """Section 4.3's four jobs of weights 3, 1, 1, 1 on four GPUs: the smallest time share, with and without it."""
    jobs = [Job(id=str(place), throughputs={"v100": 1.0}, weight=w) for place, w in enumerate((3.0, 1.0, 1.0, 1.0))]

    def least(filled: bool) -> float:
        options = PolicyOptions(water_filling=filled)
        cluster = {"v100": GpuPool(gpus=4)}
        found = solve(Problem(policy="max_min_fairness", cluster=cluster, jobs=jobs, options=options))
        return min(_rates_of(found, jobs).values())

    return {"base": 1.0 / 3.0, "tested": least(filled=True)}


def _aware_hierarchy(inside: str) -> Computed:
    """Figure 11b: total effective throughput over the steps, without and with knowledge of the types."""

    def computed(rates: Throughputs) -> dict[str, float]:
        return {
            "base": sum(_effective(rates, step, inside, aware=False) for step in range(FIGURE11_STEPS)),
            "tested": sum(_effective(rates, step, inside, aware=True) for step in range(FIGURE11_STEPS)),
        }

    return computed


def _effective(rates: Throughputs, step: int, inside: str, *, aware: bool) -> float:
    jobs = _present(rates, step)
    made = _rates_of(_hierarchical(jobs, inside, aware=aware), jobs)
    return sum(made[job.id] / max(job.throughputs.values()) for job in jobs)


def _in_order(rates: Throughputs) -> dict[str, float]:
    """Figure 21: the part of the steps at which no job of an entity is behind a later one of it, by time on GPUs."""

    def part(inside: str) -> float:
        kept = 0
        for step in range(FIGURE11_STEPS):
            jobs = _present(rates, step)
            time = _time_of(_hierarchical(jobs, inside, aware=True), jobs)
            by_entity = ([time[job.id] for job in jobs if job.entity == name] for name in ENTITIES)
            kept += all(a >= b - 1e-6 for times in by_entity for a, b in pairwise(times))
        return kept / FIGURE11_STEPS

    return {"base": part("fairness"), "tested": part("fifo")}


def _present(rates: Throughputs, step: int) -> list[Job]:
    """The jobs of figure 11 that have arrived by a step."""
    workload = HierarchyWorkload()
    drawn = workload.draw(0, rates)[: step // workload.steps_between + 1]
    return [
        Job(
            id=job.job_id,
            throughputs=dict(rates.isolated[job.config, True]),
            weight=job.weight or 1.0,
            entity=job.tenant,
        )
        for job in drawn
    ]


def _hierarchical(jobs: list[Job], inside: str, *, aware: bool) -> Solution:
    return solve(
        Problem(
            policy="hierarchical",
            cluster={t: GpuPool(gpus=3) for t in ("v100", "p100", "k80")},
            jobs=jobs,
            entities={name: Entity(weight=weight, policy=inside) for name, weight in ENTITIES.items()},
            options=PolicyOptions(heterogeneity_aware=aware),
        )
    )


def _rates_of(solution: Solution, jobs: list[Job]) -> dict[str, float]:
    """Steps per second of each job."""
    made = dict.fromkeys((job.id for job in jobs), 0.0)
    by_id = {job.id: job for job in jobs}
    for share in solution.allocation:
        (job_id,) = share.jobs
        made[job_id] += sum(by_id[job_id].throughputs.get(t, 0.0) * x for t, x in share.time.items())
    return made


def _time_of(solution: Solution, jobs: list[Job]) -> dict[str, float]:
    time = dict.fromkeys((job.id for job in jobs), 0.0)
    for share in solution.allocation:
        time[share.jobs[0]] += sum(share.time.values())
    return time


COMPUTED: Mapping[str, Computed] = {
    "speed-up-resnet50": _speed_up("ResNet-50"),
    "speed-up-a3c": _speed_up("A3C"),
    "speed-up-transformer": _speed_up("Transformer"),
    "speed-up-cyclegan": _speed_up("CycleGAN"),
    "speed-up-resnet18": _speed_up("ResNet-18"),
    "per-dollar-a3c": _per_dollar("A3C"),
    "per-dollar-resnet50": _per_dollar("ResNet-50"),
    "las-example": _las_example,
    "water-filling": _water_filling,
    "aware-hierarchy": _aware_hierarchy("fairness"),
    "aware-hierarchy-fifo": _aware_hierarchy("fifo"),
    "in-order": _in_order,
}
"""By the names that tables of claims use."""
