"""Large arrays and DAGs through every core: in order, never more at once than allowed, and derivable again."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection

from libs.contracts.admission import JobRejected
from libs.contracts.agent import JobStarted
from libs.contracts.catalogue import TERMINAL
from libs.contracts.gateway import (
    ArrayArrived,
    DagArrived,
    GroupChangeRequested,
    JobArrived,
    JobPriorityChanged,
)
from libs.contracts.groups import Condition, Dependency, GroupChange, GroupMember
from libs.contracts.placement import JobCancelled, JobPlaced, JobSucceeded
from libs.contracts.reasons import DEPENDENCY_NEVER_MET
from libs.inspect.conservation import conservation
from libs.inspect.verify import verify
from libs.kernel.ids import member_id
from libs.sim.options import FailureModel
from libs.sim.simulation import Simulation
from libs.testing.builders import Scenario, Spec, events, log_of
from services.roster import SERVICES

ADMISSION_AND_SWEEPS = ("admission", "sweeps")


def array(group_id: str, size: int, at_once: int | None, *after: Dependency, runs_s: float = 60.0) -> ArrayArrived:
    return ArrayArrived(
        group_id=group_id,
        spec=Spec("train").runs(runs_s).build(),
        indices=list(range(size)),
        at_once=at_once,
        after=list(after),
        submitted_by="ada",
    )


def members(group_id: str, size: int) -> list[str]:
    return [member_id(group_id, str(index)) for index in range(size)]


def most_at_once(simulation: Simulation, jobs: Collection[str]) -> int:
    """Most of these jobs that were between their first placement and their end, by the log."""
    under_way: dict[str, None] = {}
    most = 0
    for envelope in simulation.log.control:
        event = envelope.event
        if isinstance(event, JobPlaced) and event.job_id in jobs:
            under_way[event.job_id] = None
        elif isinstance(event, TERMINAL):
            under_way.pop(event.job_id, None)
        most = max(most, len(under_way))
    return most


def check(simulation: Simulation) -> None:
    """Nothing is lost or doubled, and every decision can be derived again."""
    books = conservation(simulation.records())
    assert books.violations == [] and books.gpus_held == 0
    arrived = [event.job_id for event in events(simulation, JobArrived)]
    assert sorted(arrived) == sorted(event.job_id for event in events(simulation, *TERMINAL))
    assert len(arrived) == len(set(arrived))
    result = verify(log_of(simulation), SERVICES)
    assert result.ok, "\n".join(result.first.lines() if result.first else [])
    assert (result.differences, result.pending) == (0, 0)


def crashing(simulation: Simulation, every: int) -> Callable[[Simulation], None]:
    """Replaces what decides about arrays and order by a copy from its snapshot, again and again."""
    steps = 0

    def watch(running: Simulation) -> None:
        nonlocal steps
        steps += 1
        if steps % every == 0:
            for name in ADMISSION_AND_SWEEPS:
                running.restart(name)

    return watch


def test_an_array_of_a_thousand_with_four_at_once_over_many_crashes():
    scenario = Scenario(seed=1).servers(8, v100=8).plan(1.0, array("a-1", 1000, 4))
    simulation = scenario.build(SERVICES)
    simulation.run(crashing(simulation, every=250))
    jobs = members("a-1", 1000)
    assert [event.job_id for event in events(simulation, JobPlaced)] == jobs
    assert most_at_once(simulation, dict.fromkeys(jobs)) == 4
    assert len(events(simulation, JobSucceeded)) == 1000
    check(simulation)


def test_the_limit_holds_over_failures_retries_pauses_and_cancellations():
    failures = FailureModel(attempt_failure_ratio=0.3)
    scenario = Scenario(seed=3).servers(8, v100=16).options(failures=failures, start_delay_s=1.0, interleaving=2)
    scenario.plan(1.0, array("a-1", 100, 5)).plan(
        2.0, array("a-2", 20, 3, Dependency(on="a-1", condition=Condition.ANY))
    )
    jobs = members("a-1", 100)
    for number in range(10, 40, 3):
        scenario.cancel(jobs[number], at=30.0 + number).pause(jobs[number + 1], at=20.0 + number, until=400.0 + number)
    simulation = scenario.build(SERVICES)
    simulation.run(crashing(simulation, every=20))
    assert most_at_once(simulation, jobs) == 5
    assert most_at_once(simulation, members("a-2", 20)) == 3
    placed = [event.job_id for event in events(simulation, JobPlaced)]
    assert max(placed.index(job) for job in jobs if job in placed) < min(map(placed.index, members("a-2", 20)))
    check(simulation)


def dag(size: int, seed: int) -> list[GroupMember]:
    """A random DAG: each job waits for up to four of those before it, under every condition."""
    rng = random.Random(seed)
    found: list[GroupMember] = []
    for number in range(size):
        before = rng.sample(found, min(len(found), rng.choice([0, 1, 2, 4])))
        after = [
            Dependency(
                on=member.job_id, condition=rng.choice([Condition.OK, Condition.OK, Condition.ANY, Condition.FAIL])
            )
            for member in before
        ]
        spec = Spec(f"n{number}").runs(rng.choice([10.0, 60.0, 200.0])).build()
        found.append(GroupMember(job_id=member_id("d-1", f"n{number}"), spec=spec, after=after))
    return found


def test_a_dag_of_two_hundred_runs_in_order_over_failures_and_crashes():
    jobs = dag(200, seed=7)
    scenario = Scenario(seed=5).servers(8, v100=32).options(failures=FailureModel(attempt_failure_ratio=0.3))
    scenario.plan(1.0, DagArrived(group_id="d-1", name="pipeline", jobs=jobs, submitted_by="ada"))
    simulation = scenario.build(SERVICES)
    simulation.run(crashing(simulation, every=20))
    outcome: dict[str, bool] = {}
    waits = {member.job_id: member.after for member in jobs}
    never = 0
    for envelope in simulation.log.control:
        event = envelope.event
        if isinstance(event, JobPlaced):
            for dependency in waits[event.job_id]:
                assert dependency.on in outcome, f"{event.job_id} runs before the end of {dependency.on}"
                assert dependency.condition is Condition.ANY or outcome[dependency.on] == (
                    dependency.condition is Condition.OK
                )
        elif isinstance(event, TERMINAL):
            outcome[event.job_id] = isinstance(event, JobSucceeded)
            never += isinstance(event, JobRejected) and event.reason.code == DEPENDENCY_NEVER_MET
    assert len(outcome) == 200 and never > 10 and len(events(simulation, JobSucceeded)) > 20
    check(simulation)


def test_everything_of_an_array_is_cancelled_by_one_request_and_what_waits_for_it_never_runs():
    scenario = Scenario().servers(4, v100=4).plan(0.0, array("a-1", 200, 4))
    scenario.plan(1.0, array("a-2", 3, None, Dependency(on="a-1")))
    scenario.plan(90.0, GroupChangeRequested(group_id="a-1", change=GroupChange.CANCEL, requested_by="ada"))
    simulation = scenario.run(SERVICES)
    assert len(events(simulation, JobSucceeded)) == 4 and len(events(simulation, JobCancelled)) == 196
    assert len(events(simulation, JobStarted)) == 8, "the end of a running job lets none go that is cancelled as well"
    assert {event.job_id for event in events(simulation, JobRejected)} == set(members("a-2", 3))
    check(simulation)


def test_an_array_is_paused_resumed_and_given_a_priority_as_a_whole():
    scenario = Scenario().servers(4, v100=4).plan(0.0, array("a-1", 30, 2))
    for at, change in ((30.0, GroupChange.PAUSE), (500.0, GroupChange.RESUME), (501.0, GroupChange.PRIORITY)):
        scenario.plan(at, GroupChangeRequested(group_id="a-1", change=change, requested_by="ada", priority=9))
    simulation = scenario.run(SERVICES)
    times = [e.time_s for e in simulation.log.control if isinstance(e.event, JobPlaced)]
    assert [time_s for time_s in times if 30.0 < time_s < 500.0] == [] and len(times) == 30
    assert len(events(simulation, JobPriorityChanged)) == 30
    assert most_at_once(simulation, members("a-1", 30)) == 2
    check(simulation)
