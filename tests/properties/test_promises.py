"""No server ever has promised more CPUs or memory than it has, whatever jobs ask for, and every job still ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from libs.contracts.catalogue import TERMINAL
from libs.inspect.conservation import conservation
from libs.policies.table import POLICIES
from libs.sim.simulation import Simulation
from libs.testing.builders import Scenario, events
from libs.testing.strategies import crowded_cells, scenarios
from tests.properties.effort import few_examples, whole_system
from tests.properties.test_whole_system import checked_run

policies = st.sampled_from(tuple(POLICIES))


def holds(scenario: Scenario) -> Simulation:
    """Run it: each core looks at its promises after each step, the books at the log."""
    simulation = checked_run(scenario)
    ended = [event.job_id for event in events(simulation, *TERMINAL)]
    assert sorted(ended) == sorted(job.job_id for job in simulation.workload.jobs)
    assert conservation(simulation.records()).violations == []
    return simulation


@whole_system
@given(policies.flatmap(lambda policy: scenarios(policy=policy, hosts=True)))
def test_under_every_policy_and_any_trouble(scenario: Scenario):
    holds(scenario)


@few_examples
@given(policies.flatmap(lambda policy: crowded_cells(policy=policy, hosts=True)))
def test_where_jobs_take_turns_move_and_grow(scenario: Scenario):
    holds(scenario)
