"""One problem, one answer: what `sanjaya solve` and the placement service call."""

from __future__ import annotations

from services.placement.core.policies.allocation.grouping import group
from services.placement.core.policies.allocation.problem import InvalidProblem, Problem, Solution
from services.placement.core.policies.allocation.result import check_solution, expand
from services.placement.core.policies.allocation.table import ALLOCATION_POLICIES
from services.placement.core.policies.baselines.table import BASELINES


def solve(problem: Problem) -> Solution:
    """The optimal allocation of the problem's policy, expanded to jobs.

    Args:
        problem: as `check_problem` lets through.

    Raises:
        InvalidProblem: nobody knows the policy.
        SolverFailed: no optimum was found where there must be one.
    """
    baseline = BASELINES.get(problem.policy)
    solution = baseline(problem) if baseline is not None else _optimum(problem)
    check_solution(problem, solution)
    return solution


def _optimum(problem: Problem) -> Solution:
    policy = ALLOCATION_POLICIES.get(problem.policy)
    if policy is None:
        known = ", ".join([*ALLOCATION_POLICIES, *BASELINES])
        raise InvalidProblem("$.policy", repr(problem.policy), f"one of {known}")
    classes = group(problem, policy.sees(problem))
    found = policy.solve(problem, classes)
    found, late = found if isinstance(found, tuple) else (found, [])
    return Solution(
        objective=found.objective,
        allocation=expand(problem, found.model, found.model.within_limits(found.values)),
        infeasible=[problem.jobs[index].id for owner in late for index in classes.members[owner]],
        iterations=found.iterations,
    )
