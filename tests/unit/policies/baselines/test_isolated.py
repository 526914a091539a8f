"""Every job on its own 1/n of the cluster."""

from __future__ import annotations

import pytest

from libs.policies.allocation.solve import solve
from libs.policies.problem import GpuPool, Job, Problem, Solution


def isolated(gpus: dict[str, int], jobs: list[Job]) -> Solution:
    cluster = {gpu_type: GpuPool(gpus=count) for gpu_type, count in gpus.items()}
    return solve(Problem(policy="isolated", cluster=cluster, jobs=jobs))


def test_an_equal_part_in_the_clusters_own_mix():
    jobs = [Job(id=str(n), throughputs={"v100": 10.0, "k80": 1.0}) for n in range(8)]
    answer = isolated({"v100": 1, "k80": 3}, jobs)
    assert len(answer.allocation) == 8
    for share in answer.allocation:
        assert share.time == pytest.approx({"v100": 0.125, "k80": 0.375})
    assert answer.objective == pytest.approx(0.5)


def test_no_job_gets_more_time_than_there_is():
    (share,) = isolated({"v100": 6, "k80": 2}, [Job(id="a", throughputs={"v100": 1.0, "k80": 1.0})]).allocation
    assert share.time == pytest.approx({"v100": 0.75, "k80": 0.25})


def test_a_gang_gets_less_time_on_more_gpus():
    jobs = [Job(id="gang", throughputs={"v100": 4.0}, scale_factor=4), Job(id="one", throughputs={"v100": 1.0})]
    answer = isolated({"v100": 4}, jobs)
    assert {share.jobs[0]: share.time for share in answer.allocation} == {"gang": {"v100": 0.5}, "one": {"v100": 1.0}}


def test_what_a_job_cannot_use_is_lost_to_it():
    jobs = [
        Job(id="picky", throughputs={"v100": 1.0, "k80": 0.0}),
        Job(id="wide", throughputs={"v100": 1.0, "k80": 1.0}, scale_factor=2),
        Job(id="nowhere", throughputs={}),
    ]
    answer = isolated({"v100": 2, "k80": 1}, jobs)
    times = {share.jobs[0]: share.time for share in answer.allocation}
    assert times == {"picky": {"v100": pytest.approx(2 / 3)}, "wide": {"v100": pytest.approx(1 / 3)}}
    assert answer.objective == pytest.approx(1.0)


def test_types_that_share_gpus_are_counted_once():
    cluster = {"v100": GpuPool(gpus=4), "v100-spread": GpuPool(gpus=4, shares_gpus_with="v100")}
    job = Job(id="a", throughputs={"v100": 2.0, "v100-spread": 1.0}, scale_factor=4)
    answer = solve(Problem(policy="isolated", cluster=cluster, jobs=[job]))
    assert [share.time for share in answer.allocation] == [{"v100": 1.0}]
