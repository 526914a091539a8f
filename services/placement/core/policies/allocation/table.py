"""The allocation policies by name. A new policy is one new file and one line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from services.placement.core.policies.allocation import fairness, hierarchical, sums, times
from services.placement.core.policies.allocation.fairness import Found
from services.placement.core.policies.allocation.grouping import Classes, Key
from services.placement.core.policies.allocation.problem import Problem

Sees = Callable[[Problem], Key]


@dataclass(frozen=True)
class AllocationPolicy:
    """One optimisation problem."""

    name: str
    describes: str
    solve: Callable[[Problem, Classes], Found | tuple[Found, list[int]]]
    """The allocation of the classes; with deadlines also the classes whose deadline cannot be met."""
    sees: Sees = lambda problem: lambda index, job: None
    """What distinguishes jobs beside rates, scale factor and weight."""


def _position(problem: Problem) -> Key:
    return lambda index, job: index


def _work(problem: Problem) -> Key:
    return lambda index, job: (job.steps_remaining, job.elapsed_s, job.isolated_elapsed_s)


def _deadline(problem: Problem) -> Key:
    return lambda index, job: index if job.slo_s is not None and job.steps_remaining else None


def _entity(problem: Problem) -> Key:
    in_order = {name for name, entity in problem.entities.items() if entity.policy == "fifo"}
    return lambda index, job: (
        hierarchical.entity_of(job.entity, job.id),
        index if job.entity in in_order else None,
    )


def _max_min(problem: Problem, classes: Classes) -> Found:
    if not problem.options.water_filling:
        return fairness.max_min(classes)
    return fairness.fill_levels(classes, lambda chosen, open_: np.where(open_, classes.weight[chosen], 0.0))


_POLICIES = (
    AllocationPolicy("max_min_fairness", "The smallest normalised throughput is as large as can be.", _max_min),
    AllocationPolicy(
        "finish_time_fairness",
        "No job ends much later than on its own part of the cluster.",
        lambda problem, classes: times.finish_time_fairness(classes),
        _work,
    ),
    AllocationPolicy(
        "min_makespan", "All jobs have ended as early as can be.", lambda problem, c: times.min_makespan(c), _work
    ),
    AllocationPolicy("fifo", "Earlier jobs go first, on the GPUs that suit them.", sums.fifo, _position),
    AllocationPolicy(
        "shortest_job_first",
        "Who can end first goes first.",
        lambda problem, classes: times.shortest_job_first(classes),
        _position,
    ),
    AllocationPolicy(
        "max_throughput", "The most steps per second in total.", lambda problem, c: sums.max_throughput(c)
    ),
    AllocationPolicy("min_cost", "The most steps per dollar.", lambda problem, c: sums.min_cost(c)),
    AllocationPolicy(
        "min_cost_slo",
        "The most steps per dollar that meet all deadlines.",
        lambda problem, c: sums.with_deadlines(c, by_cost=True),
        _deadline,
    ),
    AllocationPolicy(
        "max_throughput_slo",
        "The most steps per second that meet all deadlines.",
        lambda problem, c: sums.with_deadlines(c, by_cost=False),
        _deadline,
    ),
    AllocationPolicy("hierarchical", "Fair between entities, then inside each.", hierarchical.hierarchical, _entity),
)
ALLOCATION_POLICIES: dict[str, AllocationPolicy] = {policy.name: policy for policy in _POLICIES}
