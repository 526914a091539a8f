"""The workloads of the Gandiva paper's cluster experiments (OSDI'18, sections 6.3 and 6.4).

`mixed` is section 6.3's: the eight jobs of table 1, drawn in three groups by how busy they keep a GPU, 30 to 45 minutes
of GPU time each, arriving evenly over two hours. `trace` stands for section 6.4's: the ten models of table 2 in the
paper's parts, with run times distributed as in the public Philly trace; `trace-even` has exponential ones instead,
`trace-same` equal ones.

What the paper does not print is an assumption: that P100 and P40 are equally fast, the rates of table 2's models, how
wide the trace's jobs are, what gangs keep of their speed on several servers, and what two different models keep beside
each other.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations_with_replacement, pairwise

from libs.contracts.bad_input import BadInput
from libs.sim.throughputs import Config, Pair, Throughputs
from libs.sim.traces import TraceJob
from libs.studies.generators.drawn import DrawnWorkload

GPU_TYPES = ("p100", "p40")


@dataclass(frozen=True)
class Model:
    """A model of table 1 or 2."""

    name: str
    share: float
    """Of the jobs."""
    steps_per_s: float = 1.0
    utilisation: float = 1.0
    """Part of a GPU that it uses alone."""
    gain: float = -0.2
    """Of several jobs packed, over the same jobs by turns; two of them cannot gain more than 1."""
    spread: float = 0.8
    """Part of its speed that a gang keeps on several servers."""
    widths: tuple[int, ...] = (1,)
    """GPUs of a job; each is as likely as the others."""

    @property
    def kept(self) -> float:
        """Part of its speed that a job keeps beside another of its kind."""
        return (1.0 + min(self.gain, 1.0)) / 2


TABLE_1 = (
    Model("VAE", 0.15, 81.8, 0.087, 4.12),
    Model("SuperResolution", 0.15, 40.3, 0.141, 2.60),
    Model("RHN", 0.25 / 3, 10.1, 0.616, 0.46),
    Model("SCRNN", 0.25 / 3, 16.7, 0.668, 0.39),
    Model("MI-LSTM", 0.25 / 3, 22.2, 0.762, 0.17),
    Model("LSTM", 0.15, 63.8, 0.872, -0.16),
    Model("ResNet-50", 0.15, 10.3, 0.940, -0.13, widths=(2, 4)),
    Model("ResNext-50", 0.15, 83.6, 0.989, -0.11, widths=(2, 4)),
)
"""Rates, uses and gains as printed; each group's part of the jobs is divided evenly."""
_PHILLY_WIDTHS = (1,) * 14 + (2,) * 3 + (4,) * 3
"""Of the trace's jobs: most use one GPU, as in the Philly study; wider ones than a server are left out."""
TABLE_2 = (
    Model("InceptionV3", 0.10 / 4, spread=0.75, widths=_PHILLY_WIDTHS),
    Model("ResNet-50", 0.10 / 4, spread=0.8, widths=_PHILLY_WIDTHS),
    *(Model(name, 0.10 / 4, spread=0.5, widths=_PHILLY_WIDTHS) for name in ("AlexNet", "VGG16")),
    *(
        Model(name, 0.60 / 4, spread=0.6, widths=_PHILLY_WIDTHS)
        for name in ("Bi-Att-Flow", "LanguageModel", "GNMT", "Transformer")
    ),
    *(Model(name, 0.30 / 2, spread=0.7, widths=_PHILLY_WIDTHS) for name in ("WaveNet", "DeepSpeech")),
)
SHORTEST_MIN, LONGEST_MIN = 30.0, 45.0
"""GPU time of a job of table 1, over all of its GPUs."""
PHILLY_QUANTILES = (
    (0.0, 20.0),
    (0.05, 48.0),
    (0.25, 186.0),
    (0.5, 1443.0),
    (0.75, 2832.0),
    (0.9, 10724.0),
    (0.95, 34790.0),
    (0.99, 284878.0),
    (1.0, 900000.0),
)
"""(Part of the jobs, run time in seconds) of the public Philly trace; its uppermost hundredth ends at ten days."""


def _table_1_work(model: Model, width: int, luck: random.Random) -> float:
    return 60 * luck.uniform(SHORTEST_MIN, LONGEST_MIN) / width


def _philly_work(model: Model, width: int, luck: random.Random) -> float:
    return philly_s(luck.random())


def philly_s(part: float) -> float:
    """The run time that this part of the public Philly trace's jobs does not exceed."""
    for (low, shorter), (high, longer) in pairwise(PHILLY_QUANTILES):
        if part <= high:
            return math.exp(math.log(shorter) + math.log(longer / shorter) * (part - low) / (high - low))
    return PHILLY_QUANTILES[-1][1]


