"""With the variables of pairs brought in one by one, policies with space sharing reach the same optima."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.policies.allocation import model, sifting
from libs.policies.allocation.solve import solve
from libs.policies.problem import Problem
from libs.testing.effort import searching
from tests.properties.policies.instances import problems

POLICIES = (
    "max_min_fairness",
    "finish_time_fairness",
    "min_makespan",
    "fifo",
    "shortest_job_first",
    "max_throughput",
    "min_cost_slo",
)
PACKED = st.one_of(*(problems(policy) for policy in POLICIES)).filter(lambda drawn: drawn.options.space_sharing)


@searching(by_default=60, thorough=600)
@given(PACKED)
def test_the_optimum_is_the_same(packed: Problem):
    expected = solve(packed)
    with patch.object(model, "MANY_PAIRS", 0), patch.object(sifting, "AT_ONCE", 1):
        found = solve(packed)
    assert found.objective == pytest.approx(expected.objective, rel=1e-6)
    assert found.infeasible == expected.infeasible
