"""The workloads of the AntMan paper (OSDI'20, sections 5.1 to 5.3).

`table-2` and `figure-12` are two jobs on one GPU. `trace` stands for section 5.2's: nine models in five fields of equal
parts, run times distributed as in the public Philly trace, two tenants at random, one with the quota of all GPUs, the
other with none. `week` stands for a week of a production cluster: gangs as well, and jobs that use little of their
GPUs. `queue` is such a cluster by the jobs of a recorded trace, or with as few gangs as that has.

What the paper does not print is an assumption: how wide jobs are, how many, that no job of the experiment takes longer
than a day alone, how busy models keep their GPUs (`antman_models.py`), and which models a production cluster trains.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from libs.contracts.bad_input import BadInput
from libs.contracts.base import Event
from libs.contracts.gateway import TenantConfigured
from libs.contracts.jobs import JobClass
from libs.sim.sharing.demands import JobModels
from libs.sim.throughputs import Config, Throughputs
from libs.sim.traces import TraceJob, read_trace
from libs.sim.workloads import Planned
from libs.studies.generators.antman_models import FIELDS, MODELS
from libs.studies.generators.drawn import DrawnWorkload
from libs.studies.generators.gandiva import philly_s

GPU_TYPE = "v100-32g"
GUARANTEED, OPPORTUNISTIC = "tenant-a", "tenant-b"
TRACE_WIDTHS = ((1, 14), (2, 3), (4, 3))
WEEK_WIDTHS = ((1, 60), (2, 15), (4, 12), (8, 10), (16, 3))
"""GPUs of a job, and how often: most use one, as in the Philly study."""
QUEUE_WIDTHS = ((1, 99), (8, 1))
"""The same of the public trace of a later production cluster (Alibaba, cluster-trace-gpu-v2023)."""
WEEK_MODELS = (
    ("Wide & Deep", 30),
    ("DIN", 20),
    ("GCN", 12),
    ("GraphSAGE", 12),
    ("SuperResolution", 8),
    ("ESPnet", 8),
    ("ResNet-50", 4),
    ("Bert", 3),
    ("VGG16", 3),
)
"""Of a production cluster: most of its jobs are of recommendation and advertising, and use little of their GPUs."""
MINUTE_S = 60.0
ALONE_S = {"table-2": (43.0 * MINUTE_S, 91.1 * MINUTE_S), "figure-12": (3600.0, 20.1 * MINUTE_S)}
"""Of the opportunistic and of the guaranteed job: table 2's FIFO and Preempt, and figure 12's text; how long the
opportunistic one of figure 12 would take alone is not printed, and longer than the other one takes."""


@dataclass(frozen=True, kw_only=True)
class AntmanWorkload(DrawnWorkload):
    """Jobs that arrive evenly over the time in which the cluster could do their work at the load."""

    kind: str = "trace"
    jobs: int = 400
    gpus: int = 64
    load: float = 1.3
    """GPU time that is asked for, over what the cluster's GPUs have while jobs arrive."""
    longest_s: float = 86400.0
    """Longer jobs are cut to it."""
    faster: float = 1.0
    """Run times are divided by it."""
    guaranteed_share: float = 0.5
    """Of the jobs."""
    quota: int | None = None
    """Of the tenant with guaranteed jobs; None: all GPUs."""
    trace: str | None = None
    """A `traces/1` file with the jobs of `queue`, their classes and times; None: drawn."""
    profiled: bool = False
    """Whether it is known what jobs ask of GPUs before they run; and then no job is more than another: all are
    opportunistic."""

    def __post_init__(self) -> None:
        if self.kind not in ("trace", "week", "queue", *ALONE_S):
            raise BadInput("kind", repr(self.kind), f"one of trace, week, queue, {', '.join(ALONE_S)}")
        for name in ("jobs", "gpus", "load", "longest_s", "faster"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise BadInput(name, str(value), "a number above 0")

    @property
    def arrives(self) -> bool:
        """See `DrawnWorkload`."""
        return True

    @property
    def jobs_per_hour(self) -> float:  # type: ignore[override]
        """The load, in the place of a rate that differs from seed to seed."""
        return self.load

    def demands(self) -> JobModels:
        """See `DrawnWorkload`."""
        return MODELS

    def rates(self) -> Throughputs:
        """A step is a mini-batch of all of a job's GPUs."""
        isolated: dict[tuple[Config, bool], dict[str, float]] = {
            ((name, None, width), True): {GPU_TYPE: 1.0 / model.usual.minibatch_s}
            for name, model in MODELS.models.items()
            for width in (1, 2, 4, 8, 16)
        }
        return Throughputs([GPU_TYPE], isolated, [])

    def requests(self, seed: int) -> list[Planned]:
        """The tenants' quotas."""
        asked: list[Event] = [
            TenantConfigured(tenant=GUARANTEED, gpu_limit=self.quota or self.gpus, requested_by="experiment")
        ]
        return [Planned(0.0, event) for event in asked]

    def draw(self, seed: int, throughputs: Throughputs) -> list[TraceJob]:
        """See `DrawnWorkload`."""
        if self.kind in ALONE_S:
            return self._two(throughputs)
        luck = random.Random(f"{seed}/antman/{self.kind}")
        if self.trace is not None:
            return [self._of_trace(job, luck) for job in read_trace(self.trace, warn=lambda sentence: None)]
        drawn = [self._drawn(luck) for _ in range(self.jobs)]
        asked_s = sum(seconds * width for _, width, seconds in drawn)
        span_s = asked_s / (self.gpus * self.load)
        arrivals = sorted(luck.uniform(0.0, span_s) for _ in drawn)
        classes = [luck.random() < self.guaranteed_share for _ in drawn]
        return [
            self._job(number, arrivals[number] - arrivals[0], *drawn[number], classes[number], throughputs)
            for number in range(self.jobs)
        ]

    def _drawn(self, luck: random.Random) -> tuple[str, int, float]:
        """(Model, GPUs, run time alone)."""
        if self.kind == "trace":
            name, _ = luck.choice(luck.choice(FIELDS))
            width = _weighted(luck, TRACE_WIDTHS)
        else:
            names, weights = zip(*WEEK_MODELS, strict=True)
            (name,) = luck.choices(names, weights)
            width = _weighted(luck, WEEK_WIDTHS if self.kind == "week" else QUEUE_WIDTHS)
        return name, width, min(self.longest_s, philly_s(luck.random())) / self.faster

    def _job(
        self,
        number: int,
        submit_s: float,
        model: str,
        width: int,
        seconds: float,
        guaranteed: bool,
        throughputs: Throughputs,
    ) -> TraceJob:
        rate = throughputs.rate((model, None, width), GPU_TYPE, consolidated=True) or 0.0
        owner = guaranteed and not self.profiled
        found = MODELS.of(model)
        return TraceJob(
            job_id=f"job-{number:05d}",
            submit_time_s=round(submit_s, 3),
            tenant=GUARANTEED if guaranteed else OPPORTUNISTIC,
            job_class=JobClass.GUARANTEED if owner else JobClass.OPPORTUNISTIC,
            model=model,
            gpus=width,
            total_steps=max(1, round(seconds * rate)),
            profiled_utilisation=found.busy_ratio if self.profiled else None,
            profiled_memory_bytes=found.peak_bytes if self.profiled else 0,
        )

    def _of_trace(self, job: TraceJob, luck: random.Random) -> TraceJob:
        """A job of a recorded trace, which does not say what is trained: a model is drawn."""
        names, weights = zip(*WEEK_MODELS, strict=True)
        (name,) = luck.choices(names, weights)
        rate = 1.0 / MODELS.of(name).usual.minibatch_s
        seconds = min(self.longest_s, job.duration_s or 0.0) / self.faster
        return replace(
            job,
            tenant=OPPORTUNISTIC if job.job_class is JobClass.OPPORTUNISTIC else GUARANTEED,
            model=name,
            batch_size=None,
            duration_s=None,
            total_steps=max(1, round(seconds * rate)),
            gpu_types=(),
            status="",
        )

    def _two(self, throughputs: Throughputs) -> list[TraceJob]:
        """The opportunistic job, and the guaranteed one that comes later."""
        first_s, second_s = ALONE_S[self.kind]
        if self.kind == "table-2":
            first, second, later_s = "GCN (BS 1400)", "ResNet-50 (BS 360)", 26 * MINUTE_S
        else:
            first, second, later_s = "ResNet-50", "ESPnet (figure 12)", MINUTE_S
        return [
            self._job(0, 0.0, first, 1, first_s, False, throughputs),
            self._job(1, later_s, second, 1, second_s, True, throughputs),
        ]


def _weighted(luck: random.Random, choices: Sequence[tuple[int, int]]) -> int:
    values, weights = zip(*choices, strict=True)
    (chosen,) = luck.choices(values, weights)
    return int(chosen)
