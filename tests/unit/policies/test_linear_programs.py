"""Linear programs by HiGHS: where they begin changes how long they take, not what they find."""

from __future__ import annotations

import numpy as np
import pytest

from libs.policies.allocation.lp import LinearProgram, Rows
from libs.policies.problem import SolverFailed

COSTS = np.array([3.0, 2.0])


def program() -> LinearProgram:
    """2 x + y <= 4 and x + 3 y <= 7; with COSTS the optimum is the corner of both, (1, 2)."""
    rows = Rows()
    rows.add(np.array([0, 1]), np.array([2.0, 1.0]), -np.inf, 4.0)
    rows.add(np.array([0, 1]), np.array([1.0, 3.0]), -np.inf, 7.0)
    return LinearProgram(2, rows)


def test_at_the_optimum_there_is_nothing_left_to_do():
    usual, ahead = program(), program()
    ahead.start_at([0, 1], [0, 1])
    assert usual.maximise(COSTS) == pytest.approx([1.0, 2.0])
    assert ahead.maximise(COSTS) == pytest.approx([1.0, 2.0])
    assert usual.iterations > 0 == ahead.iterations


def test_from_another_corner_it_finds_the_same():
    lp = program()
    lp.start_at([0], [0])  # (2, 0)
    assert lp.maximise(COSTS) == pytest.approx([1.0, 2.0])


def test_from_beyond_the_limits_it_comes_back_to_the_same():
    lp = program()
    lp.start_at([0], [1])  # (7, 0), which breaks the first constraint
    assert lp.maximise(np.array([3.0, 0.5]), breaks_limits=True) == pytest.approx([2.0, 0.0])
    assert lp.iterations == 1
    assert lp.maximise(COSTS) == pytest.approx([1.0, 2.0])


def test_no_bound_no_optimum():
    rows = Rows()
    rows.add(np.array([0, 1]), np.array([1.0, -1.0]), -np.inf, 1.0)
    with pytest.raises(SolverFailed, match=r"(?i)unbounded"):
        LinearProgram(2, rows).maximise(COSTS)
