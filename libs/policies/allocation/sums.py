"""Policies that maximise a weighted sum of throughputs, with or without deadlines (paper, section 4.2 and table 1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from libs.policies.allocation.fairness import Found
from libs.policies.allocation.grouping import Classes
from libs.policies.allocation.lp import LinearProgram, kept
from libs.policies.allocation.model import INFINITY, Model, better_for_jobs
from libs.policies.problem import Problem

Floats = NDArray[np.float64]


def fifo(problem: Problem, classes: Classes) -> Found:
    """Earlier jobs count more: M - m times the throughput, as part of that on the fastest type."""
    places = {job.id: place for place, job in enumerate(problem.jobs)}
    rank = np.array([len(places) - places[job.id] for job in classes.firsts], dtype=float)
    fastest = classes.rates.max(axis=1, initial=0.0)
    worth = np.divide(rank, fastest, out=np.zeros_like(rank), where=fastest > 0)
    model = Model(classes)
    return _best(model, model.cost_of(worth), model.program())


def max_throughput(classes: Classes) -> Found:
    """The largest sum of throughputs."""
    model = Model(classes)
    return _best(model, model.cost_of(np.ones(len(classes.count))), model.program())


def min_cost(classes: Classes) -> Found:
    """The largest sum of steps per dollar."""
    model = Model(classes)
    return _best(model, model.cost_of_typed(_per_dollar(classes)), model.program())


def _per_dollar(classes: Classes) -> Floats:
    """(T,) 1 / price; a free type is as good as one that costs nearly nothing."""
    return 1.0 / np.maximum(classes.cost, 1e-9)


def with_deadlines(classes: Classes, *, by_cost: bool) -> tuple[Found, list[int]]:
    """As the policy without deadlines, but thr >= steps / slo for the jobs that have one.

    Returns:
        The allocation, and the classes with a deadline that cannot be met: alone, or beside those that came before.
    """
    model = Model(classes)
    need = np.array([_needed(job.steps_remaining, job.slo_s) for job in classes.firsts])
    bound = np.flatnonzero(need > 0)
    hopeless = [int(c) for c in bound if need[c] > classes.rates[c].max(initial=0.0) * (1 + 1e-12)]
    possible = [int(c) for c in bound if int(c) not in hopeless]
    chosen = np.array(possible, dtype=np.int64)
    first = model.add_throughput_rows(chosen, 1.0 / classes.count[chosen])
    program = model.program()
    refused = _refused(program, first, [float(need[c]) for c in possible])
    cost = model.cost_of_typed(_per_dollar(classes)) if by_cost else model.cost_of(np.ones(len(classes.count)))
    found = _best(model, cost, program)
    return found, sorted([*hopeless, *(possible[index] for index in refused)])


def _needed(steps: float | None, slo_s: float | None) -> float:
    return steps / slo_s if steps and slo_s else 0.0


def _refused(program: LinearProgram, first: int, need: list[float]) -> list[int]:
    """Demand in order of arrival as many as possible; the rows stay demanded. Returns those that do not fit."""
    refused: list[int] = []
    start = 0
    while start < len(need):
        fitting = _most_that_fit(program, first, need, start)
        _demand(program, first, need, start, start + fitting)
        start += fitting
        if start < len(need):
            refused.append(start)
            start += 1
    return refused


def _most_that_fit(program: LinearProgram, first: int, need: list[float], start: int) -> int:
    """By bisection over how many of the next ones are demanded; none stays demanded."""
    low, high = 0, len(need) - start + 1
    trial = len(need) - start
    while high - low > 1:
        _demand(program, first, need, start, start + trial)
        fits = program.is_feasible()
        for index in range(start, start + trial):
            program.bound_row(first + index, 0.0, INFINITY)
        low, high = (trial, high) if fits else (low, trial)
        trial = (low + high) // 2
    return low


def _demand(program: LinearProgram, first: int, need: list[float], start: int, end: int) -> None:
    for index in range(start, end):
        program.bound_row(first + index, kept(need[index]), INFINITY)


def _best(model: Model, cost: Floats, program: LinearProgram) -> Found:
    """The optimum; among several, the one with the largest sum of normalised throughputs."""
    values = program.maximise(cost)
    objective = float(cost @ values)
    columns = np.flatnonzero(cost)
    if len(columns):
        program.add_row(columns, cost[columns], kept(objective), INFINITY)
        values = better_for_jobs(model, program, values)
    return Found(model, values, objective, program.iterations)
