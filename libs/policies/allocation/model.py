"""The variables and constraints that all policies share: what a valid allocation is (paper, section 3.1)."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from libs.policies.allocation.grouping import Classes
from libs.policies.allocation.lp import LinearProgram, Rows, kept, summed
from libs.policies.allocation.sifting import SiftedProgram
from libs.policies.problem import SolverFailed

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
INFINITY = float("inf")
MANY_PAIRS = 20_000
"""With more of them most are in no optimum, and the solver is faster when it does not see these."""
SLACK = 1e-6
"""Rounding in the solver breaks limits by no larger part."""


class Model:
    """Total time of each class alone on each type, and of each pair class, as variables of an LP.

    Variables come in this order: alone (class by class, only where it can run), pairs, then `extra` ones that a
    policy adds. A pair's variable is the time of all its links together; within one class it counts for two members.

    The first constraints are the classes' own, in their order: no job has more than all of its time.
    """

    def __init__(self, classes: Classes, extra: int = 0) -> None:
        """`extra`: how many variables the policy adds."""
        self.classes = classes
        self.alone_class, self.alone_type = (classes.rates > 0).nonzero()
        self._build_pairs()
        self.alone, self.paired = len(self.alone_class), len(self.pair_index)
        self.first_extra = self.alone + self.paired
        self.first_overlap = self.first_extra + extra
        self.columns = self.first_overlap + (self.alone if classes.agnostic else 0)
        self.rows = Rows()
        self._build_terms()
        self._add_gpu_limits()
        if classes.agnostic:
            self._add_overlap()

    def _build_pairs(self) -> None:
        pairs = self.classes.pairs
        types = len(self.classes.types)
        if not pairs:
            self.pair_index = self.pair_type = self.pair_a = self.pair_b = np.zeros(0, dtype=np.int64)
            self.pair_rate_a = self.pair_rate_b = np.zeros(0)
            return
        rates_a = np.array([pair.rates_a for pair in pairs]).reshape(len(pairs), types)
        rates_b = np.array([pair.rates_b for pair in pairs]).reshape(len(pairs), types)
        self.pair_index, self.pair_type = (rates_a > 0).nonzero()
        self.pair_a = np.array([pair.a for pair in pairs], dtype=np.int64)[self.pair_index]
        self.pair_b = np.array([pair.b for pair in pairs], dtype=np.int64)[self.pair_index]
        self.pair_rate_a = rates_a[self.pair_index, self.pair_type]
        self.pair_rate_b = rates_b[self.pair_index, self.pair_type]

    def _build_terms(self) -> None:
        """(class, column, rate) of all terms of the classes' total throughputs; no job has more than all of its time.

        A pair within one class is one term: both members' rates, and time of both.
        """
        classes = self.classes
        self._owner, self._column = self.alone_class, np.arange(self.alone)
        self._rate, self._members = classes.rates[self.alone_class, self.alone_type], np.ones(self.alone)
        if self.paired:
            two = self.pair_a != self.pair_b
            pair_columns = np.arange(self.alone, self.first_extra)
            rate_a, rate_b = self.pair_rate_a, self.pair_rate_b
            self._owner = np.concatenate([self._owner, self.pair_a, self.pair_b[two]])
            self._column = np.concatenate([self._column, pair_columns, pair_columns[two]])
            self._rate = np.concatenate([self._rate, np.where(two, rate_a, rate_a + rate_b), rate_b[two]])
            ones = np.ones(np.count_nonzero(two))
            self._members = np.concatenate([self._members, np.where(two, 1.0, 2.0), ones])
        first = self.rows.reserve([-INFINITY] * len(classes.count), classes.count.tolist())
        self.rows.add_block(first + self._owner, self._column, self._members)

    def _add_gpu_limits(self) -> None:
        """No pool gives more GPUs than it has."""
        classes = self.classes
        first = self.rows.reserve([-INFINITY] * len(classes.pool_gpus), classes.pool_gpus.tolist())
        self._drawn_from = classes.pool_of[np.concatenate([self.alone_type, self.pair_type])]
        self._width = classes.width[np.concatenate([self.alone_class, self.pair_a])]
        self.rows.add_block(first + self._drawn_from, np.arange(self.first_extra), self._width)

    def _add_overlap(self) -> None:
        """One variable per alone variable: how much of it is time as the cluster's own mix of types would give it.

        To an agnostic policy all types are equal, so there is no reason to prefer one: of all optima it takes the one
        that is as evenly spread as can be.
        """
        classes, columns = self.classes, np.arange(self.alone)
        mix = np.where(classes.rates > 0, classes.mix, 0.0)
        mix = np.divide(mix, mix.sum(axis=1, keepdims=True), out=np.zeros_like(mix), where=mix.sum(axis=1)[:, None] > 0)
        first = self.rows.reserve([-INFINITY] * (2 * self.alone), [0.0] * (2 * self.alone))
        overlap = self.first_overlap + columns
        for row, others, values in (
            (first + columns, overlap, np.ones(self.alone)),
            (first + columns, columns, -np.ones(self.alone)),
            (first + self.alone + columns, overlap, np.ones(self.alone)),
        ):
            self.rows.add_block(row, others, values)
        mine, other = _of_one_class(self.alone_class)
        part = mix[self.alone_class, self.alone_type]
        self.rows.add_block(first + self.alone + mine, other, -part[mine])

    def overlap_cost(self) -> Floats:
        """(columns,) the objective that spreads time as the cluster's mix."""
        cost = np.zeros(self.columns)
        cost[self.first_overlap :] = self.classes.width[self.alone_class]
        return cost

    def add_throughput_rows(self, chosen: Ints, scale: Floats, slope: Floats | None = None) -> int:
        """For each chosen class, `scale` times its total throughput is at least `slope` times the first extra variable.

        Returns:
            The number of the first constraint. Without `slope` none may be negative, which says nothing yet.
        """
        first = self.rows.reserve([0.0] * len(chosen), [INFINITY] * len(chosen))
        if slope is not None:
            extra = np.full(len(chosen), self.first_extra, dtype=np.int64)
            self.rows.add_block(first + np.arange(len(chosen)), extra, -slope)
        place = np.full(len(self.classes.count), -1, dtype=np.int64)
        place[chosen] = np.arange(len(chosen))
        row = place[self._owner]
        keep = row >= 0
        row = row[keep]
        self.rows.add_block(first + row, self._column[keep], self._rate[keep] * scale[row])
        return first

    def cost_of(self, per_class: Floats) -> Floats:
        """(columns,) the objective that sums `per_class` times each class's total throughput."""
        return summed(self._column, self._rate * per_class[self._owner], self.columns)

    def cost_of_typed(self, per_type: Floats) -> Floats:
        """(columns,) the objective that sums `per_type` times each class's throughput on the type."""
        cost = self.cost_of(np.ones(len(self.classes.count)))
        cost[: self.alone] *= per_type[self.alone_type]
        cost[self.alone : self.first_extra] *= per_type[self.pair_type]
        return cost

    def throughputs(self, values: Floats) -> Floats:
        """(C,) total throughput of each class."""
        return summed(self._owner, self._rate * values[self._column], len(self.classes.count))

    @property
    def fastest(self) -> Floats:
        """(C,) at most so many steps per second does a member make, alone or beside another."""
        found = np.zeros(len(self.classes.count))
        np.maximum.at(found, self._owner, self._rate)
        return found

    def within_limits(self, values: Floats) -> Floats:
        """The values without what rounding in the solver has added: none is negative, and together they break no limit.

        Raises:
            SolverFailed: one is broken by more than rounding can explain.
        """
        classes, values = self.classes, np.maximum(values, 0.0)
        time = summed(self._owner, self._members * values[self._column], len(classes.count))
        gpus = summed(self._drawn_from, self._width * values[: self.first_extra], len(classes.pool_gpus))
        most = max(1.0, *(time / classes.count).tolist(), *(gpus / np.maximum(classes.pool_gpus, 1.0)).tolist())
        if not most <= 1 + SLACK:
            raise SolverFailed(f"{most} times as much as is possible is given away")
        scaled: Floats = values / most
        return scaled

    def program(self, *, normalised: bool = False) -> LinearProgram:
        """The LP as built so far; `normalised` as `LinearProgram` has it."""
        if self.paired <= MANY_PAIRS:
            return LinearProgram(self.columns, self.rows, normalised=normalised)
        waiting = np.zeros(self.columns, dtype=bool)
        waiting[self.alone : self.first_extra] = True
        return SiftedProgram(self.columns, self.rows, waiting, normalised=normalised)


