"""No allocation gives more away than there is, whatever the solver has rounded."""

from __future__ import annotations

import numpy as np
import pytest

from libs.contracts.placement import Share
from libs.policies.allocation.grouping import group
from libs.policies.allocation.model import Model
from libs.policies.allocation.result import check_solution, expand
from libs.policies.problem import GpuPool, Job, Problem, Solution, SolverFailed

PROBLEM = Problem(
    policy="max_min_fairness",
    cluster={"v100": GpuPool(gpus=2), "k80": GpuPool(gpus=2)},
    jobs=[
        Job(id="a", throughputs={"v100": 2.0, "k80": 1.0}),
        Job(id="b", throughputs={"v100": 2.0, "k80": 1.0}),
        Job(id="c", throughputs={"v100": 2.0, "k80": 1.0}),
        Job(id="wide", throughputs={"v100": 1.0}, scale_factor=2),
    ],
)
"""Variables: time of {a, b, c} on v100 and on k80, of {wide} on v100."""


@pytest.mark.parametrize("too_much", [0.0, 1e-8])
@pytest.mark.parametrize("times", [[1.0, 1.0, 0.5], [2.0, 0.0, 0.0], [0.0, 0.5, 1.0], [0.0, 0.0, 0.0]])
def test_what_rounding_adds_is_taken_off_again(times: list[float], too_much: float):
    model = Model(group(PROBLEM))
    valid = model.within_limits(np.array(times) * (1 + too_much))
    assert valid == pytest.approx(times, rel=2e-8)
    check_solution(PROBLEM, Solution(objective=0.0, allocation=expand(PROBLEM, model, valid)))


def test_no_job_is_given_less_than_nothing_so_that_others_have_more():
    model = Model(group(PROBLEM))
    shares = expand(PROBLEM, model, model.within_limits(np.array([2.0 + 4e-7, 0.0, -2e-7])))
    check_solution(PROBLEM, Solution(objective=0.0, allocation=shares))
    assert [share.time for share in shares] == [{"v100": pytest.approx(2 / 3)}] * 3


@pytest.mark.parametrize("times", [[2.1, 0.0, 0.0], [0.0, 2.1, 0.0], [0.0, 0.0, 1.1], [1.0, 0.0, 0.6], [2.0, 1.1, 0.0]])
def test_what_rounding_cannot_explain_is_an_error(times: list[float]):
    with pytest.raises(SolverFailed, match="times as much as is possible"):
        Model(group(PROBLEM)).within_limits(np.array(times))


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ([Share(jobs=("a",), time={"v100": 0.7, "k80": 0.4})], "job a gets 1.1"),
        ([Share(jobs=(job,), time={"k80": 0.75}) for job in "abc"], "type k80 gets 2.25"),
        ([Share(jobs=("wide",), time={"v100": 0.6}), Share(jobs=("a", "b"), time={"v100": 1.0})], "type v100 gets 2.2"),
        ([Share(jobs=("a",), time={"v100": -0.1})], "get -0.1 of v100"),
        ([Share(jobs=("a",), time={"v100": float("nan")})], "get nan of v100"),
    ],
)
def test_every_solution_is_checked_job_by_job(shares: list[Share], message: str):
    with pytest.raises(SolverFailed, match=message):
        check_solution(PROBLEM, Solution(objective=0.0, allocation=shares))
