"""What users do in a simulation: jobs that arrive, and requests at given times; read from traces or generated."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from libs.contracts.bad_input import BadInput
from libs.contracts.base import Event
from libs.contracts.gateway import ColocatedRate, IsolatedRate, JobArrived, ThroughputsProvided
from libs.contracts.jobs import JobSpec
from libs.kernel.words import counted
from libs.sim.inputs import Warn
from libs.sim.throughputs import NO_THROUGHPUTS, Config, Pair, Throughputs
from libs.sim.traces import TraceJob

SUBMITTER = "trace"
GPU_MIX = ((1, 70), (2, 10), (4, 15), (8, 5))
"""GPUs and weight, the mix of the Philly-like workloads."""


@dataclass(frozen=True)
class Planned:
    """A request that the gateway accepts at `time_s`."""

    time_s: float
    event: Event


@dataclass(frozen=True)
class Workload:
    """Requests in any order; the simulation sorts them by time, equal times as given."""

    requests: tuple[Planned, ...]

    def __add__(self, other: Workload) -> Workload:
        return Workload(self.requests + other.requests)

    @property
    def jobs(self) -> list[JobArrived]:
        """The jobs, by time of arrival."""
        ordered = sorted(self.requests, key=lambda planned: planned.time_s)
        return [planned.event for planned in ordered if isinstance(planned.event, JobArrived)]


def arrival(time_s: float, job_id: str, spec: JobSpec, submitted_by: str = SUBMITTER) -> Planned:
    """A job that arrives."""
    return Planned(time_s, JobArrived(job_id=job_id, spec=spec, submitted_by=submitted_by))


def workload_of(
    jobs: Iterable[TraceJob], throughputs: Throughputs = NO_THROUGHPUTS, on_unknown: Warn | None = None
) -> Workload:
    """The arrivals of a trace.

    GPU types on which the table says that a job cannot run are excluded by the job.

    Args:
        jobs: the trace.
        throughputs: rates of the jobs that are given in steps.
        on_unknown: told of jobs that are left out because there is no rate for them; None: that is an error.

    Raises:
        BadInput: a job is given in steps alone and there is no rate for it.
    """
    planned = []
    for job in jobs:
        if job.duration_s is None and not throughputs.knows(job.config):
            sentence = f"no rate for model {job.model!r}, batch size {job.batch_size}, {counted(job.gpus, 'GPU')}"
            if on_unknown is None:
                raise BadInput(f"job {job.job_id}", sentence, "a row of the throughput table, or duration_s")
            on_unknown(f"job {job.job_id} is left out: {sentence}")
            continue
        planned.append(arrival(job.submit_time_s, job.job_id, _runnable(job, throughputs)))
    return Workload(tuple(planned))


def _runnable(job: TraceJob, throughputs: Throughputs) -> JobSpec:
    """The job's spec with its rates, without the types that are too small or too old for it.

    A job that is given as a duration runs one "step" a second on every type.
    """
    spec = job.spec()
    if job.total_steps is None or not throughputs.knows(job.config):
        return msgspec.structs.replace(spec, total_steps=job.duration_s)
    rates = {t: throughputs.rate(job.config, t, consolidated=True) or 0.0 for t in throughputs.gpu_types}
    gpus = msgspec.structs.replace(spec.gpus, excluded_types=[t for t, rate in rates.items() if not rate])
    return msgspec.structs.replace(spec, gpus=gpus, throughputs={t: rate for t, rate in rates.items() if rate})


def known_rates(
    workload: Workload,
    throughputs: Throughputs,
    references: int | None = None,
    profiled: Callable[[], bool] = lambda: False,
) -> ThroughputsProvided:
    """What an operator with the table would tell about the configurations of these jobs.

    Args:
        workload: the jobs.
        throughputs: the table.
        references: only so many configurations per number of GPUs, spread evenly over the table, were measured
            alone and beside each other; how others share GPUs has to be estimated. None: everything was measured.
        profiled: asked of every pair of one of these and another configuration, on every GPU type: whether it was
            measured as well (Gavel, section 6: the other is profiled beside some of them).
    """
    configs = list({(job.spec.model, job.spec.batch_size, job.spec.gpus.count): None for job in workload.jobs})
    measured = configs if references is None else _spread(throughputs, references)
    alone = [
        IsolatedRate(model=config[0], batch_size=config[1], gpus=config[2], steps_per_s=dict(row))
        for config in measured
        if (row := throughputs.isolated.get((config, True)))
    ]
    together = [
        ColocatedRate(
            a_model=pair.a[0],
            a_batch_size=pair.a[1],
            b_model=pair.b[0],
            b_batch_size=pair.b[1],
            gpus=pair.a[2],
            gpu_type=pair.gpu_type,
            a_steps_per_s=pair.a_steps_per_s,
            b_steps_per_s=pair.b_steps_per_s,
        )
        for pair in throughputs.pairs
        if pair.consolidated and _was_measured(pair, measured, configs, profiled)
    ]
    return ThroughputsProvided(provided_by=SUBMITTER, isolated=alone, colocated=together)


def _was_measured(
    pair: Pair, measured: Sequence[Config], configs: Sequence[Config], profiled: Callable[[], bool]
) -> bool:
    known = (pair.a in measured) + (pair.b in measured)
    return known == 2 or (known == 1 and pair.a in configs and pair.b in configs and profiled())


def _spread(throughputs: Throughputs, references: int) -> list[Config]:
    """Every n-th configuration of each number of GPUs."""
    by_gpus: dict[int, list[Config]] = {}
    for config in dict.fromkeys(config for config, _ in throughputs.isolated):
        by_gpus.setdefault(config[2], []).append(config)
    return [
        listed[place * len(listed) // count]
        for listed in by_gpus.values()
        for count in [min(references, len(listed))]
        for place in range(count)
    ]


def generate(
    jobs: int,
    seed: int,
    *,
    jobs_per_hour: float = 60.0,
    median_s: float = 600.0,
    spread: float = 1.2,
    longest_s: float = 86400.0,
    tenants: tuple[str, ...] = ("research", "product"),
    gpu_mix: tuple[tuple[int, int], ...] = GPU_MIX,
    max_retries: int = 2,
) -> list[TraceJob]:
    """A small workload: Poisson arrivals, log-normal durations, 70/10/15/5 % of the jobs on 1/2/4/8 GPUs.

    Each property is drawn from a generator of its own, so that changing one distribution leaves the others be.

    Args:
        jobs: how many.
        seed: the same seed gives the same jobs.
        jobs_per_hour: mean rate of arrivals.
        median_s, spread: median run time and sigma of its logarithm.
        longest_s: durations above are cut.
        tenants: drawn with equal probability.
        gpu_mix: pairs of GPUs and weight.
        max_retries: of every job.
    """
    arrivals, durations, gpus, owners = (
        random.Random(f"{seed}/{what}") for what in ("arrival", "time", "gpus", "tenant")
    )
    counts, weights = [count for count, _ in gpu_mix], [weight for _, weight in gpu_mix]
    made, now_s = [], 0.0
    for number in range(jobs):
        now_s += arrivals.expovariate(jobs_per_hour / 3600)
        duration_s = median_s * math.exp(durations.gauss(0.0, spread))
        made.append(
            TraceJob(
                job_id=f"job-{number:05d}",
                submit_time_s=round(now_s, 3),
                tenant=owners.choice(tenants),
                gpus=gpus.choices(counts, weights)[0],
                duration_s=round(min(max(duration_s, 1.0), longest_s), 3),
                max_retries=max_retries,
            )
        )
    return made
