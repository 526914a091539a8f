"""One problem, one answer: what `sanjaya solve` and the placement service call."""

from __future__ import annotations

from services.placement.core.policies.allocation.grouping import check_problem, group
from services.placement.core.policies.allocation.problem import InvalidProblem, Problem, Solution
from services.placement.core.policies.allocation.result import checked, expand
from services.placement.core.policies.allocation.table import ALLOCATION_POLICIES
from services.placement.core.policies.baselines.table import BASELINES


def solve(problem: Problem) -> Solution:
    """The optimal allocation of the problem's policy, expanded to jobs.

    Raises:
        InvalidProblem: the problem contradicts itself.
        SolverFailed: no optimum was found where there must be one.
    """
    check_problem(problem)
    baseline = BASELINES.get(problem.policy)
    if baseline is not None:
        return checked(problem, baseline(problem))
    policy = ALLOCATION_POLICIES.get(problem.policy)
    if policy is None:
        known = ", ".join([*ALLOCATION_POLICIES, *BASELINES])
        raise InvalidProblem("$.policy", repr(problem.policy), f"one of {known}")
    classes = group(problem, policy.sees(problem))
    found = policy.solve(problem, classes)
    found, late = found if isinstance(found, tuple) else (found, [])
    solution = Solution(
        objective=found.objective,
        allocation=expand(problem, found.model, found.values),
        infeasible=[problem.jobs[index].id for owner in late for index in classes.members[owner]],
        iterations=found.iterations,
    )
    return checked(problem, solution)
