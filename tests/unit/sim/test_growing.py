"""Elastic jobs in the simulator: they grow and shrink as the live ones do, and their work takes that much less time."""

from __future__ import annotations

import pytest

from libs.contracts.gateway import PolicyChanged
from libs.contracts.jobs import JobSpec
from libs.contracts.placement import JobResized, JobSucceeded
from libs.sim.simulation import Simulation
from libs.sim.throughputs import Throughputs
from libs.sim.work import Job
from libs.testing.builders import Scenario, Spec
from services.roster import SERVICES

MOVE_S = 2.0


def run(scenario: Scenario) -> Simulation:
    scenario.plan(0.0, PolicyChanged(policy="gandiva", requested_by="op"))
    return scenario.options(move_delay_s=MOVE_S, start_delay_s=0.0, stop_delay_s=0.0).run(SERVICES)


def ends(simulation: Simulation) -> dict[str, float]:
    """{job: when it has succeeded}."""
    return {e.event.job_id: e.time_s for e in simulation.log.control if isinstance(e.event, JobSucceeded)}


def resized(simulation: Simulation) -> list[tuple[str, int, int]]:
    found = [e.event for e in simulation.log.control if isinstance(e.event, JobResized)]
    return [(event.job_id, event.from_gpus, event.gpus) for event in found]


def test_alone_on_a_server_a_job_is_done_sooner():
    spec = Spec().elastic(1, 4).runs(1000.0)
    simulation = run(Scenario().servers(4, v100=4).job("a", spec=spec))
    assert resized(simulation) == [("a", 1, 4)]
    # A minute alone, the move (in which it stands still), and the rest four times as fast.
    assert ends(simulation)["a"] == pytest.approx(60.0 + MOVE_S + 940.0 / 4, abs=1.0)


def test_it_gives_gpus_back_for_a_newcomer_which_begins_as_soon_as_it_has():
    scenario = Scenario().servers(4, v100=4).job("a", spec=Spec().elastic(1, 4).runs(1000.0))
    simulation = run(scenario.job("b", at=100.0, spec=Spec().gpus(2).runs(50.0)))
    assert resized(simulation)[:2] == [("a", 1, 4), ("a", 4, 2)]
    assert ends(simulation)["b"] == pytest.approx(100.0 + MOVE_S + 50.0, abs=1.0)


def job_of(spec: JobSpec, rates: dict[int, float]) -> Job:
    table = {(("lstm", 16, gpus), True): {"v100": rate} for gpus, rate in rates.items()}
    return Job("a", spec, Throughputs(["v100"], table, []))


def test_steps_of_an_elastic_job_do_as_much_on_any_number_of_gpus():
    spec = Spec().gpus(2).elastic(1, 4).trains("lstm", 16, steps=100.0).build()
    job = job_of(spec, {2: 10.0, 4: 8.0})
    assert [job.rate("v100", True, gpus) for gpus in (1, 2, 4)] == [5.0, 10.0, 16.0]