MEAN_S = 3600.0
"""Of the run times that are not the public trace's."""


def _even_work(model: Model, width: int, luck: random.Random) -> float:
    return luck.expovariate(1 / MEAN_S)


def _same_work(model: Model, width: int, luck: random.Random) -> float:
    return MEAN_S


@dataclass(frozen=True)
class Kind:
    """What distinguishes the workloads."""

    models: tuple[Model, ...]
    run_time_s: Callable[[Model, int, random.Random], float]


KINDS = {
    "mixed": Kind(TABLE_1, _table_1_work),
    "trace": Kind(TABLE_2, _philly_work),
    "trace-even": Kind(TABLE_2, _even_work),
    "trace-same": Kind(TABLE_2, _same_work),
}
UTILISATIONS = {model.name: model.utilisation for model in TABLE_1}


@dataclass(frozen=True, kw_only=True)
class GandivaWorkload(DrawnWorkload):
    """Jobs that arrive evenly over the time that their number takes at the mean rate."""

    kind: str = "mixed"
    jobs: int = 1000
    jobs_per_hour: float = 500.0
    faster: float = 1.0
    """Run times are divided by it: the public trace's, on a cluster of another size."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadInput("kind", repr(self.kind), f"one of {', '.join(KINDS)}")
        if self.jobs < 1:
            raise BadInput("jobs", str(self.jobs), "a whole number from 1 on")
        for name in ("jobs_per_hour", "faster"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise BadInput(name, str(value), "a number above 0")

    @property
    def arrives(self) -> bool:
        """See `DrawnWorkload`."""
        return True

    def utilisations(self) -> dict[str, float]:
        """See `DrawnWorkload`."""
        return {model.name: model.utilisation for model in KINDS[self.kind].models}

    def rates(self) -> Throughputs:
        """Of every model, and of every pair of those of table 1 on one GPU."""
        models = KINDS[self.kind].models
        isolated: dict[tuple[Config, bool], dict[str, float]] = {
            ((model.name, None, width), consolidated): dict.fromkeys(GPU_TYPES, model.steps_per_s * kept)
            for model in models
            for width in dict.fromkeys(model.widths)
            for consolidated, kept in ((True, 1.0), (False, model.spread))
        }
        one_gpu = [model for model in models if 1 in model.widths]
        pairs = [_pair(a, b, t) for t in GPU_TYPES for a, b in combinations_with_replacement(one_gpu, 2)]
        return Throughputs(list(GPU_TYPES), isolated, pairs)

    def draw(self, seed: int, throughputs: Throughputs) -> list[TraceJob]:
        """See `DrawnWorkload`."""
        luck, kind, made = random.Random(f"{seed}/gandiva/{self.kind}"), KINDS[self.kind], []
        span_s = 3600 * self.jobs / self.jobs_per_hour
        arrivals = sorted(luck.uniform(0.0, span_s) for _ in range(self.jobs))
        shares = [model.share for model in kind.models]
        for number, now_s in enumerate(arrivals):
            (model,) = luck.choices(kind.models, shares)
            config: Config = (model.name, None, luck.choice(model.widths))
            rate = throughputs.rate(config, GPU_TYPES[0], consolidated=True) or 0.0
            seconds = kind.run_time_s(model, config[2], luck) / self.faster
            made.append(
                TraceJob(
                    job_id=f"job-{number:05d}",
                    submit_time_s=round(now_s - arrivals[0], 3),
                    model=config[0],
                    gpus=config[2],
                    total_steps=max(1, round(seconds * rate)),
                )
            )
        return made


def mean_gpu_hours(kind: str) -> float:
    """GPU time of a job, in hours, before `faster`; of a drawn sample, as the distribution has no closed form."""
    workload = GandivaWorkload(kind=kind, jobs=20000)
    rates = workload.rates()
    jobs = workload.draw(0, rates)
    spent = sum(
        (job.total_steps or 0.0) / (rates.rate(job.config, GPU_TYPES[0], True) or 1.0) * job.gpus for job in jobs
    )
    return spent / len(jobs) / 3600


def _pair(a: Model, b: Model, gpu_type: str) -> Pair:
    """Two models keep the mean of what each keeps beside its own kind."""
    kept = (a.kept + b.kept) / 2
    return Pair(
        a=(a.name, None, 1),
        b=(b.name, None, 1),
        gpu_type=gpu_type,
        consolidated=True,
        a_steps_per_s=kept * a.steps_per_s,
        b_steps_per_s=kept * b.steps_per_s,
    )
