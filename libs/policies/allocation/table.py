"""The allocation policies by name. A new one is one new file and one row here."""

from __future__ import annotations

import numpy as np

from libs.policies.allocation import fairness, hierarchical, sums, times
from libs.policies.allocation.fairness import Found
from libs.policies.allocation.grouping import Classes, Key
from libs.policies.allocation.optimum import optimum
from libs.policies.allocation.policy import AllocationPolicy
from libs.policies.baselines.allox import allox
from libs.policies.baselines.gandiva_packing import gandiva_packing
from libs.policies.baselines.isolated import isolated
from libs.policies.problem import Problem


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
    AllocationPolicy(
        name="max_min_fairness",
        describes="The smallest normalised throughput is as large as can be.",
        solve=optimum(_max_min),
    ),
    AllocationPolicy(
        name="finish_time_fairness",
        describes="No job ends much later than on its own part of the cluster.",
        solve=optimum(lambda problem, classes: times.finish_time_fairness(classes), _work),
        sees_work=True,
    ),
    AllocationPolicy(
        name="min_makespan",
        describes="All jobs have ended as early as can be.",
        solve=optimum(lambda problem, classes: times.min_makespan(classes), _work),
        sees_work=True,
    ),
    AllocationPolicy(
        name="fifo",
        describes="Earlier jobs go first, on the GPUs that suit them.",
        solve=optimum(sums.fifo, _position),
    ),
    AllocationPolicy(
        name="shortest_job_first",
        describes="The job that can end first goes first.",
        solve=optimum(lambda problem, classes: times.shortest_job_first(classes), _position),
        sees_work=True,
    ),
    AllocationPolicy(
        name="max_throughput",
        describes="The most steps per second in total.",
        solve=optimum(lambda problem, classes: sums.max_throughput(classes)),
    ),
    AllocationPolicy(
        name="min_cost",
        describes="The most steps per dollar.",
        solve=optimum(lambda problem, classes: sums.min_cost(classes)),
    ),
    AllocationPolicy(
        name="min_cost_slo",
        describes="The most steps per dollar that meet all deadlines.",
        solve=optimum(lambda problem, classes: sums.with_deadlines(classes, by_cost=True), _deadline),
        sees_work=True,
    ),
    AllocationPolicy(
        name="max_throughput_slo",
        describes="The most steps per second that meet all deadlines.",
        solve=optimum(lambda problem, classes: sums.with_deadlines(classes, by_cost=False), _deadline),
        sees_work=True,
    ),
    AllocationPolicy(
        name="hierarchical",
        describes="Fair between entities, then inside each.",
        solve=optimum(hierarchical.hierarchical, _entity),
        sees_entities=True,
    ),
    AllocationPolicy(
        name="allox",
        describes="The smallest average completion time, by matching jobs to places in the queues of GPUs (AlloX).",
        solve=allox,
        sees_work=True,
    ),
    AllocationPolicy(
        name="isolated",
        describes="Every job has its own part of the cluster, whatever suits it.",
        solve=isolated,
    ),
    AllocationPolicy(
        name="gandiva_packing",
        describes="As isolated, with pairs of jobs tried at random (Gandiva's packing as the Gavel paper models it).",
        solve=gandiva_packing,
        pairs_jobs=True,
    ),
)
ALLOCATION_POLICIES: dict[str, AllocationPolicy] = {policy.name: policy for policy in _POLICIES}
