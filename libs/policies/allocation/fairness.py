"""Max-min fairness: Least Attained Service, generalised (paper, section 4.1), and water filling (section 4.3)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from libs.policies.allocation.grouping import Classes
from libs.policies.allocation.lp import KEPT_OVER_STAGES, kept
from libs.policies.allocation.model import INFINITY, Model, best_for_jobs, better_for_jobs
from libs.policies.problem import SolverFailed

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
BINDING = 1e-7
"""A dual above says that the constraint is tight in every optimum."""


@dataclass(frozen=True)
class Found:
    """Values of an LP with its objective."""

    model: Model
    values: Floats
    objective: float
    iterations: int


def normalised_scale(classes: Classes) -> Floats:
    """(C,) factor from a class's total throughput to a member's normalised one, thr * sf / thr(X_equal)."""
    return classes.goodness * classes.width / classes.count


def max_min(classes: Classes) -> Found:
    """The largest minimum of normalised throughput over weight; among those, the largest sum of normalised ones."""
    chosen = np.flatnonzero(classes.runs)
    model = Model(classes, extra=1)
    scale = normalised_scale(classes)[chosen]
    first = model.add_throughput_rows(chosen, scale, classes.weight[chosen])
    if not len(chosen):
        return Found(model, np.zeros(model.columns), 0.0, 0)
    program = model.program(normalised=True)
    level = model.first_extra
    if scale.all():  # else some class gains nothing from its level, which is 0 whatever the start
        start = _on_the_fastest(model, classes.weight[chosen] / scale)
        if start.may_reach_ceiling and not model.paired:  # a pair may have been measured as faster than its jobs alone
            program.start_at(start.columns, chosen.tolist())  # the best, if on too many GPUs
            program.bound_column(level, kept(start.ceiling), INFINITY)
            with suppress(SolverFailed):
                values = best_for_jobs(model, program, breaks_limits=True)
                return Found(model, values, start.ceiling, program.iterations)
            program.bound_column(level, 0.0, INFINITY)
        program.start_at([*start.columns, level], [*range(first, first + len(chosen)), start.tight])
    cost = np.zeros(model.columns)
    cost[level] = 1.0
    values = program.maximise(cost)
    best = float(values[level])
    program.bound_column(level, kept(best), INFINITY)
    values = better_for_jobs(model, program, values)
    return Found(model, values, best, program.iterations)


@dataclass(frozen=True)
class _OnTheFastest:
    """Each class alone on its fastest type, all at the same level."""

    columns: list[int]
    """The variables that are not zero, in order of class."""
    tight: int
    """The constraint that allows no higher level: a start that is not far from the end."""
    ceiling: float
    """The level that some class has with all of its time; alone, no allocation gives it more."""
    may_reach_ceiling: bool
    """There are as many GPUs as that takes, if not of these types."""


def _on_the_fastest(model: Model, throughput: Floats) -> _OnTheFastest:
    """`throughput`: of each class that runs anywhere, at level 1."""
    classes = model.classes
    fastest = classes.rates.argmax(axis=1)[model.alone_class] == model.alone_type
    owner, gpu_type = model.alone_class[fastest], model.alone_type[fastest]
    time = throughput / classes.rates[owner, gpu_type]
    gpus = np.bincount(classes.pool_of[gpu_type], time * classes.width[owner], len(classes.pool_gpus))
    part_of_time = np.bincount(owner, time / classes.count[owner], len(classes.count))
    part_of_gpus = gpus / np.maximum(classes.pool_gpus, 1.0)
    ceiling = 1.0 / float(part_of_time.max())
    return _OnTheFastest(
        columns=np.flatnonzero(fastest).tolist(),
        tight=int(np.concatenate([part_of_time, part_of_gpus]).argmax()),
        ceiling=ceiling,
        may_reach_ceiling=bool(gpus.sum() * ceiling <= classes.pool_gpus.sum()),
    )


SlopesOf = Callable[[Ints, NDArray[np.bool_]], Floats]
"""How fast each of the chosen classes rises, given which of them are not bottlenecked yet; 0: not its turn."""


def fill_levels(classes: Classes, slopes_of: SlopesOf) -> Found:
    """Raise the levels of all classes at their slopes; a class that cannot rise any more stays, the others go on.

    Each stage is one LP: the largest rise z with normalised_c >= level_c + slope_c * z. A positive dual of a class's
    constraint says that it is tight in every optimum, so the class is bottlenecked; at least one is.
    """
    chosen = np.flatnonzero(classes.runs)
    model = Model(classes, extra=1)
    if not len(chosen):
        return Found(model, np.zeros(model.columns), 0.0, 0)
    first = model.add_throughput_rows(chosen, normalised_scale(classes)[chosen], np.zeros(len(chosen)))
    program = model.program()
    levels = np.zeros(len(chosen))
    open_ = np.ones(len(chosen), dtype=bool)
    objective = None
    rise = np.zeros(model.columns)
    rise[model.first_extra] = 1.0
    values = np.zeros(model.columns)
    before = np.zeros(len(chosen))
    while open_.any():
        slopes = slopes_of(chosen, open_)
        for index in np.flatnonzero(slopes != before):
            program.change(first + int(index), model.first_extra, -float(slopes[index]))
        before = slopes
        values = program.maximise(rise)
        height = max(0.0, float(values[model.first_extra]))
        objective = height if objective is None else objective
        levels = levels + slopes * height
        duals = np.abs(program.row_duals[first : first + len(chosen)])
        rising = open_ & (slopes > 0)
        stuck = rising & (duals * slopes > BINDING)
        if not stuck.any():
            stuck = rising
        open_ &= ~stuck
        for index in np.flatnonzero(rising):
            program.bound_row(first + int(index), kept(float(levels[index]), KEPT_OVER_STAGES), INFINITY)
    program.bound_column(model.first_extra, 0.0, 0.0)
    values = better_for_jobs(model, program, values)
    return Found(model, values, float(objective or 0.0), program.iterations)
