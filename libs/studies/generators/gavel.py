"""The workloads of the Gavel paper (OSDI'20, section 7.1).

Jobs are of configurations drawn uniformly from a throughput table. Their durations, on dedicated GPUs of the
reference type, are 10^x minutes, x uniform in 1.5 to 3 for 80 % of the jobs and in 3 to 4 for the others; duration
times rate gives their number of steps. They arrive as a Poisson process, or all at once.

Seeds and the order of draws are those of the authors' simulator (github.com/stanford-futuredata/gavel). With their
throughput table a seed gives the very jobs that it gives there, so that figures of both can be compared run by run.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from libs.contracts.bad_input import BadInput
from libs.sim.throughputs import Config, Throughputs
from libs.sim.traces import TraceJob
from libs.sim.workloads import GPU_MIX
from libs.studies.generators.computed_rates import computed_throughputs
from libs.studies.generators.drawn import DrawnWorkload

ONE_GPU = ((1, 100),)
SHORT, LONG = (1.5, 3.0), (3.0, 4.0)
"""Exponents of durations in minutes."""
SHORT_SHARE = 0.8
DAY_S = 86400.0
MODEL_ORDER = ("ResNet-18", "ResNet-50", "Transformer", "LM", "Recommendation", "A3C", "CycleGAN")
"""In which the authors draw from their models; others come after these."""


COMPUTED, FIGURE_1 = "computed", "figure-1"
FIGURE_1_RATES: dict[Config, dict[str, float]] = {
    ("ResNet-50", None, 1): {"k80": 1.0, "p100": 3.7, "v100": 9.6},
    ("A3C", None, 1): {"k80": 1.0, "p100": 1.2, "v100": 2.2},
}
"""Relative to a K80, as the points of the paper's figure 1a have them: one configuration of each of the two models that
its study of costs draws from."""


def figure_1_throughputs() -> Throughputs:
    """The rates of figure 1a."""
    isolated = {(config, True): dict(rates) for config, rates in FIGURE_1_RATES.items()}
    return Throughputs(["v100", "p100", "k80"], isolated, [])


TABLES: dict[str, Callable[[], Throughputs]] = {COMPUTED: computed_throughputs, FIGURE_1: figure_1_throughputs}


@dataclass(frozen=True)
class Kind:
    """What distinguishes the workloads of the paper."""

    arrives: bool
    """False: all jobs are there from the start."""
    gpu_mix: tuple[tuple[int, int], ...]
    """Pairs of GPUs and weight."""


KINDS = {
    "continuous-single": Kind(arrives=True, gpu_mix=ONE_GPU),
    "continuous-multiple": Kind(arrives=True, gpu_mix=GPU_MIX),
    "static": Kind(arrives=False, gpu_mix=GPU_MIX),
    "static-single": Kind(arrives=False, gpu_mix=ONE_GPU),
}


@dataclass(frozen=True, kw_only=True)
class GavelWorkload(DrawnWorkload):
    """A workload to be drawn. The fields after `reference` have defaults that are the paper's plain setting."""

    kind: str = "continuous-single"
    jobs: int = 1000
    jobs_per_hour: float = 5.0
    """Mean rate of arrivals; without meaning for `static`."""
    reference: str = "v100"
    """The GPU type on which durations are meant."""
    models: tuple[str, ...] = ()
    """Only configurations of these models; empty: of all."""
    duration_choices_s: tuple[float, ...] = ()
    """Durations drawn uniformly from these instead of the paper's distribution."""
    high_priority_share: float = 0.0
    """Part of the jobs that have `high_priority_weight` instead of weight 1."""
    high_priority_weight: float = 5.0
    slo_factors: tuple[float, ...] = ()
    """Each job's deadline is one of these times its duration, from its submission; empty: no deadlines."""
    tenants: tuple[str, ...] = ("default",)
    """Or entities; drawn uniformly."""
    table: str = COMPUTED
    """Of rates, for users without a measured one: a key of `TABLES`."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadInput("kind", repr(self.kind), f"one of {', '.join(KINDS)}")
        if self.jobs < 1:
            raise BadInput("jobs", str(self.jobs), "a whole number from 1 on")
        if KINDS[self.kind].arrives and not (math.isfinite(self.jobs_per_hour) and self.jobs_per_hour > 0):
            raise BadInput("jobs_per_hour", str(self.jobs_per_hour), "a number above 0")
        if not 0 <= self.high_priority_share <= 1:
            raise BadInput("high_priority_share", str(self.high_priority_share), "a number from 0 to 1")
        if self.table not in TABLES:
            raise BadInput("table", repr(self.table), f"one of {', '.join(TABLES)}")
        if not self.tenants:
            raise BadInput("tenants", "an empty list", "at least one name")

    @property
    def arrives(self) -> bool:
        """See `DrawnWorkload`."""
        return KINDS[self.kind].arrives

    def rates(self) -> Throughputs:
        """See `DrawnWorkload`."""
        return TABLES[self.table]()

    def draw(self, seed: int, throughputs: Throughputs) -> list[TraceJob]:
        """See `DrawnWorkload`."""
        luck = _Luck(seed)
        counts = [count for count, _ in KINDS[self.kind].gpu_mix]
        drawable = {
            count: configurations(throughputs, count, self.reference, self.models) for count in sorted({1, *counts})
        }
        made, now_s = [], 0.0
        for number in range(self.jobs):
            made.append(self._job(number, now_s, luck, drawable, throughputs))
            if self.arrives:
                now_s += luck.arrival.expovariate(self.jobs_per_hour / 3600)
        return made

    def _job(
        self,
        number: int,
        submit_time_s: float,
        luck: _Luck,
        drawable: Mapping[int, list[Config]],
        throughputs: Throughputs,
    ) -> TraceJob:
        gpus = _of_mix(KINDS[self.kind].gpu_mix, luck.job.random())
        duration_s = self._duration_s(luck.job)
        config = _scaled(luck.job.choice(drawable[1]), gpus)
        while config not in drawable[gpus]:
            config = _scaled(luck.job.choice(drawable[1]), gpus)
        urgent = self.high_priority_share > 0 and luck.job.random() <= self.high_priority_share
        factor = luck.slo.choice(self.slo_factors) if self.slo_factors else None
        return TraceJob(
            job_id=f"job-{number:05d}",
            submit_time_s=round(submit_time_s, 3),
            tenant=luck.tenant.choice(self.tenants),
            model=config[0],
            batch_size=config[1],
            gpus=gpus,
            total_steps=max(1, round(duration_s * _rate(throughputs, config, self.reference))),
            weight=self.high_priority_weight if urgent else None,
            deadline_s=None if factor is None else round(factor * duration_s, 3),
        )

    def _duration_s(self, luck: random.Random) -> float:
        if self.duration_choices_s:
            return luck.choice(self.duration_choices_s)
        low, high = SHORT if luck.random() < SHORT_SHARE else LONG
        return float(60 * 10 ** luck.uniform(low, high))


class _Luck:
    """The random generators, seeded as the authors seed theirs."""

    def __init__(self, seed: int) -> None:
        self.job = random.Random(seed + 2)
        self.arrival = random.Random(seed + 3)
        self.slo = random.Random(seed + 6)
        self.tenant = random.Random(f"{seed}/tenant")


def _of_mix(mix: tuple[tuple[int, int], ...], at: float) -> int:
    """The number of GPUs at this point, 0 to 1, of the cumulated weights."""
    whole, passed = sum(weight for _, weight in mix), 0
    for count, weight in mix:
        passed += weight
        if at * whole < passed:
            return count
    return mix[-1][0]


def _scaled(config: Config, gpus: int) -> Config:
    return config[0], config[1], gpus


def configurations(
    throughputs: Throughputs, gpus: int, reference: str = "v100", models: tuple[str, ...] = ()
) -> list[Config]:
    """The configurations that can be drawn for this number of GPUs: by `MODEL_ORDER`, then batch size.

    Raises:
        BadInput: there is none.
    """
    found = [
        config
        for config in dict.fromkeys(config for config, _ in throughputs.isolated)
        if config[2] == gpus and (not models or config[0] in models) and _rate(throughputs, config, reference) > 0
    ]
    if not found:
        which = f" of {', '.join(models)}" if models else ""
        raise BadInput(
            "the throughput table", f"no configuration{which} on {gpus} {reference}", "at least one with a rate"
        )
    return sorted(found, key=_order)


def _order(config: Config) -> tuple[int, str, int]:
    model, batch_size, _ = config
    place = MODEL_ORDER.index(model) if model in MODEL_ORDER else len(MODEL_ORDER)
    return place, model, batch_size or 0


def _rate(throughputs: Throughputs, config: Config, gpu_type: str) -> float:
    return throughputs.rate(config, gpu_type, consolidated=True) or 0.0


def mean_duration_s() -> float:
    """Of the paper's distribution, on the reference type."""

    def mean_minutes(low: float, high: float) -> float:
        return float((10**high - 10**low) / math.log(10) / (high - low))

    return 60 * (SHORT_SHARE * mean_minutes(*SHORT) + (1 - SHORT_SHARE) * mean_minutes(*LONG))
