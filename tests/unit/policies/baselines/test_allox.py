"""AlloX: known small instances, and the matching against brute force."""

from __future__ import annotations

import random
from itertools import product
from math import inf

import pytest

from libs.contracts.placement import Share
from libs.policies.allocation.solve import solve
from libs.policies.baselines.allox import allox
from libs.policies.problem import GpuPool, Job, PolicyOptions, Problem


def problem(gpus: dict[str, int], jobs: list[Job], **options: bool) -> Problem:
    cluster = {gpu_type: GpuPool(gpus=count) for gpu_type, count in gpus.items()}
    return Problem(policy="allox", cluster=cluster, jobs=jobs, options=PolicyOptions(**options))


def job(name: str, steps: float, width: int = 1, **rates: float) -> Job:
    return Job(id=name, throughputs=rates, steps_remaining=steps, scale_factor=width)


def least_average(asked: Problem) -> float:
    """Every way to spread the jobs over the GPUs, each queue shortest first."""
    gpus = [t for t, pool in asked.cluster.items() for _ in range(pool.gpus)]
    best = inf
    for chosen in product(range(len(gpus)), repeat=len(asked.jobs)):
        queues: list[list[float]] = [[] for _ in gpus]
        for one, gpu in zip(asked.jobs, chosen, strict=True):
            rate = one.throughputs.get(gpus[gpu], 0.0)
            queues[gpu].append((one.steps_remaining or 0.0) / rate if rate else inf)
        waits = (sum(sorted(queue)[: end + 1]) for queue in queues for end in range(len(queue)))
        best = min(best, sum(waits) / len(asked.jobs))
    return best


def test_the_shortest_goes_first():
    answer = allox(problem({"v100": 1}, [job("long", 30, v100=1), job("short", 10, v100=1), job("mid", 20, v100=1)]))
    assert answer.allocation == [Share(jobs=("short",), time={"v100": 1.0})]
    assert answer.objective == pytest.approx((10 + 30 + 60) / 3)


def test_a_job_waits_for_a_fast_gpu_rather_than_start_on_a_slow_one():
    asked = problem({"v100": 1, "k80": 1}, [job("a", 10, v100=1, k80=0.1), job("b", 20, v100=1, k80=0.1)])
    answer = allox(asked)
    assert answer.allocation == [Share(jobs=("a",), time={"v100": 1.0})]
    assert answer.objective == pytest.approx((10 + 30) / 2)


def test_each_goes_where_it_gains_most():
    asked = problem({"v100": 1, "k80": 1}, [job("even", 10, v100=1.1, k80=1), job("picky", 10, v100=1, k80=0.2)])
    times = {share.jobs[0]: share.time for share in allox(asked).allocation}
    assert times == {"even": {"k80": 1.0}, "picky": {"v100": 1.0}}


def test_blind_to_types_only_where_a_job_runs_at_all_counts():
    jobs = [job("slow", 10, v100=1, k80=0.001), job("fast", 20, v100=100), job("none", 1)]
    answer = allox(problem({"v100": 1, "k80": 1}, jobs, heterogeneity_aware=False))
    assert {share.jobs[0]: share.time for share in answer.allocation} == {"slow": {"k80": 1.0}, "fast": {"v100": 1.0}}


def test_one_fast_gpu_may_take_all_jobs_of_a_large_cluster():
    """Deeper queues are looked at when the deepest places of the first try are taken."""
    jobs = [job(f"j{n:02}", 10, v100=1000, k80=1) for n in range(40)]
    answer = allox(problem({"v100": 1, "k80": 39}, jobs))
    assert answer.objective == pytest.approx(0.01 * 41 / 2)
    assert [share.time for share in answer.allocation] == [{"v100": 1.0}]


def test_jobs_that_run_nowhere_and_clusters_without_gpus():
    assert allox(problem({"v100": 1}, [])).allocation == []
    assert allox(problem({}, [job("a", 1)])).allocation == []
    assert allox(problem({"v100": 0}, [job("a", 1, v100=1)])).allocation == []
    answer = allox(problem({"v100": 2}, [job("wide", 1, 4, v100=1), job("never", 1), job("ok", 5, v100=1)]))
    assert [share.jobs for share in answer.allocation] == [("ok",)]
    assert answer.objective == pytest.approx(5.0), "the average is over those that can run"


def test_a_gang_starts_when_there_are_gpus_for_all_of_it():
    jobs = [job("gang", 10, 3, v100=1), job("small", 1, v100=1)]
    assert [share.jobs for share in allox(problem({"v100": 4}, jobs)).allocation] == [("small",), ("gang",)]
    assert [share.jobs for share in allox(problem({"v100": 3}, jobs)).allocation] == [("small",)]


@pytest.mark.parametrize("seed", range(30))
def test_no_other_schedule_is_better(seed: int):
    dice = random.Random(seed)
    gpus = {t: dice.randint(1, 2) for t in ("v100", "k80")[: dice.randint(1, 2)]}
    jobs = [
        job(f"j{n}", dice.choice([1, 5, 7, 100]), **{t: dice.choice([0.0, 0.1, 1, 3]) for t in gpus}) for n in range(5)
    ]
    able = [one for one in jobs if any(one.throughputs.values())]
    answer = solve(problem(gpus, jobs))
    if able:
        assert answer.objective == pytest.approx(least_average(problem(gpus, able)))
