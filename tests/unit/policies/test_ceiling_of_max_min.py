"""Max-min fairness ends where one class has all of its time on its fastest type, if the GPUs allow it."""

from __future__ import annotations

import pytest

from libs.policies.allocation.solve import solve
from libs.policies.problem import GpuPool, Job, Pair, PolicyOptions, Problem

FAST = {"v100": 4.0, "k80": 1.0}


def objective(cluster: dict[str, int], jobs: list[Job], pairs: list[Pair] | None = None) -> float:
    found = solve(
        Problem(
            policy="max_min_fairness",
            cluster={gpu_type: GpuPool(gpus=gpus) for gpu_type, gpus in cluster.items()},
            jobs=jobs,
            pairs=pairs or [],
            options=PolicyOptions(space_sharing=bool(pairs)),
        )
    ).objective
    assert found is not None
    return found


def test_the_job_that_gains_least_from_its_fastest_type_ends_the_rise():
    equal = Job(id="equal", throughputs={"v100": 1.0, "k80": 1.0})
    faster = Job(id="faster", throughputs=FAST)
    assert objective({"v100": 2, "k80": 2}, [equal, faster]) == pytest.approx(1.0, rel=1e-9)


def test_a_weight_counts_for_the_end_of_the_rise():
    light, heavy = Job(id="light", throughputs=FAST), Job(id="heavy", throughputs=FAST, weight=2.0)
    assert objective({"v100": 2, "k80": 2}, [light, heavy]) == pytest.approx(4 / 2.5 / 2, rel=1e-9)


def test_enough_gpus_of_the_wrong_type_lift_no_job():
    only_fast = [Job(id=name, throughputs={"v100": 4.0}) for name in ("a", "b")]
    assert objective({"v100": 1, "k80": 3}, only_fast) == pytest.approx(4 * 0.5 / 1, rel=1e-9)


def test_too_few_gpus_for_all_jobs():
    jobs = [Job(id=str(number), throughputs={"v100": 2.0}) for number in range(3)]
    assert objective({"v100": 1}, jobs) == pytest.approx(1 / 3, rel=1e-9)


def test_a_pair_that_was_measured_faster_than_its_jobs_alone_rises_higher():
    jobs = [Job(id=name, throughputs={"v100": 1.0}) for name in ("a", "b")]
    pair = Pair(jobs=("a", "b"), throughputs={"v100": (1.2, 1.2)})
    assert objective({"v100": 2}, jobs, [pair]) == pytest.approx(1.2, rel=1e-9)
