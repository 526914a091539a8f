"""From the values of an LP back to jobs, and the check that every answer passes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from libs.contracts.placement import Share
from libs.policies.allocation.grouping import PairClass
from libs.policies.allocation.model import Model
from libs.policies.problem import Problem, Solution, SolverFailed

Floats = NDArray[np.float64]
NOTHING = 1e-7
"""Times below are dust of the solver, unless a slow job lives on them."""
EXACT = 1e-9
"""Adding up breaks limits by no larger part."""
WHOLE = 1.0 + EXACT
"""All of a job's time."""


def expand(problem: Problem, model: Model, values: Floats) -> list[Share]:
    """Every member of a class gets the class's average; pairs are spread so that few rows are needed."""
    classes = model.classes
    alone: dict[int, dict[str, float]] = {}
    time_alone, least = values[: model.alone], NOTHING * model.throughputs(values)[model.alone_class]
    fractions = time_alone / classes.count[model.alone_class]
    gained = time_alone * classes.rates[model.alone_class, model.alone_type]
    counts = (fractions > NOTHING) | ((gained > least) & (least > 0))
    columns = model.alone_class[counts].tolist(), model.alone_type[counts].tolist(), fractions[counts].tolist()
    for owner, gpu_type, fraction in zip(*columns, strict=True):
        alone.setdefault(owner, {})[classes.types[gpu_type]] = fraction
    shares = [
        Share(jobs=(problem.jobs[index].id,), time=time)
        for owner, time in alone.items()
        for index in classes.members[owner]
    ]
    together: dict[int, dict[str, float]] = {}
    for column, number in enumerate(model.pair_index.tolist(), start=model.alone):
        if values[column] > NOTHING:
            gpu_type = classes.types[model.pair_type[column - model.alone]]
            together.setdefault(number, {})[gpu_type] = float(values[column])
    for number, total in together.items():
        for (a, b), part in spread(classes.pairs[number], classes.members).items():
            time = {gpu_type: value * part for gpu_type, value in total.items() if value * part > NOTHING}
            if time:
                shares.append(Share(jobs=(problem.jobs[a].id, problem.jobs[b].id), time=time))
    return shares


def spread(pair: PairClass, members: list[list[int]]) -> dict[tuple[int, int], float]:
    """{(job, job): part of the pair class's time}, such that all members of a class have the same part."""
    left, right = members[pair.a], members[pair.b]
    complete = len(left) * (len(left) - 1) // 2 if pair.a == pair.b else len(left) * len(right)
    if pair.links and len(pair.links) < complete:
        return dict.fromkeys(pair.links, 1.0 / len(pair.links))
    if pair.a != pair.b:
        return _transport(left, right)
    if not np.array_equal(pair.rates_a, pair.rates_b):
        return dict.fromkeys(pair.links, 1.0 / len(pair.links))
    if len(left) == 2:
        return {(left[0], left[1]): 1.0}
    return {(job, left[(i + 1) % len(left)]): 1.0 / len(left) for i, job in enumerate(left)}


def _transport(left: list[int], right: list[int]) -> dict[tuple[int, int], float]:
    """The north-west corner rule: equal parts on both sides with at most len(left) + len(right) - 1 rows."""
    found: dict[tuple[int, int], float] = {}
    i = j = 0
    unit_left, unit_right = len(right), len(left)  # in units of 1 / (len(left) * len(right)), so that it stays exact
    while i < len(left) and j < len(right):
        moved = min(unit_left, unit_right)
        found[left[i], right[j]] = moved / (len(left) * len(right))
        unit_left, unit_right = unit_left - moved, unit_right - moved
        if unit_left == 0:
            i, unit_left = i + 1, len(right)
        if unit_right == 0:
            j, unit_right = j + 1, len(left)
    return found


def check_solution(problem: Problem, solution: Solution) -> None:
    """Raises SolverFailed where the solution gives a job or a type away more than once, or less than nothing."""
    own, used = _taken(problem, solution.allocation)
    for job_id, time in own.items():
        if time > WHOLE:
            raise SolverFailed(f"job {job_id} gets {time}, at most 1 is possible")
    for gpu_type, gpus in used.items():
        limit = problem.cluster[gpu_type].gpus
        if gpus > limit + EXACT * max(1.0, limit):
            raise SolverFailed(f"type {gpu_type} gets {gpus}, at most {limit} is possible")


def _taken(problem: Problem, shares: list[Share]) -> tuple[dict[str, float], dict[str, float]]:
    """{job: part of its time}, {GPU type: GPUs}; of types with one capacity the one that has it."""
    width = {job.id: job.scale_factor for job in problem.jobs}
    capacity = {gpu_type: pool.shares_gpus_with or gpu_type for gpu_type, pool in problem.cluster.items()}
    own, used = dict.fromkeys(width, 0.0), dict.fromkeys(capacity.values(), 0.0)
    for share in shares:
        gang, total = width[share.jobs[0]], 0.0
        for gpu_type, time in share.time.items():
            if not time >= 0:
                raise SolverFailed(f"{share.jobs} get {time} of {gpu_type}")
            used[capacity[gpu_type]] += time * gang
            total += time
        for job_id in share.jobs:
            own[job_id] += total
    return own, used
