"""Policies that are optimisation problems over classes of interchangeable jobs (`grouping` says why that is exact)."""

from __future__ import annotations

from collections.abc import Callable

from libs.policies.allocation.fairness import Found
from libs.policies.allocation.grouping import Classes, Key, group
from libs.policies.allocation.result import expand
from libs.policies.problem import Problem, Solution

OfClasses = Callable[[Problem, Classes], Found | tuple[Found, list[int]]]
"""The allocation of the classes; with deadlines also the classes with a deadline that cannot be met."""
Sees = Callable[[Problem], Key]
"""What distinguishes jobs beside rates, scale factor and weight."""


def optimum(
    of_classes: OfClasses, sees: Sees = lambda problem: lambda index, job: None
) -> Callable[[Problem], Solution]:
    """The policy that solves a problem over classes, and expands its answer to jobs."""

    def solve(problem: Problem) -> Solution:
        classes = group(problem, sees(problem))
        found = of_classes(problem, classes)
        found, late = found if isinstance(found, tuple) else (found, [])
        return Solution(
            objective=found.objective,
            allocation=expand(problem, found.model, found.model.within_limits(found.values)),
            infeasible=[problem.jobs[index].id for owner in late for index in classes.members[owner]],
            iterations=found.iterations,
        )

    return solve
