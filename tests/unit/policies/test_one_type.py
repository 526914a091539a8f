"""To an agnostic policy the types that every job can run on are one."""

from __future__ import annotations

from typing import Any

import pytest

from libs.policies.allocation import times
from libs.policies.allocation.grouping import Classes, group
from libs.policies.allocation.one_type import merged
from libs.policies.allocation.solve import solve
from libs.policies.problem import GpuPool, Job, KindPair, PolicyOptions, Problem

CLUSTER = {"v100": GpuPool(gpus=4), "p100": GpuPool(gpus=2), "k80": GpuPool(gpus=2)}


def job(number: int, **fields: Any) -> Job:
    chosen: dict[str, Any] = {
        "throughputs": {"v100": 4.0, "p100": 2.0, "k80": 1.0},
        "steps_remaining": 100.0 * (number + 1),
        "elapsed_s": 40.0 * number,
        "isolated_elapsed_s": 30.0 * number,
        "kind": "a",
        **fields,
    }
    return Job(id=f"job-{number}", **chosen)


def problem(jobs: list[Job], **options: Any) -> Problem:
    chosen = PolicyOptions(**{"heterogeneity_aware": False, **options})
    pairs = [KindPair(kinds=("a", "a"), throughputs={"v100": (3.0, 3.0)})]
    return Problem(policy="finish_time_fairness", cluster=CLUSTER, jobs=jobs, options=chosen, kind_pairs=pairs)


def classes_of(asked: Problem) -> Classes:
    return group(asked, lambda index, job: index)


@pytest.mark.parametrize("jobs", [3, 8, 9, 20])
def test_the_optimum_is_that_of_all_types(jobs: int):
    classes = classes_of(problem([job(number, scale_factor=1 + number % 2) for number in range(jobs)]))
    one_type = merged(classes)
    assert one_type is not None
    assert one_type.pool_gpus.tolist() == [8.0]
    found, before = times.smallest_rho(one_type), times.smallest_rho(classes)
    assert found.objective == pytest.approx(before.objective, rel=1e-9)
    assert found.iterations < before.iterations


def test_each_job_has_its_time_on_the_types_as_the_cluster_has_gpus():
    found = solve(problem([job(number) for number in range(20)]))
    used = dict.fromkeys(CLUSTER, 0.0)
    for share in found.allocation:
        assert [share.time[gpu_type] / share.time["v100"] for gpu_type in ("p100", "k80")] == pytest.approx([0.5, 0.5])
        for gpu_type, time in share.time.items():
            used[gpu_type] += time
    assert used == pytest.approx({gpu_type: pool.gpus for gpu_type, pool in CLUSTER.items()}, rel=1e-6)


@pytest.mark.parametrize(
    "asked",
    [
        problem([job(0), job(1)], heterogeneity_aware=True),
        problem([job(0), job(1)], space_sharing=True),
        problem([job(0), job(1, throughputs={"v100": 4.0, "k80": 1.0})]),
        problem([job(0), job(1, scale_factor=3)]),
    ],
    ids=["rates differ", "jobs share GPUs", "no rate on a type", "too wide for a type"],
)
def test_types_that_differ_stay_apart(asked: Problem):
    assert merged(classes_of(asked)) is None


def test_no_jobs():
    assert solve(problem([])).allocation == []
