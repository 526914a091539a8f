"""The workload of Gavel's figures 11 and 21 (OSDI'20): jobs of three entities that come one after the other."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from libs.contracts.bad_input import BadInput
from libs.sim.throughputs import Throughputs
from libs.sim.traces import TraceJob
from libs.studies.generators.computed_rates import computed_throughputs
from libs.studies.generators.drawn import DrawnWorkload
from libs.studies.generators.gavel import DAY_S, configurations

ENTITIES = {"entity0": 1.0, "entity1": 2.0, "entity2": 3.0}
"""{entity: weight}, in the order in which their jobs come."""


@dataclass(frozen=True, kw_only=True)
class HierarchyWorkload(DrawnWorkload):
    """As many jobs of one GPU for each entity, all of the first one first, with weights 1 and 2 by turns."""

    jobs_of_each: int = 6
    steps_between: int = 4
    """Rounds between two arrivals."""
    round_s: float = 360.0
    days: float = 1.0
    """Of each job on a V100, long enough for all to be there together."""
    jobs_per_hour: float = math.nan

    def __post_init__(self) -> None:
        if self.jobs_of_each < 1:
            raise BadInput("jobs_of_each", str(self.jobs_of_each), "a whole number from 1 on")

    @property
    def arrives(self) -> bool:
        """See `DrawnWorkload`: not at a rate that a load could be."""
        return False

    def rates(self) -> Throughputs:
        """See `DrawnWorkload`."""
        return computed_throughputs()

    def draw(self, seed: int, throughputs: Throughputs) -> list[TraceJob]:
        """See `DrawnWorkload`."""
        luck, drawable = random.Random(f"{seed}/hierarchy"), configurations(throughputs, 1)
        made = []
        for number in range(self.jobs_of_each * len(ENTITIES)):
            config = luck.choice(drawable)
            rate = throughputs.rate(config, "v100", consolidated=True) or 0.0
            made.append(
                TraceJob(
                    job_id=f"job-{number:05d}",
                    submit_time_s=number * self.steps_between * self.round_s,
                    tenant=list(ENTITIES)[number // self.jobs_of_each],
                    model=config[0],
                    batch_size=config[1],
                    gpus=1,
                    total_steps=max(1, round(self.days * DAY_S * rate)),
                    weight=1.0 + number % 2,
                )
            )
        return made
