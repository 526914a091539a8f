"""One hyper-parameter search on an artificial surface, after the AutoML study of the Gandiva paper (section 6.3).

The paper trained ResNet-like networks on CIFAR-10. Here a trial's curve follows from how far its parameters lie from
the best ones; curves of good trials rise sooner as well, as they do in practice, and reports are noisy.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from libs.contracts.bad_input import BadInput
from libs.contracts.base import Event
from libs.contracts.gateway import SweepArrived
from libs.contracts.jobs import GpuRequest, JobSpec, SimulatedWork
from libs.contracts.searching import PARAMETERS_VARIABLE, Objective, Parameter, Pruner, Sampler, Scale, SweepSpec
from libs.sim.learning import LearningCurve
from libs.sim.throughputs import NO_THROUGHPUTS, Throughputs
from libs.sim.traces import TraceJob
from libs.studies.generators.drawn import DrawnWorkload

SPACE = {
    "lr": Parameter(scale=Scale.FLOAT, low=1e-4, high=10.0, log=True),
    "weight_decay": Parameter(scale=Scale.FLOAT, low=1e-6, high=1e-1, log=True),
    "depth": Parameter(scale=Scale.INT, low=8.0, high=56.0, step=6.0),
}
BEST = {"lr": 0.1, "weight_decay": 5e-4}
WIDTH = {"lr": 0.9, "weight_decay": 2.0}
"""Decades away from the best value at which a trial is e times worse."""
METRIC = "accuracy"
CHANCE = 0.1
"""Accuracy of a guess among ten classes."""
MOST = 0.95
"""No trial is better."""


@dataclass(frozen=True, kw_only=True)
class SweepWorkload(DrawnWorkload):
    """All trials are there from the start, and so many at once as is asked for."""

    trials: int = 100
    trial_s: float = 3600.0
    """Alone on a GPU, to the last report."""
    reports: int = 60
    target: float = 0.9
    pruned: bool = True
    """Whether trials with curves that promise nothing are given up."""
    favourites: int = 0
    noise: float = 0.01
    jobs_per_hour: float = math.nan

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise BadInput("trials", str(self.trials), "a whole number from 1 on")

    @property
    def arrives(self) -> bool:
        """See `DrawnWorkload`."""
        return False

    def rates(self) -> Throughputs:
        """See `DrawnWorkload`."""
        return NO_THROUGHPUTS

    def draw(self, seed: int, throughputs: Throughputs) -> list[TraceJob]:
        """See `DrawnWorkload`: the jobs are the sweep's."""
        return []

    def requests(self, seed: int) -> list[Event]:
        """The sweep; the same seed tries the same parameters, whatever else is asked for."""
        trial = JobSpec(
            name="trial",
            command=["simulated"],
            gpus=GpuRequest(count=1),
            simulated=SimulatedWork(duration_s=self.trial_s),
            total_steps=self.trial_s,
        )
        spec = SweepSpec(
            name="automl",
            trial=trial,
            space=SPACE,
            objective=Objective(metric=METRIC, target=self.target),
            trials=self.trials,
            sampler=Sampler.RANDOM,
            pruner=Pruner.CURVE if self.pruned else Pruner.NONE,
            last_step=float(self.reports),
            favourites=self.favourites,
            seed=seed,
        )
        return [SweepArrived(sweep_id="s-automl", spec=spec, submitted_by="study")]

    def surface(self, spec: JobSpec) -> LearningCurve | None:
        """How a trial with these parameters learns."""
        parameters = json.loads(spec.env.get(PARAMETERS_VARIABLE, "null"))
        if parameters is None:
            return None
        quality = math.exp(
            -sum((math.log10(parameters[name] / best) / WIDTH[name]) ** 2 for name, best in BEST.items())
        )
        return LearningCurve(
            metric=METRIC,
            reports=self.reports,
            first=CHANCE + 0.25 * quality,
            limit=min(MOST, CHANCE + 0.6 * quality + 0.0055 * parameters["depth"] * quality),
            rate=0.15 + 0.15 * quality,
            bend=0.7,
            noise=self.noise,
        )
