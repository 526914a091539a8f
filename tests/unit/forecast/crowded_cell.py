"""A small cell in which jobs wait, stopped at a moment; and jobs and a server as the cores present them."""

from __future__ import annotations

from libs.contracts.cluster import TaskPlacement
from libs.kernel.present import PresentJob, PresentNode
from libs.sim.simulation import Simulation
from libs.testing.builders import Scenario, Spec
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


def present_job(job_id: str, placed: bool, since_s: float = 0.0) -> PresentJob:
    """A job on all four GPUs of the server, or one that waits for so many."""
    return PresentJob(
        job_id=job_id,
        spec=Spec(job_id).gpus(4).build(),
        order=(0, 0, job_id),
        priority=0,
        attempt=1,
        gang=[TaskPlacement(node_id="n1", gpu_indices=[0, 1, 2, 3], first_rank=0)] if placed else [],
        is_placed=placed,
        may_end=["n1"] if placed else [],
        leaving=[],
        unreported={},
        cause="",
        behind="",
        held=False,
        queued=not placed,
        stated_s=None,
        since_s=since_s,
    )


def four_gpus() -> PresentNode:
    """The server `n1`."""
    return PresentNode(
        node_id="n1",
        rack="",
        gpu_types=["v100"] * 4,
        gpu_memory_bytes=0,
        cpus=0,
        memory_bytes=0,
        features=[],
        present=True,
        draining=False,
        free={},
    )
