"""What holds for every cell, whatever is submitted to it and whatever goes wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import zip_longest

from hypothesis import given, note
from hypothesis import strategies as st

from libs.contracts import wire
from libs.contracts.agent import JobExited
from libs.contracts.base import Event
from libs.contracts.catalogue import TERMINAL
from libs.contracts.introspection import NodeLost
from libs.contracts.placement import JobPlaced, JobSucceeded, LaunchTask
from libs.inspect.conservation import conservation
from libs.inspect.sentences import sentence
from libs.inspect.verify import verify
from libs.kernel.machine import Machine
from libs.sim.simulation import Simulation
from libs.sim.witness import DONE, Stretch
from libs.testing.builders import Scenario, events, log_of
from libs.testing.purity import watched
from libs.testing.standing import none_is_left_standing
from libs.testing.strategies import crowded_cells, scenarios, troubled_cells
from services.placement.core.lifecycle.standing import Standing, standing
from services.placement.core.lifecycle.transitions import CHANGES
from services.placement.core.state import State as PlacementState
from services.placement.service import SERVICE as PLACEMENT
from services.roster import SERVICES
from tests.properties.effort import few_examples, under_faults, whole_system

LONGEST_S = 20_000.0
"""Time by which all jobs of a history have ended, however much they are disturbed."""
WATCHED = tuple(watched(service) for service in SERVICES)


def hold(running: Simulation) -> None:
    """Every core's invariants."""
    for replica in running.replicas.values():
        replica.check()


def checked_run(scenario: Scenario, look: Callable[[Simulation], object] = hold) -> Simulation:
    """Run with every core's invariants checked after every step, or what `look` looks at."""
    simulation = scenario.build(WATCHED)
    try:
        simulation.run(look)
    finally:
        for offset, envelope in enumerate(simulation.log.control):
            about, text = envelope.event.subject, sentence(envelope.event)
            note(f"#{offset} {envelope.time_s:g} {envelope.source} {about}: {text}")
    return simulation


def every_job_has_ended(simulation: Simulation) -> None:
    """Once each, and the books balance."""
    ended = [event.job_id for event in events(simulation, *TERMINAL)]
    waiting = [job.job_id for job in simulation.workload.jobs if job.job_id not in ended]
    assert waiting == [], f"{', '.join(waiting)} have not ended"
    assert len(ended) == len(simulation.workload.jobs), f"jobs have ended more than once: {ended}"
    books = conservation(simulation.records())
    assert books.violations == [], books.violations
    assert books.gpus_held == 0
    assert books.jobs_total == len(ended)
    none_is_left_standing(simulation)


def live_through(scenario: Scenario) -> Simulation:
    """Run to the end with all checks: of the cores, of the log, of its audit, and of what the tasks have witnessed."""
    simulation = checked_run(scenario)
    every_job_has_ended(simulation)
    every_decision_is_derived_again(simulation)
    all_work_is_done_once(simulation)
    assert simulation.now_s < LONGEST_S, f"it took {simulation.now_s} s"
    no_clock_of_a_node_decides(scenario, simulation)
    return simulation


def no_clock_of_a_node_decides(scenario: Scenario, simulation: Simulation) -> None:
    """Were all clocks right, the services would have decided the same at the same times."""
    other = scenario.with_right_clocks()
    if other is None:
        return
    with_right_clocks = other.run(SERVICES)
    for log, expected in (
        (simulation.log.control, with_right_clocks.log.control),
        (simulation.log.orders, with_right_clocks.log.orders),
    ):
        for here, there in zip_longest(log, expected):
            assert here is not None and there is not None, f"only with wrong clocks, or only without: {here or there}"
            assert (here.id, here.event) == (there.id, there.event), f"{here} for the sake of a clock, not {there}"


def every_decision_is_derived_again(simulation: Simulation) -> None:
    """By the audit, from the log alone."""
    result = verify(log_of(simulation), SERVICES)
    assert result.ok, "\n".join(result.first.lines() if result.first else [])
    assert result.pending == 0
    assert result.state_hashes == {name: replica.state_hash for name, replica in simulation.replicas.items()}


