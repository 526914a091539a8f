"""The pool for trials: no other job has its GPUs, and no trial others while the pool could take it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter

from hypothesis import given
from hypothesis import strategies as st

from libs.contracts.base import Event
from libs.contracts.features import is_in_pool, name_of
from libs.contracts.gateway import PolicyChanged
from libs.contracts.placement import JobPlaced, Role
from libs.inspect.verify import verify
from libs.kernel.machine import Machine
from libs.sim.simulation import Simulation
from libs.testing.builders import Scenario, log_of
from services.placement.core.cluster import gangs
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.reservations import servers_open_to
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


def in_order(scenario: Scenario) -> Scenario:
    """The same under the policy by which no job passes another one."""
    return scenario.plan(0.0, PolicyChanged(policy="strict_fifo", requested_by="op"))


class Watch:
    """Looks at what placement knows before and after each event."""

    def before(self, state: State, event: Event) -> None:
        """Check a placement against the state before it."""
        if not isinstance(event, JobPlaced):
            return
        job = state.jobs[event.job_id]
        if state.policy == "strict_fifo" and event.role == Role.OWNER:
            first = [other.job_id for other in its_line(state, job) if other.order < job.order]
            assert not first, f"{job.job_id} passes {first}"
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


def its_line(state: State, job: Job) -> list[Job]:
    """The jobs that wait for the same: trials for GPUs of the pool, the others for those outside."""
    queued = [state.jobs[job_id] for orders in state.queue.values() for _, _, job_id in orders]
    return [other for other in queued if bool(name_of(other.pool)) == bool(name_of(job.pool))]


def no_trial_waits_for_what_is_free(simulation: Simulation) -> None:
    """Under the policy by which no job passes another one: the first trial of the pool has a GPU if one is free."""
    hold(simulation)
    state = simulation.replicas["placement"].state
    queued = [state.jobs[job_id] for orders in state.queue.values() for _, _, job_id in orders]
    trials = sorted((job for job in queued if name_of(job.pool)), key=attrgetter("order"))
    if state.policy == "strict_fifo" and trials and not trials[0].spec.is_host_bound:
        fit = gangs.best_fit(trials[0].spec.gpus, servers_open_to(state, trials[0]))
        assert fit is None, f"the trial of {trials[0].job_id} waits, and could have {fit}"


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


def run_watched(scenario: Scenario, look: Callable[[Simulation], None] = hold) -> None:
    """With placement looked at before and after each event, and the cell after each step."""
    machine, watch = Machine[State]("placement"), Watch()
    machine.__dict__.update(PLACEMENT.machine.__dict__)

    def evolve(state: State, event: Event, now_s: float) -> object:
        watch.before(state, event)
        changed = PLACEMENT.machine.evolve(state, event, now_s)
        watch.after(state)
        return changed

    machine.evolve = evolve  # type: ignore[method-assign]
    services = [replace(PLACEMENT, machine=machine) if service is PLACEMENT else service for service in SERVICES]
    scenario.build(services).run(look)


@whole_system
@given(cells_with_a_pool())
def test_no_job_but_trials_has_gpus_of_the_pool_and_no_trial_others_while_the_pool_could_take_it(scenario: Scenario):
    run_watched(scenario)


@whole_system
@given(cells_with_a_pool().map(in_order))
def test_where_no_job_passes_another_one_trials_of_the_pool_pass_those_that_may_not_have_its_gpus(scenario: Scenario):
    run_watched(scenario, no_trial_waits_for_what_is_free)


@whole_system
@given(cells_with_a_pool())
def test_no_job_is_lost_beside_a_pool_and_every_decision_can_be_derived_again(scenario: Scenario):
    simulation = checked_run(scenario)
    every_job_has_ended(simulation)
    result = verify(log_of(simulation), SERVICES)
    assert result.ok, "\n".join(result.first.lines() if result.first else [])
