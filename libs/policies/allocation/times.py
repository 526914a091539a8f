"""Policies about when jobs end: finish-time fairness, makespan, shortest job first (paper, section 4.2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from libs.policies.allocation.fairness import Found
from libs.policies.allocation.grouping import Classes
from libs.policies.allocation.lp import KEPT_OVER_STAGES, kept
from libs.policies.allocation.model import INFINITY, Model, better_for_jobs
from libs.policies.allocation.one_type import is_one_type, spread_as_mix

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
CLOSE = 1e-9
MOST_STEPS = 60


def _steps(classes: Classes) -> Floats:
    """(C,) remaining steps of a member."""
    return np.array([job.steps_remaining or 0.0 for job in classes.firsts])


def min_makespan(classes: Classes) -> Found:
    """The earliest time by which all jobs have ended: one LP, that maximises 1 / T with thr >= steps / T.

    The second objective lets jobs that can end earlier do so.
    """
    steps = _steps(classes)
    chosen = np.flatnonzero(classes.runs & (steps > 0))
    model = Model(classes, extra=1)
    if not len(chosen):
        return Found(model, _second(model), 0.0, 0)
    rate = model.first_extra
    unit = float(steps[chosen].max())
    model.add_throughput_rows(chosen, 1.0 / classes.count[chosen], steps[chosen] / unit)
    program = model.program()
    cost = np.zeros(model.columns)
    cost[rate] = 1.0
    values = program.maximise(cost)
    best = float(values[rate])
    program.bound_column(rate, kept(best), INFINITY)
    values = better_for_jobs(model, program, values)
    return Found(model, values, unit / best, program.iterations)


def finish_time_fairness(classes: Classes) -> Found:
    """The smallest maximum of rho (Themis' measure), to the solver's tolerance.

    Every job is a class here, thousands of them under an overloaded baseline, which does not know of types and to which
    a formula gives what they get.
    """
    return smallest_rho_on_one_type(classes) if is_one_type(classes) else smallest_rho(classes)


def smallest_rho_on_one_type(classes: Classes) -> Found:
    """The allocation of `finish_time_fairness` where no GPU suits a job better than another one.

    A job needs steps / (rho * D - elapsed) of its time, as in `smallest_rho`, at most all of it: one that cannot keep
    rho even so is late whatever the others get. The rho is looked for at which all needs are all GPUs. So it is the
    smallest of those that can keep it, too, in the place of whichever allocation comes with the rho of the latest job.
    """
    steps = _steps(classes)
    demand, gpus = classes.count * classes.width, float(classes.pool_gpus.sum())
    has_work = steps > 0 if gpus else np.zeros(len(steps), bool)  # without a GPU no rho can be had
    chosen = np.flatnonzero(has_work)
    time, rho = np.zeros(len(steps)), 0.0
    if len(chosen):
        left, (elapsed, _, ideal) = steps[chosen], _ages(classes, steps, chosen)
        time[chosen] = _needs_of_all_gpus(left, elapsed, ideal, demand[chosen], gpus)
        rho = float(((elapsed + left / time[chosen]) / ideal).max())
    if not has_work.all():
        time[~has_work] = min(1.0, (gpus - demand @ time) / demand[~has_work].sum())
    return spread_as_mix(time, rho, classes)


def _needs_of_all_gpus(left: Floats, elapsed: Floats, ideal: Floats, demand: Floats, gpus: float) -> Floats:
    """(C,) the parts of their time, at most 1, that jobs need for one rho: the smallest that there are GPUs for."""
    if demand.sum() <= gpus:
        return np.ones(len(left))

    def needs(rho: float) -> Floats:
        return left / np.maximum(rho * ideal - elapsed, left)

    low, high = 0.0, 1.0
    while demand @ needs(high) > gpus:
        low, high = high, 2 * high
    while high - low > CLOSE / 100 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if demand @ needs(middle) > gpus else (low, middle)
    return needs(high)


def smallest_rho(classes: Classes) -> Found:
    """The allocation of `finish_time_fairness`.

    rho <= r means thr >= steps / (r * D - elapsed), with D the job's end on its 1/n of the cluster. For a given r an
    LP finds the largest s with thr >= s * need(r) for all; the r is looked for at which s is 1. Each answer bounds it
    from both sides: the largest rho of its throughputs can be had, and an r is too small when the needs cost more than
    can be paid at the answer's dual prices y, sum of y * need(r). The lower bound is tried next.
    """
    steps = _steps(classes)
    chosen = np.flatnonzero(classes.runs & (steps > 0))
    model = Model(classes, extra=1)
    if not len(chosen):
        return Found(model, _second(model), 0.0, 0)
    elapsed, alone, ideal = _ages(classes, steps, chosen)
    steps = steps[chosen]
    factor = model.first_extra
    first = model.add_throughput_rows(chosen, 1.0 / classes.count[chosen], np.ones(len(chosen)))
    program = model.program()
    cost = np.zeros(model.columns)
    cost[factor] = 1.0
    least = float(((elapsed + steps / model.fastest[chosen]) / ideal).max())
    rho = max(least, float(((elapsed + alone) / ideal).max()))
    best, values = INFINITY, np.zeros(model.columns)
    for _ in range(MOST_STEPS):
        need = steps / (rho * ideal - elapsed)
        program.change_column(factor, first, -need)
        found = program.maximise(cost)
        thr = model.throughputs(found)[chosen] / classes.count[chosen]
        reached = float(((elapsed + steps / np.maximum(thr, 1e-300)) / ideal).max())
        if reached < best:
            best, values = reached, found
        prices = np.abs(program.row_duals[first : first + len(chosen)])
        least = max(least, _affordable(prices, steps, ideal, elapsed, rho, float(found[factor])))
        if best - least <= CLOSE * best:
            break
        rho = least
    program.bound_column(factor, 0.0, 0.0)
    need = steps / (best * ideal - elapsed)
    for index, value in enumerate(need.tolist()):
        program.bound_row(first + index, kept(value), INFINITY)
    return Found(model, better_for_jobs(model, program, values), best, program.iterations)


def _ages(classes: Classes, steps: Floats, chosen: Ints) -> tuple[Floats, Floats, Floats]:
    """Of the chosen classes, in seconds: since the arrival; on 1/n of the cluster still to go, and from the arrival to
    the end (D)."""
    elapsed = np.array([job.elapsed_s for job in classes.firsts])[chosen]
    isolated = np.array([job.isolated_elapsed_s for job in classes.firsts])[chosen]
    alone = (steps / isolated_rates(classes))[chosen]
    return elapsed, alone, isolated + alone


def _affordable(prices: Floats, steps: Floats, ideal: Floats, elapsed: Floats, rho: float, budget: float) -> float:
    """The r at which the needs cost `budget` times what they cost at rho; 0 where that cannot be told.

    Newton's method for the inverse of the cost, which is concave in r, and a straight line where one job has a price.
    """
    priced = prices > 0
    worth, ideal, elapsed = (prices * steps)[priced], ideal[priced], elapsed[priced]
    if not len(worth) or not budget > 0:
        return 0.0
    end = float((elapsed / ideal).max())
    aim = 1.0 / (float((worth / (rho * ideal - elapsed)).sum()) * budget)
    for _ in range(MOST_STEPS):
        gap = rho * ideal - elapsed
        inverse = 1.0 / float((worth / gap).sum())
        rise = inverse * inverse * float((worth * ideal / (gap * gap)).sum())
        moved = rho + (aim - inverse) / rise
        moved = moved if moved > end else (rho + end) / 2
        if abs(moved - rho) <= CLOSE / 100 * rho:
            break
        rho = moved
    return rho


def isolated_rates(classes: Classes) -> Floats:
    """(C,) throughput on 1/n of the cluster, in its own mix of types (X_iso)."""
    jobs, gpus = float(classes.count.sum()), float(classes.pool_gpus.sum())
    part = np.minimum(1.0, gpus / (jobs * classes.width)) if jobs else np.ones(len(classes.count))
    return np.maximum(classes.equal_rates * part, 1e-300)


def shortest_job_first(classes: Classes) -> Found:
    """The job that can end first gets all that it can use, then the next one, until nothing is left."""
    steps = _steps(classes)
    fastest = classes.rates.max(axis=1, initial=0.0)
    chosen = np.flatnonzero(classes.runs)
    order = chosen[np.argsort(steps[chosen] / fastest[chosen], kind="stable")]
    model = Model(classes)
    if not len(order):
        return Found(model, np.zeros(model.columns), 0.0, 0)
    scale = 1.0 / (classes.count * np.maximum(fastest, 1e-300))
    first = model.add_throughput_rows(order, scale[order])
    program = model.program()
    values = np.zeros(model.columns)
    kept_from = np.full(len(order), INFINITY)
    for place, owner in enumerate(order):
        worth = np.zeros(len(classes.count))
        worth[owner] = scale[owner]
        values = model.within_limits(program.maximise(model.cost_of(worth)))
        reached = (model.throughputs(values) * scale)[order[: place + 1]]
        for lower in np.flatnonzero(reached < kept_from[: place + 1]):
            kept_from[lower] = reached[lower]
            program.bound_row(first + int(lower), kept(float(reached[lower]), KEPT_OVER_STAGES), INFINITY)
        if reached[place] <= 0 and not classes.pairs:
            break
    values = better_for_jobs(model, program, values)
    thr = model.throughputs(values)[chosen] / classes.count[chosen]
    ends = steps[chosen] / np.maximum(thr, 1e-300)
    return Found(model, values, float(ends.min()), program.iterations)


def _second(model: Model) -> Floats:
    """The second objective alone: nothing is left to be done."""
    return better_for_jobs(model, model.program(), np.zeros(model.columns))
