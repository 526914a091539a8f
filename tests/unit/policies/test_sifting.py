"""Linear programs of which the solver sees only the variables that it needs."""

from __future__ import annotations

import numpy as np
import pytest

from libs.policies.allocation.lp import Rows
from libs.policies.allocation.sifting import SiftedProgram
from libs.policies.problem import SolverFailed

COSTS = np.array([3.0, 2.0, 4.0, 0.1])


def program(*waiting: int) -> SiftedProgram:
    """2 a + b + c <= 4 and a + 3 b + 2 c + d <= 7; with COSTS the optimum is (1/3, 0, 10/3, 0)."""
    rows = Rows()
    rows.add(np.array([0, 1, 2]), np.array([2.0, 1.0, 1.0]), -np.inf, 4.0)
    rows.add(np.array([0, 1, 2, 3]), np.array([1.0, 3.0, 2.0, 1.0]), -np.inf, 7.0)
    waits = np.zeros(4, dtype=bool)
    waits[list(waiting)] = True
    return SiftedProgram(4, rows, waits)


@pytest.mark.parametrize("waiting", [(), (2,), (0, 2), (1, 2, 3)])
def test_the_optimum_is_that_with_all_variables(waiting: tuple[int, ...]):
    assert program(*waiting).maximise(COSTS) == pytest.approx([1 / 3, 0.0, 10 / 3, 0.0])


def test_a_variable_that_is_worth_nothing_goes_on_waiting():
    lp = program(2, 3)
    lp.maximise(COSTS)
    lp.bound_column(2, 0.0, 1.0)
    assert lp.maximise(COSTS)[2] == pytest.approx(1.0)
    with pytest.raises(ValueError, match="variable 3 waits"):
        lp.bound_column(3, 0.0, 1.0)


def test_a_later_objective_brings_in_what_it_needs():
    lp = program(2, 3)
    lp.maximise(np.array([3.0, 2.0, 0.0, 0.0]))
    assert lp.maximise(np.array([0.0, 0.0, 0.0, 1.0])) == pytest.approx([0.0, 0.0, 0.0, 7.0])


def test_a_later_constraint_is_one_of_waiting_variables_too():
    lp = program(2, 3)
    lp.maximise(np.array([3.0, 2.0, 0.0, 0.0]))
    lp.add_row(np.array([2, 3]), np.array([1.0, 1.0]), -np.inf, 3.0)
    found = lp.maximise(np.array([0.0, 0.0, 1.0, 2.0]))
    assert found == pytest.approx([found[0], found[1], 0.0, 3.0])


def test_what_only_waiting_variables_can_fulfil_is_feasible():
    lp = program(2, 3)
    lp.bound_row(1, 6.9, 7.0)
    lp.bound_row(0, -np.inf, 0.0)  # only the last variable is left
    assert lp.maximise(COSTS) == pytest.approx([0.0, 0.0, 0.0, 7.0])
    other = program(2, 3)
    other.bound_row(1, 6.9, 7.0)
    other.bound_row(0, -np.inf, 0.0)
    assert other.is_feasible()


def test_what_no_variable_can_fulfil_is_said():
    lp = program(2, 3)
    lp.bound_row(1, 8.0, 7.0)
    with pytest.raises(SolverFailed, match="Infeasible"):
        lp.maximise(COSTS)


def test_a_vertex_is_named_by_all_variables():
    lp = program(0, 3)
    lp.start_at([1, 2], [0, 1])
    assert lp.maximise(np.array([0.0, 1.0, 1.0, 0.0])) == pytest.approx([0.0, 0.0, 3.5, 0.0])
