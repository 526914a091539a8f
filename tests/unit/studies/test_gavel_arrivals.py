"""Gavel's steady state: at the paper's size, jobs arrive until the last measured one has ended."""

from __future__ import annotations

import heapq

import pytest

from libs.sim.clusters import parse_cluster
from libs.sim.traces import TraceJob
from libs.studies.reproduce import gavel
from libs.studies.reproduce.stated import Arm


def ended_s(jobs: list[TraceJob], gpu_s: list[float], gpus: int, last: int) -> float:
    """When the first `last` jobs have ended, if all that are there have equal parts of the GPUs' time."""
    had_s, now_s, arrived = 0.0, 0.0, 0
    left: list[tuple[float, int]] = []
    waiting = set(range(last))
    while waiting:
        part = min(1.0, gpus / len(left)) if left else 1.0
        ends_s = now_s + (left[0][0] - had_s) / part if left else float("inf")
        arrives_s = jobs[arrived].submit_time_s if arrived < len(jobs) else float("inf")
        if arrives_s <= ends_s:
            had_s, now_s = had_s + (arrives_s - now_s) * part, arrives_s
            heapq.heappush(left, (had_s + gpu_s[arrived], arrived))
            arrived += 1
        else:
            (had_s, number), now_s = heapq.heappop(left), ends_s
            waiting.discard(number)
    return now_s


@pytest.mark.parametrize("seed", gavel.FULL.seeds)
def test_jobs_arrive_until_the_last_measured_one_has_ended_under_an_overloaded_baseline(seed: int):
    plan = gavel.GavelPlan(gavel.FULL)
    point = plan.points(Arm(workload="single", policy="max_min_fairness", at=[0.96]), None)[seed]
    jobs, gpus = point.spec.jobs(), parse_cluster(point.spec.cluster).gpus
    mixed = {
        config: sum(count * row.get(gpu_type, 0.0) for gpu_type, count in gpus.items()) / sum(gpus.values())
        for (config, together), row in plan.rates.isolated.items()
        if together
    }
    gpu_s = [(job.total_steps or 0.0) / mixed[job.config] for job in jobs]
    _, end = point.spec.measure or (0, 0)
    last_s = ended_s(jobs, gpu_s, sum(gpus.values()), end)
    assert jobs[-1].submit_time_s > last_s
    assert jobs[end].submit_time_s < 0.7 * last_s, "it is overloaded: the last ones stay for long"
