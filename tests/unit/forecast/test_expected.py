"""When a job is expected to start, and how far that was off."""

from __future__ import annotations

import pytest

from libs.forecast.branch import Branch
from libs.forecast.errors import Errors, Track
from libs.forecast.expected import FORWARD, POOL, Expectation, expected_start
from libs.sim.simulation import Simulation
from libs.testing.builders import Scenario, Spec
from tests.unit.forecast.crowded_cell import stopped_at


def stated(scenario: Scenario, job_id: str, gpus: int, runs_s: float, *, at: float = 0.0) -> None:
    """A job of which its user has said how many steps it has, and how fast it is."""
    spec = Spec(job_id).gpus(gpus).runs(runs_s).with_(total_steps=runs_s, throughputs={"v100": 1.0})
    scenario.job(job_id, at=at, spec=spec)


def line(policy_setting: float = 300.0) -> Simulation:
    """One job on all four GPUs, five behind it, one of them asked about."""
    scenario = Scenario().servers(4, v100=4).setting("placement", "reserve_after_s", policy_setting)
    for number in range(6):
        stated(scenario, f"job-{number}", 4, 100.0 + number, at=float(number))
    return stopped_at(20.0, scenario)


def asked(simulation: Simulation, job_id: str, steps: int = 2000) -> Expectation:
    return expected_start(Branch(simulation.replicas, simulation.now_s), job_id, steps)


def test_it_is_when_the_jobs_before_it_have_ended():
    simulation = line()
    expected = asked(simulation, "job-3")
    assert (expected.how, expected.rests_on) == (FORWARD, {"stated_work": 6})
    assert expected.at_s == pytest.approx(100.0 + 101.0 + 102.0, abs=0.01)
    while simulation.advance():
        pass
    assert simulation.outcomes["job-3"].first_start_s == pytest.approx(expected.at_s, abs=0.01)


@pytest.mark.parametrize("steps", [0, 1, 3, 5])
def test_what_is_left_behind_the_last_step_is_estimated_from_one_pool(steps: int):
    expected = asked(line(), "job-5", steps)
    assert (expected.how, expected.steps) == (POOL, steps)
    assert expected.at_s == pytest.approx(100.0 + 101.0 + 102.0 + 103.0 + 104.0, abs=0.01)


def test_small_jobs_pass_a_gang_in_the_pool_until_it_has_waited_too_long():
    scenario = Scenario().servers(4, v100=4).setting("placement", "reserve_after_s", 90.0)
    stated(scenario, "long", 3, 300.0)
    stated(scenario, "gang", 4, 50.0, at=1.0)
    stated(scenario, "short", 1, 60.0, at=2.0)
    for number in range(4):
        stated(scenario, f"small-{number}", 1, 60.0, at=3.0 + number)
    simulation = stopped_at(20.0, scenario)
    # small-0 passes at 62 s; from 91 s on what becomes free is kept for the gang.
    assert asked(simulation, "small-0", 0).at_s == pytest.approx(62.0, abs=0.01)
    assert asked(simulation, "gang", 0).at_s == pytest.approx(300.0, abs=0.01)
    assert asked(simulation, "small-1", 0).at_s == pytest.approx(350.0, abs=0.01)
    assert asked(simulation, "small-1").at_s == pytest.approx(350.0, abs=0.01)


def test_what_nothing_will_start_is_not_expected_to():
    scenario = Scenario().servers(4, v100=4).job("waits", 2, at=1.0).pause("waits", at=1.0, until=900.0)
    expected = asked(stopped_at(20.0, scenario.job("other", 4, runs_s=500.0)), "waits")
    assert (expected.at_s, expected.in_s) == (None, None)


def test_a_time_limit_and_the_past_of_a_tenant_say_how_long_jobs_run():
    scenario = Scenario().servers(4, v100=4)
    scenario.job("limited", 4, runs_s=90.0, time_limit_s=120.0).job("waits", 4, at=1.0)
    expected = asked(stopped_at(20.0, scenario), "waits")
    assert expected.at_s == pytest.approx(120.0, abs=0.01)
    assert expected.rests_on["time_limit"] == 1
    scenario = Scenario().servers(4, v100=4)
    scenario.job("past", 4, runs_s=40.0).job("now", 4, at=1.0, runs_s=50.0).job("waits", 4, at=2.0)
    expected = asked(stopped_at(60.0, scenario), "waits")
    assert expected.at_s == pytest.approx(80.0, abs=0.1), "as long as the job before: 40 s from 40 s on"


def test_errors_are_parts_of_the_wait_that_came():
    track = Track()
    assert track.errors == Errors()
    track.said("a", now_s=100.0, at_s=200.0)
    track.said("a", now_s=150.0, at_s=200.0)
    track.said("gone", now_s=100.0, at_s=110.0)
    track.ended("gone")
    track.started("gone", 500.0)
    assert track.errors.starts == 0
    track.started("a", 250.0)
    assert track.errors == Errors(starts=2, median_ratio=pytest.approx((50 / 150 + 50 / 100) / 2), p90_ratio=0.5)
    track.started("a", 900.0)
    assert track.errors.starts == 2, "a start counts once"
