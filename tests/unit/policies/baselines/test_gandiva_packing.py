"""Gandiva's packing: time slices, and pairs under overload only."""

from __future__ import annotations

import pytest

from libs.policies.allocation.solve import solve
from libs.policies.problem import GpuPool, Job, Pair, Problem, Solution

GOOD, BAD = 0.7, 0.4
"""Parts of its own speed that a job keeps in a pair."""


def jobs(count: int, width: int = 1, **rates: float) -> list[Job]:
    return [Job(id=f"j{n}", throughputs=rates or {"v100": 10.0}, scale_factor=width) for n in range(count)]


def pair(a: str, b: str, *types: str, keeps: float = GOOD) -> Pair:
    return Pair(jobs=(a, b), throughputs=dict.fromkeys(types or ("v100",), (10.0 * keeps, 10.0 * keeps)))


def packed(gpus: dict[str, int], jobs: list[Job], pairs: list[Pair]) -> Solution:
    cluster = {gpu_type: GpuPool(gpus=count) for gpu_type, count in gpus.items()}
    return solve(Problem(policy="gandiva_packing", cluster=cluster, jobs=jobs, pairs=pairs))


def rows(answer: Solution) -> dict[tuple[str, ...], dict[str, float]]:
    return {share.jobs: share.time for share in answer.allocation}


def test_without_overload_no_job_shares_a_gpu():
    answer = packed({"v100": 2}, jobs(2), [pair("j0", "j1")])
    assert rows(answer) == {("j0",): {"v100": 1.0}, ("j1",): {"v100": 1.0}}


def test_under_overload_pairs_are_made_until_no_job_is_in_excess():
    pairs_of_all = [pair(f"j{a}", f"j{b}") for a in range(4) for b in range(a)]
    answer = packed({"v100": 3}, jobs(4), pairs_of_all)
    assert sorted(map(len, rows(answer))) == [1, 1, 2]
    assert all(time == {"v100": 1.0} for time in rows(answer).values())
    assert answer.objective == 1.0


def test_a_job_still_in_excess_gets_a_slice_of_the_time():
    answer = packed({"v100": 1}, jobs(3), [pair("j0", "j2")])
    assert rows(answer) == {("j0", "j2"): {"v100": 0.5}, ("j1",): {"v100": 0.5}}


def test_a_pair_that_is_no_better_than_slices_is_not_kept():
    answer = packed({"v100": 1}, jobs(2), [pair("j0", "j1", keeps=BAD)])
    assert rows(answer) == {("j0",): {"v100": 0.5}, ("j1",): {"v100": 0.5}}
    assert len(packed({"v100": 1}, jobs(2), [pair("j0", "j1", keeps=0.5)]).allocation) == 2


def test_the_pairs_depend_on_the_ids_alone():
    pairs_of_all = [pair(f"j{a}", f"j{b}") for a in range(6) for b in range(a)]
    turned = [Pair(jobs=(p.jobs[1], p.jobs[0]), throughputs=p.throughputs) for p in reversed(pairs_of_all)]
    first, second = (
        packed({"v100": 3}, listed, pairs) for listed, pairs in ((jobs(6), pairs_of_all), (jobs(6), turned))
    )
    assert {frozenset(row) for row in rows(first)} == {frozenset(row) for row in rows(second)}
    assert packed({"v100": 3}, jobs(6), pairs_of_all) == first


def test_gangs_are_packed_as_one():
    answer = packed({"v100": 4}, jobs(2, width=4), [pair("j0", "j1")])
    assert rows(answer) == {("j0", "j1"): {"v100": 1.0}}


def test_where_a_pair_cannot_be_packed_the_two_take_turns():
    answer = packed({"v100": 1, "k80": 1}, jobs(4, v100=10.0, k80=10.0), [pair("j0", "j1"), pair("j2", "j3")])
    found = rows(answer)
    assert found["j0", "j1"] == {"v100": pytest.approx(0.5)}
    assert found["j0",] == found["j1",] == {"k80": pytest.approx(0.25)}


def test_where_only_one_of_a_pair_runs_it_runs_alone():
    listed = [Job(id="j0", throughputs={"v100": 10.0}), Job(id="j1", throughputs={"v100": 10.0, "k80": 10.0})]
    answer = packed({"v100": 1}, listed[:1] + jobs(2)[1:], [pair("j0", "j1")])
    assert rows(answer) == {("j0", "j1"): {"v100": 1.0}}
    answer = packed({"v100": 1, "k80": 1}, [*listed, *jobs(3)[2:]], [pair("j0", "j1")])
    assert rows(answer)["j1",] == {"k80": pytest.approx(0.25)} and ("j0",) not in rows(answer)


def test_the_second_job_of_a_pair_that_is_taken_may_go_with_another():
    answer = packed({"v100": 2}, jobs(4), [pair("j0", "j1"), pair("j1", "j2"), pair("j2", "j3"), pair("j3", "j0")])
    assert sorted(map(len, rows(answer))) == [2, 2]


def test_jobs_that_run_nowhere_count_for_nothing():
    listed = [*jobs(1), Job(id="none", throughputs={}), Job(id="wide", throughputs={"v100": 1.0}, scale_factor=9)]
    assert rows(packed({"v100": 1}, listed, [])) == {("j0",): {"v100": 1.0}}
    assert packed({"v100": 0}, jobs(1), []).allocation == []
