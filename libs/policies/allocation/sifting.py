"""Linear programs of which the solver sees only the variables that it needs.

Sifting: Bixby et al., "Very Large-Scale Linear Programming: A Case Study", Operations Research 40, 1992.
"""

from __future__ import annotations

from collections.abc import Sequence

import highspy
import numpy as np
from numpy.typing import NDArray

from libs.policies.allocation.lp import TOLERANCE, Floats, Ints, LinearProgram, Rows, summed
from libs.policies.problem import SolverFailed

AT_ONCE = 1000
"""So many of the best variables are brought in after a solution."""


class SiftedProgram(LinearProgram):
    """A linear program with variables that wait at 0, which must be possible.

    After each solution their reduced costs say which of them would raise the objective. The best of these are brought
    in, until there are none: then it is the optimum with all variables. A variable that was brought in stays.
    """

    def __init__(self, columns: int, block: Rows, waiting: NDArray[np.bool_], *, normalised: bool = False) -> None:
        """`waiting`: (columns,) the variables to begin without. `normalised` as `LinearProgram` has it."""
        self._keep(np.concatenate(block.columns), np.concatenate(block.rows), np.concatenate(block.values))
        self._waiting = waiting.copy()
        self._here: Ints = np.flatnonzero(~waiting)
        self._place = np.full(columns, -1, dtype=np.int64)
        """(columns,) which of the solver's variables it is; -1: it waits."""
        self._place[self._here] = np.arange(len(self._here))
        inside = self._place[self._owner] >= 0
        rows, owners = self._row[inside], self._place[self._owner[inside]]
        seen = Rows(block.lower, block.upper, [rows], [owners], [self._value[inside]])
        super().__init__(len(self._here), seen, normalised=normalised)

    def _keep(self, owner: Ints, row: Ints, value: Floats) -> None:
        """All coefficients, variable by variable."""
        order = owner.argsort(kind="stable")
        self._owner, self._row, self._value = owner[order], row[order], value[order]

    def start_at(self, columns: Sequence[int], rows: Sequence[int]) -> None:
        """See `LinearProgram.start_at`: at a vertex where all that wait are 0."""
        super().start_at([self._seen(column) for column in columns], rows)

    def maximise(self, cost: Floats, *, breaks_limits: bool = False) -> Floats:
        """See `LinearProgram.maximise`."""
        while True:
            try:
                found = super().maximise(cost[self._here], breaks_limits=breaks_limits)
            except SolverFailed:
                if not self._waiting.any():
                    raise
                self._bring(np.flatnonzero(self._waiting), cost)
                continue
            gain = np.where(self._waiting, cost - self._priced(), 0.0)
            better = np.flatnonzero(gain > TOLERANCE)
            if not len(better):
                values = np.zeros(len(cost))
                values[self._here] = found
                return values
            best = better[(-gain[better]).argsort(kind="stable")[:AT_ONCE]]
            self._bring(np.sort(best), cost)
            breaks_limits = False  # the solution so far is one of the larger program

    def _priced(self) -> Floats:
        """(columns,) what the constraints' dual prices ask for a unit of each variable."""
        return summed(self._owner, self._value * self.row_duals[self._row], len(self._place))

    def is_feasible(self) -> bool:
        """See `LinearProgram.is_feasible`: all variables may be needed for it."""
        self._bring(np.flatnonzero(self._waiting), np.zeros(len(self._place)))
        return super().is_feasible()

    def _bring(self, columns: Ints, cost: Floats) -> None:
        """Give these variables to the solver, after those that it has."""
        self._waiting[columns] = False
        self._place[columns] = np.arange(len(self._here), len(self._here) + len(columns))
        self._here = np.concatenate([self._here, columns])
        self._columns = len(self._here)
        self._numbers = np.arange(self._columns, dtype=np.int32)
        begin, end = self._owner.searchsorted(columns), self._owner.searchsorted(columns, side="right")
        sizes = end - begin
        starts = sizes.cumsum() - sizes
        entries = np.arange(sizes.sum()) + np.repeat(begin - starts, sizes)
        self._highs.addCols(
            len(columns),
            cost[columns],
            np.zeros(len(columns)),
            np.full(len(columns), highspy.kHighsInf),
            len(entries),
            starts.astype(np.int32),
            self._row[entries].astype(np.int32),
            self._value[entries],
        )

    def bound_column(self, column: int, lower: float, upper: float) -> None:
        """Change a variable's bounds; of one that waits they cannot be changed."""
        super().bound_column(self._seen(column), lower, upper)

    def change(self, row: int, column: int, value: float) -> None:
        """Change a coefficient of a variable that does not wait."""
        super().change(row, self._seen(column), value)

    def change_column(self, column: int, first: int, values: Floats) -> None:
        """Change coefficients of a variable that does not wait."""
        super().change_column(self._seen(column), first, values)

    def _seen(self, column: int) -> int:
        place = int(self._place[column])
        if place < 0:
            raise ValueError(f"variable {column} waits; expected one that the solver has")
        return place

    def add_row(self, columns: Ints, values: Floats, lower: float, upper: float) -> None:
        """See `LinearProgram.add_row`."""
        inside = self._place[columns] >= 0
        super().add_row(self._place[columns[inside]], values[inside], lower, upper)
        rows = np.full(len(columns), self._rows - 1)
        self._keep(
            np.concatenate([self._owner, columns]),
            np.concatenate([self._row, rows]),
            np.concatenate([self._value, values]),
        )
