"""A small cell in which jobs wait, stopped at a moment."""

from __future__ import annotations

from libs.sim.simulation import Simulation
from libs.testing.builders import Scenario
from services.roster import SERVICES


def crowded() -> Scenario:
    """Four GPUs, for which jobs of two tenants wait."""
    scenario = Scenario().servers(4, v100=4).tenant("research", 4).tenant("product", 2)
    for number in range(8):
        scenario.job(f"job-{number}", 1 + number % 3, at=number, runs_s=50.0 + number, tenant="research")
    scenario.job("other", 2, at=3.0, runs_s=70.0, tenant="product").pause("job-5", at=20.0, until=90.0)
    return scenario


def stopped_at(time_s: float, scenario: Scenario | None = None) -> Simulation:
    """The simulation after the last event up to that time; all services have read everything."""
    simulation = (scenario or crowded()).build(SERVICES)
    while _next_s(simulation) <= time_s and simulation.advance():
        pass
    return simulation


def _next_s(simulation: Simulation) -> float:
    """When something happens next."""
    simulation.dispatcher.settle()
    timer, due_s = simulation.dispatcher.next_timer(), simulation.agenda.next_s
    times = [] if timer is None else [timer[0]]
    return min([*times, *([] if due_s is None else [due_s])], default=float("inf"))
