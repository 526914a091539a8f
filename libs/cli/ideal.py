"""Ideal execution: every job runs at its computed share all the time, with nothing to be rounded and nothing lost.

The baseline of Gavel's figure 13(b): what a mechanism without rounds, leases and GPUs that are whole would reach.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from libs.policies.allocation.solve import solve
from libs.policies.problem import GpuPool, Job, PolicyOptions, Problem
from libs.sim.choice import Choice
from libs.sim.clusters import parse_cluster
from libs.sim.throughputs import Throughputs
from libs.sim.traces import TraceJob


@dataclass
class Running:
    """A job that has arrived and not ended."""

    job: TraceJob
    rates: dict[str, float]
    left: float
    """Steps."""
    rate: float = 0.0


def ideal_ends(jobs: Iterable[TraceJob], throughputs: Throughputs, choice: Choice) -> dict[str, float]:
    """{job id: when it ends, in seconds}; the allocation is computed anew at every arrival and every end."""
    gpus = parse_cluster(choice.cluster, choice.gpus_per_server).gpus
    arriving = sorted(jobs, key=lambda job: job.submit_time_s)
    running: dict[str, Running] = {}
    ends: dict[str, float] = {}
    now_s, following = 0.0, 0
    while following < len(arriving) or running:
        next_s = arriving[following].submit_time_s if following < len(arriving) else math.inf
        end_s, ended = _first_end(running, now_s)
        until_s = min(next_s, end_s)
        if math.isinf(until_s):
            raise ValueError(f"{', '.join(running)} never end: they get no share")
        for each in running.values():
            each.left -= each.rate * (until_s - now_s)
        now_s = until_s
        if end_s <= next_s:
            del running[ended]
            ends[ended] = now_s
        else:
            job, following = arriving[following], following + 1
            rates = {t: throughputs.rate(job.config, t, consolidated=True) or 0.0 for t in gpus}
            running[job.job_id] = Running(job, rates, job.total_steps or 0.0)
        _share(running, gpus, choice)
    return ends


def _first_end(running: dict[str, Running], now_s: float) -> tuple[float, str]:
    ends = ((now_s + max(0.0, each.left) / each.rate, job_id) for job_id, each in running.items() if each.rate > 0)
    return min(ends, default=(math.inf, ""))


def _share(running: dict[str, Running], gpus: dict[str, int], choice: Choice) -> None:
    """Effective throughputs from now on."""
    problem = Problem(
        policy=choice.policy,
        cluster={t: GpuPool(gpus=n) for t, n in gpus.items()},
        jobs=[
            Job(id=job_id, throughputs=each.rates, scale_factor=each.job.gpus, steps_remaining=max(1.0, each.left))
            for job_id, each in running.items()
        ],
        options=PolicyOptions(
            heterogeneity_aware=not choice.heterogeneity_agnostic, water_filling=choice.water_filling
        ),
    )
    for each in running.values():
        each.rate = 0.0
    for share in solve(problem).allocation:
        each = running[share.jobs[0]]
        each.rate += sum(each.rates[t] * fraction for t, fraction in share.time.items())
