"""Moves that succeed and moves that are given up, while everything else goes on: no job is left on the way."""

from __future__ import annotations

from hypothesis import given

from libs.inspect.verify import verify
from libs.node.advance import BOUNDARY_PATIENCE_S, WARMING_PATIENCE_S
from libs.node.fetching import FETCH_PATIENCE_S
from libs.sim.simulation import Simulation
from libs.testing.builders import Scenario, log_of
from libs.testing.strategies import moving_cells
from services.roster import SERVICES
from tests.properties.effort import whole_system
from tests.properties.test_whole_system import checked_run, every_job_has_ended, hold

LONGEST_MOVE_S = WARMING_PATIENCE_S + BOUNDARY_PATIENCE_S + FETCH_PATIENCE_S + 400.0
"""Beside what each step may take: nodes that are away for a while, on both sides."""
AT_REST_S = 50_000.0
"""All work that is drawn is done by then, ten times over."""


def moves_come_to_an_end(simulation: Simulation) -> None:
    """No job is for longer in a phase of a move than its agents have patience, and the cores are sound."""
    hold(simulation)
    assert simulation.now_s < AT_REST_S, f"{list(simulation.replicas['placement'].state.jobs)} never end"
    for job in simulation.replicas["placement"].state.jobs.values():
        if job.move is not None:
            lasts_s = simulation.now_s - job.move.since_s
            assert lasts_s <= LONGEST_MOVE_S, f"{job.job_id} has been on its way for {lasts_s} s"


def nothing_is_left(simulation: Simulation) -> None:
    """No job, and no task on any node."""
    state = simulation.replicas["placement"].state
    assert state.jobs == {} and state.starting == {} and state.preparing == {}
    assert [gpu for node in state.nodes.values() for gpu in node.gpus if gpu.holders or gpu.guests] == []
    assert {node.node_id: list(node.tasks) for node in simulation.world.nodes.values() if node.tasks} == {}
    assert simulation.replicas["migration"].state.moves == {}


@whole_system
@given(moving_cells())
def test_every_job_ends_whatever_becomes_of_its_moves(scenario: Scenario):
    simulation = checked_run(scenario, moves_come_to_an_end)
    every_job_has_ended(simulation)
    nothing_is_left(simulation)


@whole_system
@given(moving_cells())
def test_every_decision_about_moves_can_be_derived_again(scenario: Scenario):
    simulation = checked_run(scenario)
    result = verify(log_of(simulation), SERVICES)
    assert result.ok, "\n".join(result.first.lines() if result.first else [])
