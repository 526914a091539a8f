"""The pool for trials: no other job has its GPUs, and no trial others while the pool could take it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from libs.contracts.base import Event
from libs.contracts.features import is_in_pool
from libs.contracts.placement import JobPlaced
from libs.inspect.verify import verify
from libs.kernel.machine import Machine
from libs.testing.builders import Scenario, log_of
from services.placement.core.jobs import Job
from services.placement.core.state import State
from services.placement.service import SERVICE as PLACEMENT
from services.roster import SERVICES
from tests.properties.effort import whole_system
from tests.properties.test_trials import cells_with_trials
from tests.properties.test_whole_system import checked_run, every_job_has_ended, hold


@st.composite
def cells_with_a_pool(draw: st.DrawFn) -> Scenario:
    """Any cell with trials, of which one server or two are set apart; at least one is not."""
    return draw(cells_with_trials()).trial_pool(draw(st.integers(1, 2)))


class Watch:
    """Looks at what placement knows before and after each event."""

    def before(self, state: State, event: Event) -> None:
        """Check a placement against the state before it."""
        if not isinstance(event, JobPlaced):
            return
        job = state.jobs[event.job_id]
        inside = [is_in_pool(state.nodes[task.node_id].features) for task in event.gang]
        if job.trial is None:
            assert not any(inside), f"{job.job_id} is no trial, and gets GPUs of the pool"
        elif not any(inside):
            assert not could_take(state, job), f"the trial of {job.job_id} gets {event.gang}, and not those of the pool"

    def after(self, state: State) -> None:
        """Whatever has happened."""
        for node in state.nodes.values():
            for gpu in node.gpus if is_in_pool(node.features) else ():
                others = [job_id for job_id in (*gpu.holders, *gpu.guests) if state.jobs[job_id].trial is None]
                assert not others, f"{others} have a GPU of {node.node_id}, and are no trials"


def could_take(state: State, job: Job) -> list[str]:
    """GPUs of the pool that the trial might have, were they free. What is there beside GPUs is not looked at."""
    if job.spec.is_host_bound:
        return []
    return [
        f"{node.node_id}:{index}"
        for node in state.nodes.values()
        if is_in_pool(node.features) and node.present and not node.draining and node.node_id not in job.avoided
        for index, gpu in enumerate(node.gpus)
        if node.is_healthy(index) and job.spec.gpus.accepts(gpu.gpu_type)
    ]


def run_watched(scenario: Scenario) -> None:
    """With placement looked at before and after each event."""
    machine, watch = Machine[State]("placement"), Watch()
    machine.__dict__.update(PLACEMENT.machine.__dict__)

    def evolve(state: State, event: Event, now_s: float) -> object:
        watch.before(state, event)
        changed = PLACEMENT.machine.evolve(state, event, now_s)
        watch.after(state)
        return changed

    machine.evolve = evolve  # type: ignore[method-assign]
    services = [replace(PLACEMENT, machine=machine) if service is PLACEMENT else service for service in SERVICES]
    scenario.build(services).run(hold)


@whole_system
@given(cells_with_a_pool())
def test_no_job_but_trials_has_gpus_of_the_pool_and_no_trial_others_while_the_pool_could_take_it(scenario: Scenario):
    run_watched(scenario)


@whole_system
@given(cells_with_a_pool())
def test_no_job_is_lost_beside_a_pool_and_every_decision_can_be_derived_again(scenario: Scenario):
    simulation = checked_run(scenario)
    every_job_has_ended(simulation)
    result = verify(log_of(simulation), SERVICES)
    assert result.ok, "\n".join(result.first.lines() if result.first else [])
