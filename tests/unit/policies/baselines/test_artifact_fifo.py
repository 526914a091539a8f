"""The FIFO of the Gavel authors' simulator, imitated: a type by lot, whatever else is on it."""

from __future__ import annotations

import pytest

from libs.policies.allocation.solve import solve
from libs.policies.problem import GpuPool, Job, Problem, Solution

RATES = {"v100": 4.0, "k80": 1.0}


def asked(gpus: dict[str, int], jobs: list[Job]) -> Solution:
    cluster = {gpu_type: GpuPool(gpus=count) for gpu_type, count in gpus.items()}
    return solve(Problem(policy="artifact_fifo", cluster=cluster, jobs=jobs))


def of(count: int) -> list[Job]:
    return [Job(id=f"job-{number}", throughputs=RATES) for number in range(count)]


def test_jobs_take_part_in_order_while_the_whole_cluster_has_as_many_gpus():
    answer = asked({"v100": 4, "k80": 4}, of(20))
    assert {share.jobs[0] for share in answer.allocation} == {f"job-{number}" for number in range(8)}


def test_an_overfilled_type_is_shared_while_others_stand_idle():
    gpus = {"v100": 7, "k80": 1}
    answer = asked(gpus, of(20))
    per_type = {t: [share.time[t] for share in answer.allocation if t in share.time] for t in gpus}
    assert len(per_type["k80"]) > 1, "the lot is blind to how many GPUs a type has"
    assert sum(per_type["k80"]) == pytest.approx(1.0)
    assert sum(per_type["v100"]) == len(per_type["v100"]) < 7
    assert answer.objective == pytest.approx(1.0 + len(per_type["v100"]))


def test_a_job_keeps_its_type_while_others_come_and_go():
    few, many = asked({"v100": 4, "k80": 4}, of(3)), asked({"v100": 4, "k80": 4}, of(8))
    types = {share.jobs: set(share.time) for share in many.allocation}
    assert all(types[share.jobs] == set(share.time) for share in few.allocation)


def test_a_gang_that_does_not_fit_holds_up_those_behind_it():
    jobs = [of(1)[0], Job(id="gang", throughputs=RATES, scale_factor=4), Job(id="behind", throughputs=RATES)]
    assert [share.jobs for share in asked({"v100": 4, "k80": 0}, jobs).allocation] == [("job-0",)]


def test_a_job_that_runs_nowhere_holds_up_no_other():
    jobs = [Job(id="nowhere", throughputs={}), Job(id="next", throughputs={"v100": 1.0})]
    assert [share.jobs for share in asked({"v100": 1}, jobs).allocation] == [("next",)]
