"""Every policy against its plain formulation: the same optimum, and an allocation that is valid and reaches it."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from libs.policies.allocation.solve import solve
from libs.policies.problem import (
    GpuPool,
    Job,
    KindPair,
    Pair,
    PolicyOptions,
    Problem,
    Solution,
)
from libs.testing.effort import searching
from tests.properties.policies import reference as plain
from tests.properties.policies.instances import problems
from tests.properties.policies.reference import Reference

examples = searching(by_default=15, thorough=150)
CLOSE = 1e-6


def checked(problem: Problem) -> tuple[Reference, Solution, np.ndarray]:
    """The solution, its variables, after a look at whether it is valid."""
    solution = solve(problem)
    reference = Reference(problem)
    x = plain.values(reference, solution)
    assert (x >= 0).all()
    assert (reference.limits @ x <= reference.bounds * (1 + 1e-9) + 1e-9).all()
    return reference, solution, x


def close(found: float, expected: float) -> bool:
    return abs(found - expected) <= CLOSE * max(1e-3, abs(expected))


@examples
@given(problems("max_min_fairness"))
def test_max_min_fairness(problem: Problem):
    reference, solution, x = checked(problem)
    assert close(solution.objective, plain.max_min(reference))
    for job in reference.runnable:
        assert reference.normalised(job) @ x >= reference.jobs[job].weight * solution.objective * (1 - CLOSE) - CLOSE


@examples
@given(problems("max_min_fairness", entities=True))
def test_water_filling_reaches_every_level(problem: Problem):
    reference, _, x = checked(problem)
    for job, level in plain.water_filling(reference).items():
        assert reference.normalised(job) @ x == pytest.approx(level, rel=1e-5, abs=1e-5)


@examples
@given(problems("hierarchical", entities=True))
def test_hierarchical_reaches_every_level(problem: Problem):
    reference, _, x = checked(problem)
    for job, level in plain.hierarchical(reference).items():
        assert reference.normalised(job) @ x == pytest.approx(level, rel=1e-5, abs=1e-5)


@examples
@given(problems("min_makespan"))
def test_makespan(problem: Problem):
    reference, solution, x = checked(problem)
    assert close(solution.objective, plain.makespan(reference))
    for job in reference.runnable:
        steps = reference.jobs[job].steps_remaining
        assert steps / (reference.throughput(job) @ x) <= solution.objective * (1 + CLOSE)


@examples
@given(problems("finish_time_fairness"))
def test_finish_time_fairness(problem: Problem):
    reference, solution, x = checked(problem)
    assert close(solution.objective, plain.finish_time_fairness(reference))
    for number in reference.runnable:
        job = reference.jobs[number]
        end = job.elapsed_s + job.steps_remaining / (reference.throughput(number) @ x)
        ideal = job.isolated_elapsed_s + job.steps_remaining / reference.isolated(number)
        assert end / ideal <= solution.objective * (1 + CLOSE)


@examples
@given(problems("fifo"))
def test_fifo(problem: Problem):
    reference, solution, _ = checked(problem)
    assert close(solution.objective, plain.fifo(reference))


@examples
@given(problems("max_throughput"))
def test_max_throughput(problem: Problem):
    reference, solution, x = checked(problem)
    expected = plain.weighted_sum(reference, dict.fromkeys(reference.runnable, 1.0))
    assert close(solution.objective, expected)
    assert close(sum(reference.throughput(job) @ x for job in reference.runnable), expected)


@examples
@given(problems("min_cost"))
def test_min_cost(problem: Problem):
    reference, solution, x = checked(problem)
    found = reference.maximise(plain.cost(reference))
    assert found is not None and close(solution.objective, found[0]) and close(plain.cost(reference) @ x, found[0])


@examples
@given(st.sampled_from(["min_cost_slo", "max_throughput_slo"]).flatmap(problems))
def test_deadlines_hold_or_are_named(problem: Problem):
    reference, solution, x = checked(problem)
    everything = sum((reference.throughput(job) for job in reference.runnable), np.zeros(reference.size))
    objective = plain.cost(reference) if problem.policy == "min_cost_slo" else everything
    expected, infeasible = plain.with_deadlines(reference, objective)
    assert solution.infeasible == infeasible
    assert close(solution.objective, expected)
    for number, job in enumerate(reference.jobs):
        if job.slo_s and job.steps_remaining and job.id not in infeasible:
            assert reference.throughput(number) @ x >= job.steps_remaining / job.slo_s * (1 - CLOSE)


@examples
@given(problems("shortest_job_first"))
def test_shortest_job_first(problem: Problem):
    reference, solution, _ = checked(problem)
    assert close(solution.objective, plain.shortest_first(reference))


@examples
@given(st.sampled_from(["allox", "isolated", "gandiva_packing"]).flatmap(problems))
def test_baselines_are_valid(problem: Problem):
    checked(problem)


def test_the_example_of_section_4_1():
    """X_het of the paper: three jobs, one V100 and one K80."""
    rates = [{"v100": 40.0, "k80": 10.0}, {"v100": 12.0, "k80": 4.0}, {"v100": 100.0, "k80": 50.0}]
    jobs = [Job(id=str(i), throughputs=row) for i, row in enumerate(rates)]
    solution = solve(
        Problem(policy="max_min_fairness", cluster={"v100": GpuPool(gpus=1), "k80": GpuPool(gpus=1)}, jobs=jobs)
    )
    time = {share.jobs[0]: share.time for share in solution.allocation}
    assert time["0"] == pytest.approx({"v100": 0.45}, abs=0.01)
    assert time["1"] == pytest.approx({"v100": 0.45, "k80": 0.09}, abs=0.01)
    assert time["2"] == pytest.approx({"v100": 0.09, "k80": 0.91}, abs=0.01)


def test_the_example_of_section_4_3():
    """Four equal jobs on four GPUs, the first with weight 3: water filling gives each a whole GPU."""
    jobs = [Job(id=str(i), throughputs={"v100": 1.0}, weight=3.0 if i == 0 else 1.0) for i in range(4)]
    problem = Problem(
        policy="max_min_fairness",
        cluster={"v100": GpuPool(gpus=4)},
        jobs=jobs,
        options=PolicyOptions(water_filling=True),
    )
    assert [share.time for share in solve(problem).allocation] == [{"v100": pytest.approx(1.0)}] * 4


@pytest.mark.parametrize("aware", [True, False])
@pytest.mark.parametrize("policy", ["max_min_fairness", "min_makespan", "fifo", "gandiva_packing"])
def test_pairs_by_kinds_are_pairs_of_jobs(policy: str, aware: bool):
    rates = {"small": {"v100": 2.0, "k80": 1.0}, "large": {"v100": 5.0, "k80": 1.0}}
    together = {("small", "small"): (1.4, 1.4), ("small", "large"): (1.6, 3.0)}
    kinds = ["small", "large", "small", "small", "large"]
    jobs = [Job(id=f"{i}", kind=k, throughputs=rates[k], steps_remaining=10.0 + i) for i, k in enumerate(kinds)]
    by_job = [
        Pair(jobs=(a.id, b.id), throughputs={"v100": row})
        for a in jobs
        for b in jobs
        for (first, second), row in together.items()
        if (a.kind, b.kind) == (first, second) and a.id != b.id and (first != second or a.id < b.id)
    ]
    asked = Problem(
        policy=policy,
        cluster={"v100": GpuPool(gpus=1), "k80": GpuPool(gpus=2)},
        jobs=jobs,
        pairs=by_job,
        options=PolicyOptions(space_sharing=True, heterogeneity_aware=aware),
    )
    by_kind = [KindPair(kinds=kinds, throughputs={"v100": row}) for kinds, row in together.items()]
    found = solve(structs.replace(asked, pairs=[], kind_pairs=by_kind))
    assert found.objective == pytest.approx(solve(asked).objective, rel=1e-7)
    assert any(len(share.jobs) == 2 for share in found.allocation)
    reference = Reference(asked)
    assert (reference.limits @ plain.values(reference, found) <= reference.bounds + 1e-9).all()


@pytest.mark.parametrize(("gpus", "late_h", "seed"), [(8, 0.0, 0), (4, 30.0, 3)])
def test_the_fairest_finish_where_the_needs_of_most_jobs_hardly_grow(gpus: int, late_h: float, seed: int):
    """One job may be nearly done and late already: near its optimum the others have much more than they need."""
    luck = Random(seed)
    drawn = [(luck.uniform(1, 100), luck.uniform(1, 50)) for _ in range(30)]
    hours = [(left, elapsed, elapsed * luck.uniform(0.9, 1.2)) for left, elapsed in drawn]
    if late_h:
        hours[0] = (1.0, late_h, late_h * 0.95)
    jobs = [
        Job(
            id=f"j{number}",
            throughputs={"v100": fast, "p100": fast * luck.uniform(0.2, 0.9), "k80": fast * luck.uniform(0.05, 0.3)},
            steps_remaining=3600 * fast * left,
            elapsed_s=3600 * elapsed,
            isolated_elapsed_s=3600 * isolated,
        )
        for number, (left, elapsed, isolated) in enumerate(hours)
        for fast in [luck.uniform(1, 50)]
    ]
    cluster = {gpu_type: GpuPool(gpus=gpus) for gpu_type in ("v100", "p100", "k80")}
    asked = Problem(policy="finish_time_fairness", cluster=cluster, jobs=jobs)
    expected = plain.finish_time_fairness(Reference(asked))
    assert solve(asked).objective == pytest.approx(expected, rel=3e-7)


ANY = st.one_of(*(problems(policy) for policy in ("max_min_fairness", "finish_time_fairness", "max_throughput_slo")))


@examples
@given(ANY, ANY)
def test_what_was_solved_before_changes_nothing(problem: Problem, other: Problem):
    found = solve(problem)
    solve(other)
    assert solve(problem) == found