def _of_one_class(owner: Ints) -> tuple[Ints, Ints]:
    """All pairs of places with the same owner, in order; `owner` ascends. Of thousands of jobs a table is too large."""
    size = np.bincount(owner)[owner]
    before = size.cumsum() - size
    first = np.repeat(np.arange(len(owner)), size)
    return first, np.arange(len(first)) + np.repeat(owner.searchsorted(owner) - before, size)


def best_for_jobs(model: Model, program: LinearProgram, *, breaks_limits: bool = False) -> Floats:
    """The largest sum of normalised throughputs. An agnostic policy then spreads the time.

    Args:
        model: of the program.
        program: with all that the sum must not cost.
        breaks_limits: of where it begins, as `LinearProgram.maximise` has it.

    Raises:
        SolverFailed: the program has no optimum.
    """
    cost = model.cost_of(model.classes.goodness * model.classes.width)
    values = program.maximise(cost, breaks_limits=breaks_limits)
    if model.classes.agnostic and model.alone:
        columns = np.flatnonzero(cost)
        program.add_row(columns, cost[columns], kept(float(cost @ values)), INFINITY)
        with suppress(SolverFailed):
            values = program.maximise(model.overlap_cost())
    return values


def better_for_jobs(model: Model, program: LinearProgram, reached: Floats) -> Floats:
    """`best_for_jobs` as the second objective.

    Args:
        model: of the program.
        program: with the first objective's optimum fixed.
        reached: the values of that optimum, which stand where rounding leaves the solver no room for others.
    """
    try:
        return best_for_jobs(model, program)
    except SolverFailed:
        return reached
