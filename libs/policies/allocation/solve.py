"""One problem, one answer: what `sanjaya solve` and the placement service call."""

from __future__ import annotations

from libs.policies.allocation.table import ALLOCATION_POLICIES
from libs.policies.problem import InvalidProblem, Problem, Solution


def solve(problem: Problem) -> Solution:
    """The allocation that the problem's policy gives.

    Args:
        problem: as `check_problem` lets through.

    Raises:
        InvalidProblem: there is no such policy.
        SolverFailed: no optimum was found where there must be one.
    """
    policy = ALLOCATION_POLICIES.get(problem.policy)
    if policy is None:
        raise InvalidProblem("$.policy", repr(problem.policy), f"one of {', '.join(ALLOCATION_POLICIES)}")
    from libs.policies.allocation.result import check_solution  # with numpy, see `table`

    solution = policy.solve(problem)
    check_solution(problem, solution)
    return solution
