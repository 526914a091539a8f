"""To an agnostic policy the types that every job can run on are one."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from libs.policies.allocation import times
from libs.policies.allocation.grouping import Classes, group
from libs.policies.allocation.one_type import is_one_type
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
    assert is_one_type(classes)
    found, solved = times.smallest_rho_on_one_type(classes), times.smallest_rho(classes)
    assert found.objective == pytest.approx(solved.objective, rel=1e-9)
    assert found.iterations == 0 < solved.iterations
    for each in (found, solved):
        thr = each.model.throughputs(each.values)
        left = np.array([asked.steps_remaining for asked in classes.firsts])
        elapsed = np.array([asked.elapsed_s for asked in classes.firsts])
        ideal = np.array([asked.isolated_elapsed_s for asked in classes.firsts]) + left / times.isolated_rates(classes)
        assert ((elapsed + left / thr) / ideal).max() == pytest.approx(found.objective, rel=1e-7)
    used = [float(each.model.throughputs(each.values) @ classes.width) for each in (found, solved)]
    assert used[0] == pytest.approx(used[1], rel=1e-6), "no GPU is idle that a job could use"


def test_without_a_gpu_no_job_runs():
    asked = problem([job(0), job(1, scale_factor=2)])
    drained = msgspec.structs.replace(asked, cluster=dict.fromkeys(CLUSTER, GpuPool(gpus=0)))
    found = times.smallest_rho_on_one_type(classes_of(drained))
    assert (found.objective, found.values.any()) == (0.0, False)


@pytest.mark.parametrize("narrow", [5, 12])
def test_a_job_that_is_late_with_all_of_its_time_leaves_the_others_as_fair_among_themselves(narrow: int):
    hopeless = job(0, elapsed_s=1e4)
    new = {"elapsed_s": 0.0, "isolated_elapsed_s": 0.0, "steps_remaining": 1.0}
    wide = [job(number, scale_factor=2, **new) for number in (1, 2)]
    others = [job(number, **new) for number in range(3, 3 + narrow)]
    found = solve(problem([hopeless, *wide, *others]))
    time = {share.jobs[0]: sum(share.time.values()) for share in found.allocation}
    assert time.pop("job-0") == pytest.approx(1.0)
    each = 7 / (narrow + 2)
    assert time.pop("job-1") == time.pop("job-2") == pytest.approx(each / 2)
    assert list(time.values()) == pytest.approx([each] * narrow), "7 GPUs in equal parts, whatever the first one's rho"
    assert found.objective > 30


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
    assert not is_one_type(classes_of(asked))


def test_no_jobs():
    assert solve(problem([])).allocation == []


def test_jobs_with_nothing_left_have_what_the_others_leave():
    found = solve(problem([job(0, steps_remaining=0.0), job(1)]))
    assert {share.jobs[0]: pytest.approx(sum(share.time.values())) for share in found.allocation} == {
        "job-0": 1.0,
        "job-1": 1.0,
    }
    assert solve(problem([job(0, steps_remaining=0.0)])).objective == 0.0
