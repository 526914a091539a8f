"""Linear programs by HiGHS, built from arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import highspy
import numpy as np
from numpy.typing import NDArray

from libs.policies.problem import SolverFailed

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
TOLERANCE = 1e-9
"""Of feasibility and optimality; HiGHS allows no smaller ones in general."""

KEPT = 4e-9
"""More than the solver's tolerance, so that what was reached once is feasible in later stages."""
KEPT_OVER_STAGES = 2e-8
"""The same where many stages follow: the tolerance is one of scaled constraints, and what it lets through adds up."""
DUAL, PRIMAL = 1, 4
"""HiGHS' numbers of the two simplex methods."""
UNSCALED, EQUILIBRATED = 0, 1
"""HiGHS' numbers of ways to scale."""
DEVEX = 1
"""HiGHS' number of the edge weights that cost nothing to begin with, wherever the dual simplex begins."""
SMALL = 5000
"""Up to so many columns solving takes less time than looking for simplifications."""


def kept(optimum: float, slack: float = KEPT) -> float:
    """What later stages must keep of an optimum: all of it but what rounding may have added."""
    return optimum - slack * max(1.0, abs(optimum))


def summed(places: Ints, values: Floats, size: int) -> Floats:
    """(size,) the sum of the values at each place; of no values at all numpy makes whole numbers."""
    return np.bincount(places, values, size).astype(float, copy=False)


@dataclass
class Rows:
    """A block of constraints `lower <= A x <= upper`, one entry per coefficient."""

    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    rows: list[Ints] = field(default_factory=list)
    columns: list[Ints] = field(default_factory=list)
    values: list[Floats] = field(default_factory=list)

    def add(self, columns: Ints, values: Floats, lower: float, upper: float) -> int:
        """One more constraint; returns its number."""
        number = len(self.lower)
        self.add_block(np.full(len(columns), number, dtype=np.int64), columns, values)
        self.lower.append(lower)
        self.upper.append(upper)
        return number

    def reserve(self, lower: Sequence[float], upper: Sequence[float]) -> int:
        """So many constraints; their coefficients come with `add_block`; returns the number of the first."""
        first = len(self.lower)
        self.lower += lower
        self.upper += upper
        return first

    def add_block(self, rows: Ints, columns: Ints, values: Floats) -> None:
        """Coefficients of any constraints; none is given twice."""
        self.rows.append(rows)
        self.columns.append(columns)
        self.values.append(values)


class _Way(NamedTuple):
    """How HiGHS is to go about a problem."""

    presolve: str
    scaling: int


_idle: dict[_Way, list[Any]] = {}
"""Instances of HiGHS that are not in use now: to make one takes as long as to solve a small problem."""


def _solver(way: _Way) -> Any:
    """An instance of HiGHS without a problem."""
    idle = _idle.setdefault(way, [])
    if idle:
        return idle.pop()
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    for name, value in (
        ("presolve", way.presolve),
        ("simplex_scale_strategy", way.scaling),
        ("output_flag", False),
        ("threads", 1),
        ("primal_feasibility_tolerance", TOLERANCE),
        ("dual_feasibility_tolerance", TOLERANCE),
        ("simplex_dual_edge_weight_strategy", DEVEX),
        # Factors are computed anew at the end: to find out whether that is necessary takes longer.
        ("no_unnecessary_rebuild_refactor", False),
        # Moving bounds or costs apart saves no steps here, and is undone at the end.
        ("primal_simplex_bound_perturbation_multiplier", 0.0),
        ("dual_simplex_cost_perturbation_multiplier", 0.0),
    ):
        highs.setOptionValue(name, value)
    return highs


