"""A workload of small jobs that use their GPUs to very different degrees, after table 1 of the Gandiva paper (OSDI'18).

What packing gains is the paper's for the first and the fourth model; the other gains, the rates of mini-batches, the
utilisations, what two different models keep beside each other, and what gangs keep on several servers are assumptions
of about its size.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import combinations_with_replacement

from libs.contracts.bad_input import BadInput
from libs.sim.throughputs import Config, Pair, Throughputs
from libs.sim.traces import TraceJob
from libs.studies.generators.drawn import DrawnWorkload

GPU_TYPE = "p40"


@dataclass(frozen=True)
class Model:
    """A row of the table."""

    name: str
    steps_per_s: float
    utilisation: float
    """Part of a GPU that it uses alone."""
    gain: float
    """Of several jobs packed, over the same jobs by turns; two of them cannot gain more than 1."""
    spread: float
    """Part of its speed that a gang keeps on several servers."""

    @property
    def kept(self) -> float:
        """Part of its speed that a job keeps beside another of its kind."""
        return (1.0 + min(self.gain, 1.0)) / 2


MODELS = (
    Model("VAE", 100.0, 0.12, 4.12, spread=0.8),
    Model("SuperResolution", 14.0, 0.14, 1.45, spread=0.8),
    Model("RHN", 2.0, 0.62, 0.11, spread=0.5),
    Model("LSTM", 10.0, 0.77, -0.16, spread=0.5),
    Model("ResNet-50", 3.0, 0.98, -0.10, spread=0.6),
)
WIDTHS = (1, 1, 1, 1, 2, 2, 4, 4)
"""GPUs of a gang; each is as likely as the others."""
UTILISATIONS = {model.name: model.utilisation for model in MODELS}
SHORTEST_H, LONGEST_H = 0.25, 1.75


@dataclass(frozen=True, kw_only=True)
class GandivaWorkload(DrawnWorkload):
    """Jobs of all models alike, of a quarter of an hour to an hour and three quarters alone on their GPUs."""

    jobs: int = 1000
    jobs_per_hour: float = 270.0
    """Mean rate of arrivals."""
    gangs: bool = False
    """Half of the jobs use two or four GPUs; else all use one."""

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise BadInput("jobs", str(self.jobs), "a whole number from 1 on")
        if not (math.isfinite(self.jobs_per_hour) and self.jobs_per_hour > 0):
            raise BadInput("jobs_per_hour", str(self.jobs_per_hour), "a number above 0")

    @property
    def arrives(self) -> bool:
        """See `DrawnWorkload`."""
        return True

    def rates(self) -> Throughputs:
        """Of every model, and of every pair of them."""
        isolated = {
            (_config(model, width), consolidated): {GPU_TYPE: model.steps_per_s * kept}
            for model in MODELS
            for width in (dict.fromkeys(WIDTHS) if self.gangs else (1,))
            for consolidated, kept in ((True, 1.0), (False, model.spread))
        }
        return Throughputs([GPU_TYPE], isolated, [_pair(a, b) for a, b in combinations_with_replacement(MODELS, 2)])

    def draw(self, seed: int, throughputs: Throughputs) -> list[TraceJob]:
        """See `DrawnWorkload`."""
        luck, made, now_s = random.Random(f"{seed}/gandiva"), [], 0.0
        for number in range(self.jobs):
            config = _config(luck.choice(MODELS), luck.choice(WIDTHS) if self.gangs else 1)
            hours = luck.uniform(SHORTEST_H, LONGEST_H)
            rate = throughputs.rate(config, GPU_TYPE, consolidated=True) or 0.0
            made.append(
                TraceJob(
                    job_id=f"job-{number:05d}",
                    submit_time_s=round(now_s, 3),
                    model=config[0],
                    gpus=config[2],
                    total_steps=max(1, round(3600 * hours * rate)),
                )
            )
            now_s += luck.expovariate(self.jobs_per_hour / 3600)
        return made


def _config(model: Model, gpus: int = 1) -> Config:
    return (model.name, None, gpus)


def _pair(a: Model, b: Model) -> Pair:
    """Two models keep the mean of what each keeps beside its own kind."""
    kept = (a.kept + b.kept) / 2
    return Pair(
        a=_config(a),
        b=_config(b),
        gpu_type=GPU_TYPE,
        consolidated=True,
        a_steps_per_s=kept * a.steps_per_s,
        b_steps_per_s=kept * b.steps_per_s,
    )