def all_work_is_done_once(simulation: Simulation) -> None:
    """The tasks' own record: no two attempts at a time, nothing after the end, from each checkpoint to the end once."""
    witness = simulation.world.witness()
    for stretch in witness.stretches:
        note(f"witness: {stretch}")
    ends_s = {r.envelope.event.subject: r.appended_at_s for r in simulation.records() if is_end(r.envelope.event)}
    assert witness.overlaps() == [], witness.overlaps()
    assert witness.after(ends_s) == [], witness.after(ends_s)
    succeeded = [event.job_id for event in events(simulation, JobSucceeded)]
    for job_id in (job.job_id for job in simulation.workload.jobs):
        assert witness.gaps(job_id) == [], witness.gaps(job_id)
        repeated = [stretch for stretch in witness.finishes(job_id)[:-1] if not is_excused(simulation, stretch)]
        assert repeated == [], f"done to its end more than once: {', '.join(map(str, repeated))}"
    assert witness.unfinished(succeeded) == [], witness.unfinished(succeeded)


def is_end(event: Event) -> bool:
    """Whether a job has ended by it."""
    return type(event) in TERMINAL


def is_excused(simulation: Simulation, stretch: Stretch) -> bool:
    """Whether nobody can know that the work has been done: it was ended in the moment in which it would have ended, or
    a node was lost between its end and the report of it."""

    def excuses(event: Event, at_s: float) -> bool:
        if isinstance(event, JobExited):
            is_its_end = (event.job_id, event.attempt) == (stretch.job_id, stretch.attempt)
            return is_its_end and event.outcome == "stopped" and at_s <= stretch.to_s + DONE
        return isinstance(event, NodeLost) and event.node_id in stretch.nodes and at_s >= stretch.to_s

    return any(excuses(record.envelope.event, record.appended_at_s) for record in simulation.records())


def encoded(simulation: Simulation) -> list[tuple[wire.Headers, bytes]]:
    return [wire.encode(envelope) for envelope in simulation.log.control + simulation.log.orders]


@whole_system
@given(scenarios())
def test_every_job_ends_exactly_once_and_the_books_balance(scenario: Scenario):
    every_job_has_ended(checked_run(scenario))


@whole_system
@given(st.one_of(scenarios(), crowded_cells(), crowded_cells(policy="max_min_fairness")))
def test_jobs_change_their_state_as_the_table_of_placement_says(scenario: Scenario):
    allowed = {(cls, change.before, change.after) for change in CHANGES for cls in change.events}
    machine, seen = Machine[PlacementState]("placement"), Counter[tuple[type[Event], Standing, Standing]]()
    machine.__dict__.update(PLACEMENT.machine.__dict__)

    def evolve(state: PlacementState, event: Event, now_s: float) -> object:
        before = {job_id: standing(job) for job_id, job in state.jobs.items()}
        changed = PLACEMENT.machine.evolve(state, event, now_s)
        for job_id in {**before, **state.jobs}:
            was, now = before.get(job_id, Standing.UNKNOWN), standing(state.jobs.get(job_id))
            seen[type(event), was, now] += was is not now
        return changed

    machine.evolve = evolve  # type: ignore[method-assign]
    services = [replace(PLACEMENT, machine=machine) if service is PLACEMENT else service for service in SERVICES]
    scenario.build(services).run()
    assert {change for change, times in seen.items() if times} <= allowed


@under_faults
@given(troubled_cells())
def test_whatever_happens_to_nodes_each_job_ends_once_and_is_trained_once(scenario: Scenario):
    live_through(scenario)


@whole_system
@given(scenarios())
def test_every_decision_can_be_derived_again(scenario: Scenario):
    every_decision_is_derived_again(checked_run(scenario))


@whole_system
@given(st.one_of(scenarios(policy="gandiva"), crowded_cells()))
def test_taking_turns_and_moving_keep_the_books_balanced_and_can_be_derived_again(scenario: Scenario):
    check_books_and_decisions(scenario)


