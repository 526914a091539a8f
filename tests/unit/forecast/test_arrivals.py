"""Jobs that are expected to arrive, and what they change of an expected start."""

from __future__ import annotations

import pytest

from libs.contracts.envelope import Envelope
from libs.contracts.gateway import Dependency, JobArrived, PolicyChanged
from libs.forecast.arrivals import REMEMBERED, SHORTEST_S, Arrival, Arrivals, Coming, coming
from libs.forecast.branch import Branch
from libs.forecast.expected import Expectation, expected_start
from libs.sim.simulation import Simulation
from libs.testing.builders import OPERATOR, Scenario, Spec
from services.roster import SERVICES


def arrival(number: int, time_s: float, gpus: int = 1) -> Arrival:
    spec = Spec(f"job-{number}").gpus(gpus).with_(total_steps=100.0, throughputs={"v100": 1.0})
    after = [Dependency(on="other")] if number == 0 else []
    event = JobArrived(job_id=f"job-{number}", spec=spec.build(), submitted_by="u", after=after)
    return Arrival(time_s=time_s, event=event)


def envelope(of: Arrival) -> Envelope:
    return Envelope(id=of.event.job_id, source="gateway", time_s=of.time_s, event=of.event)


def test_the_latest_are_kept_each_once():
    arrivals = Arrivals([arrival(0, 1.0)])
    for number in (0, *range(REMEMBERED + 1)):
        arrivals.take(envelope(arrival(number, 2.0 + number)))
    kept = [each.event.job_id for each in arrivals.latest]
    assert kept == [f"job-{number}" for number in range(1, REMEMBERED + 1)]
    again = Arrivals([arrival(0, 1.0)])
    again.take(envelope(arrival(0, 2.0)))
    assert [each.time_s for each in again.latest] == [1.0]


def test_as_many_arrive_as_have_and_the_latest_kind_first():
    latest = [arrival(0, 1000.0, gpus=4), arrival(1, 3000.0, gpus=2)]
    first, second = coming(latest, 9000.0)
    assert (first.time_s, second.time_s) == (9000.0 + 2000.0, 9000.0 + 6000.0)
    assert (first.event.spec.gpus.count, second.event.spec.gpus.count) == (2, 4)
    assert second.event.after == [], "what it waited for has ended by then"
    assert coming([], 9000.0) == []


def test_of_a_short_past_no_rush_is_expected():
    latest = [arrival(number, 100.0 + number) for number in range(4)]
    assert [each.time_s for each in coming(latest, 110.0)] == [110.0 + SHORTEST_S * (n + 0.5) / 4 for n in range(4)]


def test_none_arrives_where_nothing_else_is_to_come():
    expected = Coming([arrival(0, 0.0)], 7200.0)
    assert expected.next_before(float("inf")) is None
    assert expected.next_before(7200.0 + 3600.0) is None, "it does not come before what comes then"
    assert expected.next_before(7200.0 + 3600.5) is not None
    assert (expected.next_before(1e9), expected.played) == (None, 1)


def shared(policy: str) -> tuple[Simulation, list[Arrival]]:
    """Four GPUs; jobs arrive every 200 s and run for 300 s on two GPUs, up to a moment when `wide` waits."""
    scenario = Scenario().servers(4, v100=4).plan(0.0, PolicyChanged(policy=policy, requested_by=OPERATOR))
    work = {"total_steps": 300.0, "throughputs": {"v100": 1.0}}
    for number in range(30):
        spec = Spec("m").gpus(2).runs(300.0).with_(**work)
        scenario.job(f"job-{number:02}", at=100.0 * number, spec=spec)
    scenario.job("wide", at=2650.0, spec=Spec("m").gpus(4).runs(300.0).with_(**work))
    simulation = scenario.build(SERVICES)
    while simulation.now_s < 2660.0 and simulation.advance():
        simulation.dispatcher.settle()
    arrivals = Arrivals()
    for each in simulation.log.control:
        arrivals.take(each)
    return simulation, arrivals.latest


def expectation(simulation: Simulation, arrived: list[Arrival]) -> Expectation:
    return expected_start(Branch(simulation.replicas, simulation.now_s, arrived=arrived), "wide")


def test_under_shares_a_later_job_delays_one_that_waits():
    simulation, arrived = shared("max_min_fairness")
    without, with_them = expectation(simulation, []), expectation(simulation, arrived)
    assert without.arrivals == 0 < with_them.arrivals
    assert without.at_s is not None and with_them.at_s is not None
    assert with_them.at_s >= without.at_s
    assert with_them.rests_on == without.rests_on, "of jobs that are there"


def test_in_the_order_of_arrival_a_later_job_changes_nothing():
    simulation, arrived = shared("backfill")
    without, with_them = expectation(simulation, []), expectation(simulation, arrived)
    assert with_them.at_s == pytest.approx(without.at_s)
