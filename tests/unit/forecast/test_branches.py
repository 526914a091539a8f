"""Branches are handed out again, and are gone when they are closed."""

from __future__ import annotations

import gc

from libs.contracts.gateway import PolicyChanged
from libs.forecast.branch import Branch, Spare, without_collection
from libs.forecast.expected import expected_start
from libs.forecast.search import MOST_TRIED, options
from libs.sim.simulation import Simulation
from libs.testing.builders import OPERATOR, Scenario
from services.placement.core.state import State
from tests.unit.forecast.crowded_cell import stopped_at


def sliced() -> Simulation:
    """More jobs than GPUs, in turns."""
    scenario = Scenario().servers(4, v100=4).plan(0.0, PolicyChanged(policy="gandiva", requested_by=OPERATOR))
    for number in range(4):
        scenario.job(f"job-{number}", 4, at=float(number), runs_s=400.0)
    return stopped_at(200.0, scenario)


def test_a_branch_that_was_not_touched_is_handed_out_again():
    simulation, made = stopped_at(60.0), list[Branch]()

    def branched() -> Branch:
        made.append(Branch(simulation.replicas, simulation.now_s))
        return made[-1]

    spare = Spare(branched)
    first = spare()
    spare.take_back(first)
    second = spare()
    assert second is first and len(made) == 1
    second.fire(*second.next_timer or (simulation.now_s, "placement"))
    spare.take_back(second)
    assert spare() is not second and len(made) == 2
    assert not second.replicas, "it is closed"


def test_the_states_of_a_closed_branch_are_free_at_once():
    simulation = sliced()
    with without_collection():
        gc.collect()
        # Not isinstance: an object of torch warns that it is deprecated when it is asked for its class.
        before = sum(type(each) is State for each in gc.get_objects())
        assert expected_start(Branch(simulation.replicas, simulation.now_s), "job-3", steps=20).steps
        assert sum(type(each) is State for each in gc.get_objects()) == before


def test_a_search_that_is_cut_says_so():
    simulation, asked = stopped_at(60.0), list[None]()

    def after_two() -> bool:
        asked.append(None)
        return len(asked) > 2

    spare = Spare(lambda: Branch(simulation.replicas, simulation.now_s))
    assert not options(spare, "job-6", is_over=after_two).is_complete
    assert options(spare, "job-6").is_complete


def test_a_search_tries_so_many_changes_and_no_more():
    simulation = stopped_at(60.0)
    spare = Spare(lambda: Branch(simulation.replicas, simulation.now_s))
    whole = options(spare, "job-6")
    needed = next(most for most in range(100) if options(spare, "job-6", most=most).is_complete)
    assert 0 < needed <= MOST_TRIED
    assert options(spare, "job-6", most=needed) == whole
    cut = options(spare, "job-6", most=needed - 1)
    assert not cut.is_complete and len(cut.options) <= len(whole.options)
