"""A policy that does not tell GPU types apart counts work in seconds: how long a step is makes no difference."""

from __future__ import annotations

from typing import Any

import pytest

from libs.policies.agnostic import mean_rate
from libs.policies.allocation.solve import solve
from libs.policies.problem import GpuPool, Job, PolicyOptions, Problem, Solution

CLUSTER = {"v100": GpuPool(gpus=1), "k80": GpuPool(gpus=3)}


def job(job_id: str, seconds: float, steps_per_s: float, **fields: Any) -> Job:
    """A job that needs so long on one GPU in the mix of `CLUSTER`, where it is on average as fast as given."""
    rates = {"v100": 2.5 * steps_per_s, "k80": 0.5 * steps_per_s}
    return Job(id=job_id, throughputs=rates, steps_remaining=seconds * steps_per_s, **fields)


def answer(policy: str, jobs: list[Job], cluster: dict[str, GpuPool] = CLUSTER) -> Solution:
    return solve(Problem(policy=policy, cluster=cluster, jobs=jobs, options=PolicyOptions(heterogeneity_aware=False)))


def time_of(found: Solution) -> dict[str, float]:
    return {share.jobs[0]: sum(share.time.values()) for share in found.allocation}


@pytest.mark.parametrize(
    ("rates", "gpus", "expected"),
    [
        ([4.0, 1.0], [1, 3], 1.75),
        ([4.0, 0.0], [1, 3], 4.0),
        ([4.0, 2.0], [0, 0], 3.0),
        ([0.0, 0.0], [1, 3], 0.0),
        ([], [], 0.0),
    ],
    ids=["by GPUs", "only types that it runs on", "types that draw on another's GPUs", "runs nowhere", "no types"],
)
def test_the_mean_rate(rates: list[float], gpus: list[float], expected: float):
    assert mean_rate(rates, gpus) == expected


@pytest.mark.parametrize("steps_per_s", [0.01, 1.0, 100.0])
def test_makespan_is_in_seconds(steps_per_s: float):
    jobs = [job(f"j{n}", seconds=80.0, steps_per_s=steps_per_s) for n in range(8)]
    found = answer("min_makespan", jobs)
    assert found.objective == pytest.approx(160.0), "8 jobs of 80 s on 4 GPUs"


@pytest.mark.parametrize("policy", ["shortest_job_first", "allox"])
def test_the_job_with_the_shorter_time_is_first_however_many_steps_it_has(policy: str):
    one = {"k80": GpuPool(gpus=1)}
    jobs = [job("few-steps", seconds=100.0, steps_per_s=0.1), job("many-steps", seconds=10.0, steps_per_s=100.0)]
    found = time_of(answer(policy, jobs, one))
    assert found["many-steps"] == pytest.approx(1.0)
    assert found.get("few-steps", 0.0) == pytest.approx(0.0, abs=1e-6)


def test_finish_time_fairness_is_the_same_for_steps_of_any_length():
    def shares(lengths: list[float]) -> list[float]:
        jobs = [
            job(f"j{n}", seconds=100.0 * (n + 1), steps_per_s=length, elapsed_s=30.0 * n, isolated_elapsed_s=20.0 * n)
            for n, length in enumerate(lengths)
        ]
        found = time_of(answer("finish_time_fairness", jobs))
        return [found[asked.id] for asked in jobs]

    alike = shares([1.0] * 6)
    assert max(alike) > min(alike) * 1.05, "the jobs differ"
    assert shares([0.01, 100.0, 3.0, 0.5, 20.0, 7.0]) == pytest.approx(alike, rel=1e-6)


def test_a_deadline_is_met_in_seconds():
    jobs = [job("late", seconds=120.0, steps_per_s=50.0, slo_s=100.0), job("in-time", 90.0, 50.0, slo_s=100.0)]
    found = answer("max_throughput_slo", jobs)
    assert found.infeasible == ["late"]
    assert time_of(found)["in-time"] >= 0.9 * (1 - 1e-6)
