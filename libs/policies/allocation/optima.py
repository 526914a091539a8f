"""The optima that rows of the table give, with numpy and the solver: imported when the first problem is posed."""

from __future__ import annotations

import numpy as np

from libs.policies.allocation import fairness, sums, times
from libs.policies.allocation import hierarchical as by_entities
from libs.policies.allocation.fairness import Found
from libs.policies.allocation.grouping import Classes, Key
from libs.policies.allocation.optimum import optimum
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
        by_entities.entity_of(job.entity, job.id),
        index if job.entity in in_order else None,
    )


def _max_min(problem: Problem, classes: Classes) -> Found:
    if not problem.options.water_filling:
        return fairness.max_min(classes)
    return fairness.fill_levels(classes, lambda chosen, open_: np.where(open_, classes.weight[chosen], 0.0))


max_min_fairness = optimum(_max_min)
finish_time_fairness = optimum(lambda problem, classes: times.finish_time_fairness(classes), _work)
min_makespan = optimum(lambda problem, classes: times.min_makespan(classes), _work)
fifo = optimum(sums.fifo, _position)
shortest_job_first = optimum(lambda problem, classes: times.shortest_job_first(classes), _position)
max_throughput = optimum(lambda problem, classes: sums.max_throughput(classes))
min_cost = optimum(lambda problem, classes: sums.min_cost(classes))
min_cost_slo = optimum(lambda problem, classes: sums.with_deadlines(classes, by_cost=True), _deadline)
max_throughput_slo = optimum(lambda problem, classes: sums.with_deadlines(classes, by_cost=False), _deadline)
hierarchical = optimum(by_entities.hierarchical, _entity)
