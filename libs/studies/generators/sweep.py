"""Hyper-parameter searches on artificial learning curves, after the Gandiva paper (OSDI'18, sections 6.2 and 6.4).

The paper gives how many configurations there are, at which place the first good one comes, and how long a search takes;
not the curves. Here every trial but one ends somewhere between a floor and a little below the target, drawn evenly, and
the trial at the given place passes the target at a given part of its length. The order of the trials, and so the place
of the good one, is the same whatever schedules them.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from libs.contracts.bad_input import BadInput
from libs.contracts.gateway import SweepArrived
from libs.contracts.jobs import GpuRequest, JobSpec, SimulatedWork
from libs.contracts.searching import Objective, Parameter, Pruner, Sampler, Scale, SweepSpec
from libs.sim.learning import LearningCurve
from libs.sim.throughputs import Config, Throughputs
from libs.sim.traces import TraceJob
from libs.sim.workloads import Planned
from libs.studies.generators.drawn import DrawnWorkload

SPACE = {"configuration": Parameter(scale=Scale.INT, low=0.0, high=1e6)}
"""Which configuration a trial has does not matter: its number says how good it is."""
METRIC, MODEL = "accuracy", "trial"
CHANCE = 0.1
"""Accuracy of a guess among ten classes."""
SHORT_OF_TARGET = 0.04
"""How far below the target the best of the other trials ends."""
BEYOND_TARGET = 0.03
"""How far above it the curve of the good trial tends."""
BEND = 0.7
GPU_TYPES = ("p100", "p40")


@dataclass(frozen=True, kw_only=True)
class SweepWorkload(DrawnWorkload):
    """One or more searches, beside jobs that hold the rest of the cluster."""

    trials: int = 374
    place: int = 365
    """Of the first trial that reaches the target, counted from 1; 0: none does."""
    target: float = 0.84
    floor: float = 0.25
    """What the worst trial ends at."""
    good_at: float = 0.9
    """Part of its length at which the good trial reaches the target."""
    trial_s: float = 1800.0
    """Length of a trial on GPUs of its own."""
    reports: int = 33
    """Of a trial: one every 3 % of its length."""
    gpus: int = 1
    """Of each trial."""
    spread: float = 1.0
    """Part of its speed that a trial keeps on several servers."""
    searches: int = 1
    begin_s: float = 0.0
    at_once: int | None = None
    """Trials under way together; None: all."""
    favourites: int = 0
    give_up_below: float | None = None
    """Trials with curves that promise less are given up; None: those that do not promise the target."""
    others: int = 0
    """Jobs of one GPU each that are there first and outlast the searches, but for every n-th, see `gaps`."""
    gaps: int = 0
    """Every so-manieth of the others ends as the searches begin, so that what is free lies scattered; 0: none."""
    others_s: float = 90000.0
    noise: float = 0.01
    jobs_per_hour: float = math.nan

    def __post_init__(self) -> None:
        for name in ("trials", "reports", "gpus", "searches"):
            if getattr(self, name) < 1:
                raise BadInput(name, str(getattr(self, name)), "a whole number from 1 on")

    @property
    def arrives(self) -> bool:
        """See `DrawnWorkload`."""
        return False

    def rates(self) -> Throughputs:
        """Of trials; other jobs are given by their length."""
        isolated: dict[tuple[Config, bool], dict[str, float]] = {
            ((MODEL, None, self.gpus), together): dict.fromkeys(GPU_TYPES, 1.0 if together else self.spread)
            for together in (True, False)
        }
        return Throughputs(list(GPU_TYPES), isolated, [])

    def draw(self, seed: int, throughputs: Throughputs) -> list[TraceJob]:
        """See `DrawnWorkload`: the jobs beside the searches; trials are the searches' own."""
        return [
            TraceJob(
                job_id=f"other-{number:03d}",
                submit_time_s=0.0,
                gpus=1,
                duration_s=self.begin_s if self.gaps and number % self.gaps == 0 else self.others_s,
            )
            for number in range(self.others)
        ]

    def requests(self, seed: int) -> list[Planned]:
        """The searches; the same seed gives the same trials, whatever else is asked for."""
        found = [
            SweepArrived(sweep_id=f"s-{number}", spec=self._search(f"{seed}-{number}", seed), submitted_by="study")
            for number in range(self.searches)
        ]
        return [Planned(self.begin_s, each) for each in found]

    def _search(self, name: str, seed: int) -> SweepSpec:
        trial = JobSpec(
            name="trial",
            command=["simulated"],
            gpus=GpuRequest(count=self.gpus),
            simulated=SimulatedWork(model=MODEL, total_steps=self.trial_s),
            total_steps=self.trial_s,
        )
        return SweepSpec(
            name=name,
            trial=trial,
            space=SPACE,
            objective=Objective(metric=METRIC, target=self.target),
            trials=self.trials,
            at_once=self.at_once,
            sampler=Sampler.RANDOM,
            pruner=Pruner.CURVE,
            give_up_below=self.give_up_below,
            last_step=float(self.reports),
            favourites=self.favourites,
            seed=seed,
        )

    def surface(self, spec: JobSpec) -> LearningCurve | None:
        """How the trial of this number learns."""
        search, _, number = spec.name.rpartition("-")
        if "trial" not in spec.labels:
            return None
        luck = random.Random(f"{search}/{number}")
        good = int(number) + 1 == self.place
        drawn = luck.uniform(self.floor, self.target - SHORT_OF_TARGET)
        limit = self.target + BEYOND_TARGET if good else drawn
        passed = math.log((self.target + BEYOND_TARGET - CHANCE) / BEYOND_TARGET)
        return LearningCurve(
            metric=METRIC,
            reports=self.reports,
            first=CHANCE,
            limit=limit,
            rate=passed / (max(2.0, self.good_at * self.reports) - 1) ** BEND,
            bend=BEND,
            noise=self.noise,
        )