class LinearProgram:
    """Maximises. Can be solved again with other costs and bounds, from where it was."""

    def __init__(self, columns: int, block: Rows, *, normalised: bool = False) -> None:
        """`normalised`: the coefficients are of one size already, so that the solver need not scale them."""
        self._columns, self._rows = columns, len(block.lower)
        self._way = _Way("choose" if columns > SMALL else "off", UNSCALED if normalised else EQUILIBRATED)
        self._highs = _solver(self._way)
        if _pass_model(self._highs, columns, block) == highspy.HighsStatus.kError:
            raise SolverFailed("the problem is no linear program")
        self._numbers = np.arange(columns, dtype=np.int32)
        self.iterations = 0

    def __del__(self) -> None:
        """The next program finds the solver as if it were new."""
        self._highs.clearModel()
        _idle[self._way].append(self._highs)

    def start_at(self, columns: Sequence[int], rows: Sequence[int]) -> None:
        """Begin at the vertex where only these variables are above their lower bounds and these constraints are tight.

        There must be as many constraints as variables, and they must determine them. Large problems begin where
        looking for simplifications leads.
        """
        if self._columns > SMALL:
            return
        nonbasic, basic = highspy.HighsBasisStatus.kNonbasic, highspy.HighsBasisStatus.kBasic
        of_columns, of_rows = [nonbasic] * self._columns, [basic] * self._rows
        for column, row in zip(columns, rows, strict=True):
            of_columns[column], of_rows[row] = basic, nonbasic
        basis = highspy.HighsBasis()
        basis.col_status, basis.row_status, basis.valid, basis.alien = of_columns, of_rows, True, False
        self._highs.setBasis(basis)

    def maximise(self, cost: Floats, *, breaks_limits: bool = False) -> Floats:
        """The values of all variables.

        Args:
            cost: per variable.
            breaks_limits: where it begins the objective is too large, not too small: no variable could raise it, but
                constraints are broken. That is where the dual simplex begins, else the primal one: a later stage begins
                at a feasible point and has another objective.

        Raises:
            SolverFailed: there is no optimum.
        """
        if not self._columns:
            return np.zeros(0)
        self._highs.changeColsCost(self._columns, self._numbers, cost)
        if not self._run(DUAL if breaks_limits else PRIMAL):
            raise SolverFailed(self._highs.modelStatusToString(self._highs.getModelStatus()))
        return np.array(self._highs.getSolution().col_value)

    def is_feasible(self) -> bool:
        """Whether there is any solution."""
        return self._run(PRIMAL)

    def _run(self, method: int) -> bool:
        self._highs.setOptionValue("simplex_strategy", method)
        self._highs.run()
        _, iterations = self._highs.getInfoValue("simplex_iteration_count")
        self.iterations += max(0, iterations)
        return bool(self._highs.getModelStatus() == highspy.HighsModelStatus.kOptimal)

    @property
    def row_duals(self) -> Floats:
        """Of the last solution."""
        return np.array(self._highs.getSolution().row_dual)

    def bound_column(self, column: int, lower: float, upper: float) -> None:
        """Change a variable's bounds."""
        self._highs.changeColBounds(column, lower, upper)

    def bound_row(self, row: int, lower: float, upper: float) -> None:
        """Change a constraint's bounds."""
        self._highs.changeRowBounds(row, lower, upper)

    def change(self, row: int, column: int, value: float) -> None:
        """Change a coefficient."""
        self._highs.changeCoeff(row, column, value)

    def change_column(self, column: int, first: int, values: Floats) -> None:
        """Change a variable's coefficients in the constraints from `first` on."""
        change = self._highs.changeCoeff
        for row, value in enumerate(values.tolist(), start=first):
            change(row, column, value)

    def add_row(self, columns: Ints, values: Floats, lower: float, upper: float) -> None:
        """One more constraint."""
        self._highs.addRow(lower, upper, len(columns), columns.astype(np.int32), values)
        self._rows += 1


def _pass_model(highs: Any, columns: int, block: Rows) -> Any:
    """Give HiGHS the constraints, column by column, as it keeps them."""
    owner, rows = np.concatenate(block.columns), np.concatenate(block.rows)
    order = (owner * len(block.lower) + rows).argsort()
    return highs.passModel(
        columns,
        len(block.lower),
        len(order),
        int(highspy.MatrixFormat.kColwise),
        int(highspy.ObjSense.kMaximize),
        0.0,
        np.zeros(columns),
        np.zeros(columns),
        np.full(columns, highspy.kHighsInf),
        np.array(block.lower, float),
        np.array(block.upper, float),
        owner[order].searchsorted(np.arange(columns + 1)),
        rows[order],
        np.concatenate(block.values)[order],
        np.zeros(columns, np.int32),
    )