@whole_system
@given(st.one_of(scenarios(policy="max_min_fairness"), crowded_cells(policy="max_min_fairness")))
def test_rounds_keep_the_books_balanced_and_can_be_derived_again(scenario: Scenario):
    check_books_and_decisions(scenario)


def check_books_and_decisions(scenario: Scenario) -> None:
    """Every job ends once, every GPU is given back, and a replay decides the same."""
    simulation = checked_run(scenario)
    none_is_left_standing(simulation)
    books = conservation(simulation.records())
    assert books.violations == []
    assert books.gpus_held == 0
    assert sorted(e.job_id for e in events(simulation, *TERMINAL)) == sorted(j.job_id for j in simulation.workload.jobs)
    result = verify(log_of(simulation), SERVICES)
    assert result.ok, "\n".join(result.first.lines() if result.first else [])


@whole_system
@given(scenarios())
def test_gangs_are_placed_whole_on_one_type_with_an_order_per_node(scenario: Scenario):
    simulation = checked_run(scenario)
    types = {server.node_id: server.gpu_type for server in simulation.cluster.servers}
    wanted = {job.job_id: job.spec.gpus for job in simulation.workload.jobs}
    launched = [e.event for e in simulation.log.orders if isinstance(e.event, LaunchTask)]
    for placed in events(simulation, JobPlaced):
        request = wanted[placed.job_id]
        assert sum(len(task.gpu_indices) for task in placed.gang) == request.count
        assert len({types[task.node_id] for task in placed.gang}) == 1
        assert request.max_nodes is None or len(placed.gang) <= request.max_nodes
        orders = [o for o in launched if (o.job_id, o.attempt) == (placed.job_id, placed.attempt)]
        assert [(o.node_id, o.gpu_indices) for o in orders] == [(t.node_id, t.gpu_indices) for t in placed.gang]
        assert [order.node_rank for order in orders] == list(range(len(placed.gang)))


@whole_system
@given(scenarios())
def test_nothing_new_once_settled(scenario: Scenario):
    simulation = checked_run(scenario)
    end = simulation.log.end
    assert simulation.advance() is False
    assert simulation.log.end == end
    for replica in simulation.replicas.values():
        hash_before = replica.state_hash
        for record in list(simulation.records())[-20:]:
            assert replica.step(record) == [], "a record that was handled changes nothing"
        assert replica.state_hash == hash_before


@whole_system
@given(scenarios(most_jobs=5), st.data())
def test_a_restart_from_a_snapshot_at_any_point_changes_nothing(scenario: Scenario, data: st.DataObject):
    undisturbed = checked_run(scenario)
    restarted = scenario.build(SERVICES)
    steps = data.draw(st.lists(st.integers(0, 60), min_size=1, max_size=8), label="restart after step")
    number = 0
    while restarted.advance():
        if number in steps:
            for service in SERVICES:
                restarted.restart(service.name)
        number += 1
    assert encoded(restarted) == encoded(undisturbed)


@few_examples
@given(
    small_s=st.integers(5, 60),
    gang=st.integers(2, 8),
    arrives_s=st.integers(0, 60),
    interleaving=st.one_of(st.none(), st.integers(0, 3)),
)
def test_a_gang_is_not_starved_by_a_stream_of_small_jobs(
    small_s: int, gang: int, arrives_s: int, interleaving: int | None
):
    """Ten jobs arrive for eight that end. Those that were first may go first, and those that run may end."""
    scenario = Scenario().servers(4, v100=8).options(interleaving=interleaving)
    for number in range(120):
        scenario.job(f"small-{number}", at=number * small_s / 10, runs_s=small_s)
    scenario.job("gang", gang, at=arrives_s, runs_s=10.0)
    simulation = scenario.run(SERVICES)
    outcome = simulation.outcomes["gang"]
    ahead = sum(1 for job in simulation.outcomes.values() if job.submit_s <= arrives_s)
    reserve_s, locality_s = 30.0, 60.0
    bound_s = max(reserve_s, locality_s) + small_s * (2 + ahead / 8)
    assert outcome.first_start_s is not None
    assert outcome.first_start_s - arrives_s <= bound_s
