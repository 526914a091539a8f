"""Whatever waits for whatever, and whatever goes wrong: order and limits hold, and every job ends exactly once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from libs.contracts.catalogue import TERMINAL
from libs.contracts.gateway import ArrayArrived, GroupChangeRequested, JobArrived
from libs.contracts.groups import Condition, Dependency, GroupChange
from libs.contracts.placement import JobPlaced, JobSucceeded
from libs.inspect.conservation import conservation
from libs.inspect.verify import verify
from libs.kernel.ids import member_id
from libs.sim.simulation import Simulation
from libs.testing.builders import Scenario, Spec, events, log_of
from libs.testing.purity import watched
from libs.testing.strategies import options, spans, times
from services.roster import SERVICES
from tests.properties.effort import whole_system

WATCHED = tuple(watched(service) for service in SERVICES)


@st.composite
def dependent_jobs(draw: st.DrawFn) -> Scenario:
    """Jobs and arrays that wait for each other, and users who change their minds. All of it ends some time."""
    scenario = Scenario(seed=draw(st.integers(0, 3))).options(**draw(options())).servers(2, v100=4)
    known: list[str] = []
    jobs: list[str] = []
    arrays: list[str] = []
    at = 0.0
    for number in range(draw(st.integers(2, 7))):
        at += draw(st.sampled_from([0.0, 0.0, 30.0, 300.0]))
        after = [
            Dependency(on=on, condition=draw(st.sampled_from(list(Condition))))
            for on in draw(st.lists(st.sampled_from(known), max_size=3, unique=True) if known else st.just([]))
        ]
        spec = (
            Spec("train").gpus(draw(st.sampled_from([1, 1, 2, 9]))).runs(draw(spans)).retries(draw(st.integers(0, 1)))
        )
        if draw(st.booleans()):
            name, size = f"a-{number}", draw(st.integers(1, 4))
            arrays.append(name)
            jobs += [member_id(name, str(index)) for index in range(size)]
            arrived = ArrayArrived(
                group_id=name,
                spec=spec.build(),
                indices=list(range(size)),
                at_once=draw(st.sampled_from([None, 1, 2])),
                after=after,
                submitted_by="ada",
            )
            scenario.plan(at, arrived)
        else:
            name = f"job-{number}"
            jobs.append(name)
            scenario.plan(at, JobArrived(job_id=name, spec=spec.build(), submitted_by="ada", after=after))
        known.append(name)
    _change_of_mind(draw, scenario, jobs, arrays, at)
    return scenario


def _change_of_mind(draw: st.DrawFn, scenario: Scenario, jobs: list[str], arrays: list[str], last_s: float) -> None:
    late = times.map(lambda time_s: last_s + time_s)
    for job_id in draw(st.lists(st.sampled_from(jobs), max_size=3)):
        scenario.cancel(job_id, at=draw(late))
    for job_id in draw(st.lists(st.sampled_from(jobs), max_size=3, unique=True)):
        begin = draw(late)
        scenario.pause(job_id, at=begin, until=begin + draw(spans))
    for array in draw(st.lists(st.sampled_from(arrays), max_size=2, unique=True)) if arrays else []:
        begin = draw(late)
        for at, change in ((begin, GroupChange.PAUSE), (begin + draw(spans), GroupChange.RESUME)):
            scenario.plan(at, GroupChangeRequested(group_id=array, change=change, requested_by="ada"))
    for array in draw(st.lists(st.sampled_from(arrays), max_size=1)) if arrays else []:
        scenario.plan(draw(late), GroupChangeRequested(group_id=array, change=GroupChange.CANCEL, requested_by="ada"))


@whole_system
@given(dependent_jobs())
def test_order_and_limits_hold_and_every_job_ends_once(scenario: Scenario):
    simulation = scenario.build(WATCHED)
    simulation.run(lambda running: [replica.check() for replica in running.replicas.values()])
    check_order(simulation)
    arrived = {event.job_id: event for event in events(simulation, JobArrived)}
    assert sorted(arrived) == sorted(event.job_id for event in events(simulation, *TERMINAL))
    assert conservation(simulation.records()).violations == []
    result = verify(log_of(simulation), SERVICES)
    assert result.ok, "\n".join(result.first.lines() if result.first else [])
    state = simulation.replicas["admission"].state
    assert (state.jobs, state.pending, state.groups, state.waiters) == ({}, {}, {}, {})
    assert simulation.replicas["sweeps"].state.groups == {}


def check_order(simulation: Simulation) -> None:
    """By the log alone: each placed job comes after what it waits for, and no array has more at once than allowed."""
    arrays = {event.group_id: event for event in events(simulation, ArrayArrived)}
    jobs = {event.job_id: event for event in events(simulation, JobArrived)}
    ended: dict[str, bool] = {}
    under_way: dict[str, dict[str, None]] = {name: {} for name in arrays}
    left = {name: len(event.indices) for name, event in arrays.items()}
    for envelope in simulation.log.control:
        event = envelope.event
        place = jobs[event.subject].group if event.subject in jobs else None
        if isinstance(event, JobPlaced):
            for dependency in jobs[event.job_id].after:
                assert dependency.on in ended, f"{event.job_id} runs before the end of {dependency.on}"
                wanted = dependency.condition
                assert wanted is Condition.ANY or ended[dependency.on] == (wanted is Condition.OK)
            if place is not None:
                under_way[place.group_id][event.job_id] = None
                assert len(under_way[place.group_id]) <= (arrays[place.group_id].at_once or 99)
        elif isinstance(event, TERMINAL):
            ended[event.job_id] = isinstance(event, JobSucceeded)
            if place is not None:
                under_way[place.group_id].pop(event.job_id, None)
                left[place.group_id] -= 1
                ids = [job_id for job_id, job in jobs.items() if job.group and job.group.group_id == place.group_id]
                if not left[place.group_id]:
                    ended[place.group_id] = all(ended[job_id] for job_id in ids)
