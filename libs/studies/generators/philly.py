"""The workload of the Philly study (ATC'19): busy days of its public trace on virtual clusters, or drawn jobs.

The public trace has neither the study's servers nor its quotas for the jobs that it has: servers and guarantees are
scaled by one factor, so that the work of the busiest weeks, failed attempts included, is two thirds of what the GPUs
can do (the study speaks of "when say two thirds of the total GPUs are being used", section 3.2).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

from libs.contracts import settings
from libs.contracts.bad_input import BadInput
from libs.contracts.gateway import ANY_TYPE, IsolatedRate, SettingChanged, TenantConfigured, ThroughputsProvided
from libs.sim.table6 import drawn_ends
from libs.sim.throughputs import NO_THROUGHPUTS, Config, Throughputs
from libs.sim.traces import TraceJob, read_trace
from libs.sim.workloads import Planned
from libs.studies.generators.drawn import DrawnWorkload

GPU_TYPE, GPUS_PER_SERVER = "v100", 8
DAY_S = 86400.0
OPERATOR = "experiment"
VIRTUAL_CLUSTERS = {
    "6214e9": 64,
    "7f04ca": 32,
    "11cb48": 16,
    "b436b2": 64,
    "ee9e8c": 64,
    "e13805": 16,
    "6c71a0": 32,
    "2869ce": 16,
    "ed69ec": 8,
    "103959": 8,
    "0e4a51": 32,
}
"""{virtual cluster of the public trace: servers with 8 GPUs that it is guaranteed, before scaling}."""
DRAWN_PER_DAY = 900
"""Jobs of a drawn workload; the public trace has as many on average."""
WIDTHS = ((1, 9455), (2, 193), (4, 193), (8, 140), (16, 19))
"""GPUs, and how often in 10,000 jobs, as in the public trace; its sizes in between are rare."""
MODEL, BATCH_SIZE, MOST_GPUS = "resnet50", 32, 128
"""What all jobs are taken to train where gangs are slower on more servers, and up to which size the table has them."""
KEPT_WHEN_SPREAD = 98.0 / 114.8
"""Images a second of ResNet-50 on two servers, over those on one (study, table 3)."""
MARKS = (0.0, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 1.0)
RUN_TIMES_MIN = {
    "one": (0.2, 1.05, 3.35, 23.77, 45.43, 121.72, 253.16, 5000.0),
    "few": (0.1, 0.22, 0.33, 13.19, 1151.64, 3138.87, 5133.1, 15000.0),
    "eight": (1.0, 9.25, 93.72, 1746.55, 3822.28, 8182.5, 12043.81, 20000.0),
    "more": (1.0, 3.29, 10.09, 799.06, 1965.54, 7707.15, 9813.5, 20000.0),
}
"""{size: minutes at `MARKS`} of the public trace; the first and the last are assumptions."""


@dataclass(frozen=True, kw_only=True)
class PhillyWorkload(DrawnWorkload):
    """The busiest days of a trace, with the jobs before them that still run then."""

    trace: str | None = None
    """A `traces/1` file; None: drawn, with as many jobs of each size and as long ones as the public trace."""
    days: int = 14
    """Length of the window in which jobs are measured."""
    occupancy: float = 2 / 3
    """Work of the window over what the GPUs can do in it."""
    reclaim_above: float = 0.9
    """Part of the GPUs in use from which lent ones are reclaimed by preemption."""
    relax_after: float = settings.default("placement", "relax_after")
    """Tries after each of which a gang accepts less locality."""
    small_servers: int = 0
    """Servers that are set apart for jobs of one GPU."""
    kept_when_spread: float = 1.0
    """Part of its speed that a gang keeps on more servers than it needs; below 1 operators say so, and users say how
    many steps their jobs have."""
    wait_for_locality_s: float = 0.0
    """How long gangs wait at most for few servers where that gains more than it costs."""

    def __post_init__(self) -> None:
        if self.days < 1:
            raise BadInput("days", str(self.days), "at least 1")
        if not 0 < self.occupancy <= 1:
            raise BadInput("occupancy", str(self.occupancy), "a number above 0, and at most 1")
        if not 0 < self.kept_when_spread <= 1:
            raise BadInput("kept_when_spread", str(self.kept_when_spread), "a number above 0, and at most 1")

    @property
    def spreading_costs(self) -> bool:
        """Whether gangs are slower on more servers than they need."""
        return self.kept_when_spread < 1.0

    @property
    def arrives(self) -> bool:
        """See `DrawnWorkload`."""
        return True

    @property
    def jobs_per_hour(self) -> float:  # type: ignore[override]
        """The load, in the place of a rate that differs from day to day."""
        return self.occupancy

    def rates(self) -> Throughputs:
        """None: the trace says how long jobs take. Where gangs are slower on more servers, a step takes a second."""
        if not self.spreading_costs:
            return NO_THROUGHPUTS
        configurations: list[Config] = [(MODEL, BATCH_SIZE, gpus) for gpus in range(1, MOST_GPUS + 1)]
        together = {(each, True): {GPU_TYPE: 1.0} for each in configurations}
        spread = {(each, False): {GPU_TYPE: self.kept_when_spread} for each in configurations if each[2] > 1}
        return Throughputs([GPU_TYPE], together | spread, [])

    def draw(self, seed: int, throughputs: Throughputs) -> list[TraceJob]:
        """See `DrawnWorkload`."""
        jobs = busiest(self.trace, self.days, seed).jobs
        first_s = jobs[0].submit_time_s
        found = [replace(job, submit_time_s=job.submit_time_s - first_s) for job in jobs]
        if not self.spreading_costs:
            return found
        return [replace(job, model=MODEL, batch_size=BATCH_SIZE, total_steps=job.duration_s) for job in found]

    def measured(self, seed: int) -> tuple[int, int]:
        """The jobs of the window, by their places in order of arrival."""
        found = busiest(self.trace, self.days, seed)
        return found.running_before, len(found.jobs)

    def servers(self, seed: int) -> int:
        """So many are needed."""
        work = busiest(self.trace, self.days, seed).work_gpus
        return max(1, math.ceil(work / self.occupancy / GPUS_PER_SERVER))

    def factor(self, seed: int) -> float:
        """By which servers and guarantees are scaled."""
        return self.servers(seed) / sum(VIRTUAL_CLUSTERS.values())

    def requests(self, seed: int) -> list[Planned]:
        """The virtual clusters, when lent GPUs are reclaimed, and how servers are ranked.

        As the study says (section 2.3), small jobs, "e.g., 1-GPU jobs", are packed onto few servers, and for others the
        servers come first "that have most GPUs available".
        """
        numbers = (
            ("quota", "reclaim_above", self.reclaim_above),
            ("placement", "emptiest_above_gpus", 1.0),
            ("placement", "relax_after", self.relax_after),
            ("placement", "small_servers", float(self.small_servers)),
            ("placement", "wait_for_locality_s", self.wait_for_locality_s),
        )
        changes = [SettingChanged(service=of, name=name, value=to, requested_by=OPERATOR) for of, name, to in numbers]
        events = (*virtual_clusters(self.factor(seed)), *changes, *self._told())
        return [Planned(0.0, event) for event in events]

    def _told(self) -> list[ThroughputsProvided]:
        """What operators say of gangs on more servers than they need."""
        rows = [
            IsolatedRate(
                model=MODEL,
                batch_size=BATCH_SIZE,
                gpus=gpus,
                steps_per_s={GPU_TYPE: 1.0},
                spread_steps_per_s={GPU_TYPE: self.kept_when_spread},
            )
            for gpus in range(2, MOST_GPUS + 1)
        ]
        return [ThroughputsProvided(provided_by=OPERATOR, isolated=rows)] if self.spreading_costs else []


def virtual_clusters(factor: float) -> list[TenantConfigured]:
    """Those of the public trace, with this part of their guarantees."""
    return [
        TenantConfigured(
            tenant=name,
            gpu_limit=None,
            guarantees={ANY_TYPE: max(1, math.floor(servers * GPUS_PER_SERVER * factor))},
            requested_by=OPERATOR,
        )
        for name, servers in VIRTUAL_CLUSTERS.items()
    ]


@dataclass(frozen=True)
class Busiest:
    """The days of a trace in which its jobs have most work."""

    jobs: tuple[TraceJob, ...]
    """In order of arrival; at first those that come before the window and still run in it."""
    running_before: int
    work_gpus: float
    """GPUs that the jobs would keep busy in the window on average, without waiting, failed attempts included."""


@cache
def busiest(trace: str | None, days: int, seed: int) -> Busiest:
    """The busiest window of whole days of a trace, or of drawn jobs.

    Raises:
        BadInput: the trace cannot be read, or has no job with a duration.
    """
    read = _drawn(days, seed) if trace is None else read_trace(trace, warn=lambda sentence: None)
    jobs = [job for job in read if job.duration_s]
    if not jobs:
        raise BadInput(trace or "trace", "no job with a duration", "jobs with `duration_s`")
    begin_s = _begin_of_busiest(jobs, days)
    end_s = begin_s + days * DAY_S
    before = [job for job in jobs if job.submit_time_s < begin_s < _end_s(job)]
    inside = [job for job in jobs if begin_s <= job.submit_time_s < end_s]
    chosen = (*before, *inside)
    return Busiest(chosen, len(before), work_gpus(chosen, begin_s, end_s, seed))


def _begin_of_busiest(jobs: Sequence[TraceJob], days: int) -> float:
    """Where the window begins in which most GPU time would be used, if no job waited."""
    last = int(jobs[-1].submit_time_s // DAY_S)
    used_s = [0.0] * (last + 1)
    for job in jobs:
        for day in range(int(job.submit_time_s // DAY_S), min(last, int(_end_s(job) // DAY_S)) + 1):
            from_s, to_s = max(job.submit_time_s, day * DAY_S), min(_end_s(job), (day + 1) * DAY_S)
            used_s[day] += max(0.0, to_s - from_s) * job.gpus
    return DAY_S * max(range(max(1, last + 2 - days)), key=lambda day: sum(used_s[day : day + days]))


def _end_s(job: TraceJob) -> float:
    return job.submit_time_s + (job.duration_s or 0.0)


def work_gpus(jobs: Sequence[TraceJob], begin_s: float, end_s: float, seed: int) -> float:
    """GPUs that jobs would keep busy on average if none waited, failing as is drawn for them."""
    played, endings = drawn_ends(jobs, seed)
    work_s = 0.0
    for job in played:
        failed_s = sum(doom.after_s or 0.0 for doom in endings[job.job_id].dooms)
        succeeds = job.max_retries >= len(endings[job.job_id].dooms)
        until_s = job.submit_time_s + failed_s + ((job.duration_s or 0.0) if succeeds else 0.0)
        work_s += max(0.0, min(until_s, end_s) - max(job.submit_time_s, begin_s)) * job.gpus
    return work_s / (end_s - begin_s)


def _drawn(days: int, seed: int) -> list[TraceJob]:
    """Jobs over the window and as many days before it."""
    luck = random.Random(f"{seed}/philly")
    widths, weights = zip(*WIDTHS, strict=True)
    names, servers = list(VIRTUAL_CLUSTERS), list(VIRTUAL_CLUSTERS.values())
    arrivals = sorted(luck.uniform(0.0, 2 * days * DAY_S) for _ in range(2 * days * DRAWN_PER_DAY))
    found = []
    for number, at_s in enumerate(arrivals):
        (width,), (tenant,) = luck.choices(widths, weights), luck.choices(names, servers)
        found.append(
            TraceJob(
                job_id=f"drawn-{number:06d}",
                submit_time_s=round(at_s, 3),
                tenant=tenant,
                gpus=width,
                duration_s=round(_run_time_s(width, luck.random()), 3),
            )
        )
    return found


def _run_time_s(gpus: int, part: float) -> float:
    """The run time that this part of the jobs of a size does not exceed: straight lines on a logarithmic scale."""
    times = RUN_TIMES_MIN[_size_of(gpus)]
    for (low, shorter), (high, longer) in pairwise(zip(MARKS, times, strict=True)):
        if part <= high:
            return 60.0 * shorter * math.pow(longer / shorter, (part - low) / (high - low))
    return 60.0 * times[-1]


def _size_of(gpus: int) -> str:
    if gpus > GPUS_PER_SERVER:
        return "more"
    return "one" if gpus == 1 else "few" if gpus <= 4 else "eight"
