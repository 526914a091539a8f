"""When a job is expected to start, and how far that was off."""

from __future__ import annotations

import pytest

from libs.forecast.answer import forecast_of_new
from libs.forecast.branch import Branch
from libs.forecast.errors import MOST_OF_ONE, Errors, Track
from libs.forecast.expected import FORWARD, POOL, Expectation, expected_start
from libs.forecast.pool import from_pool
from libs.kernel.present import Present, PresentLength
from libs.sim.simulation import Simulation
from libs.testing.builders import Scenario, Spec
from services.roster import SERVICES
from tests.unit.forecast.crowded_cell import four_gpus, present_job, stopped_at


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


def test_a_new_job_comes_behind_those_that_are_there():
    simulation, spec = line(), Spec("new").gpus(4).build()
    before = simulation.replicas["placement"].state_bytes
    found = forecast_of_new(lambda: Branch(simulation.replicas, simulation.now_s), spec)
    assert found.expected.at_s == pytest.approx(sum(range(100, 106)), abs=0.01)
    assert (found.expected.basis, found.errors) == ("stated_work", Errors())
    assert simulation.replicas["placement"].state_bytes == before
    idle = stopped_at(20.0, Scenario().servers(4, v100=4))
    assert forecast_of_new(lambda: Branch(idle.replicas, idle.now_s), spec).expected.in_s == 0.0


@pytest.mark.parametrize("steps", [0, 1, 3, 5])
def test_what_is_left_behind_the_last_step_is_estimated_from_one_pool(steps: int):
    expected = asked(line(), "job-5", steps)
    assert (expected.how, expected.steps) == (POOL, steps)
    assert expected.at_s == pytest.approx(100.0 + 101.0 + 102.0 + 103.0 + 104.0, abs=0.01)


def test_gpus_of_other_types_are_not_in_the_pool_and_neither_are_the_jobs_on_them():
    scenario = Scenario().servers(4, v100=4, k80=8)
    for job_id, gpu_type, gpus, runs_s in (("a", "v100", 4, 1000.0), ("b", "k80", 4, 9000.0), ("c", "k80", 4, 9000.0)):
        spec = Spec(job_id).gpus(gpus, gpu_type).runs(runs_s)
        scenario.job(job_id, spec=spec.with_(total_steps=runs_s, throughputs={gpu_type: 1.0}))
    scenario.job("waits", at=1.0, spec=Spec("waits").gpus(4, "v100"))
    simulation = stopped_at(20.0, scenario)
    assert asked(simulation, "waits", 0).at_s == pytest.approx(1000.0, abs=0.01)
    assert asked(simulation, "waits").at_s == pytest.approx(1000.0, abs=0.01)


def pooled(lengths: dict[str, float], *, since_s: float = 0.0, begin_s: float = 0.0, now_s: float = 0.0) -> float:
    """When `waits` starts, with jobs of these lengths on all four GPUs."""
    jobs = {job_id: present_job(job_id, True, since_s) for job_id in lengths} | {"waits": present_job("waits", False)}
    known = {job_id: PresentLength(in_s=in_s, basis="") for job_id, in_s in lengths.items()}
    return from_pool(Present(jobs=jobs, nodes={"n1": four_gpus()}), known, begin_s, now_s, "waits")


def test_gpus_that_jobs_share_are_in_the_pool_when_the_last_of_them_has_ended():
    assert pooled({"a": 1000.0, "b": 9000.0}) == pytest.approx(9000.0)


def test_a_job_that_was_placed_during_the_run_ends_its_length_after_its_start():
    assert pooled({"a": 100.0}, since_s=40.0, now_s=50.0) == pytest.approx(140.0)
    assert pooled({"a": 100.0}, since_s=-40.0, now_s=50.0) == pytest.approx(100.0)


def test_a_job_that_is_starting_at_the_moment_is_expected_to_start():
    scenario = Scenario().servers(4, v100=4)
    stated(scenario, "a", 4, 5000.0)
    stated(scenario, "b", 4, 100.0)
    simulation = scenario.build(SERVICES)

    def is_starting() -> bool:
        jobs = Branch(simulation.replicas, simulation.now_s).present("").jobs
        return "b" in jobs and jobs["b"].queued and jobs["a"].is_placed and not jobs["a"].may_end

    while not is_starting() and simulation.advance():
        simulation.dispatcher.settle()
    assert is_starting()
    assert asked(simulation, "b").at_s == pytest.approx(5000.0, abs=0.01)


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
    assert track.errors.expectations == 0
    track.started("a", 250.0)
    assert track.errors == Errors(expectations=2, median_ratio=pytest.approx((50 / 150 + 50 / 100) / 2), p90_ratio=0.5)
    for now_s in range(50):
        track.said("b", now_s=now_s, at_s=100.0)
    track.started("b", 100.0)
    assert track.errors.expectations == 2 + MOST_OF_ONE, "a job that is asked about often does not outweigh all others"


def test_errors_are_of_expectations_that_rested_on_the_same_as_far_as_there_are_any():
    track = Track()
    track.said("a", now_s=0.0, at_s=110.0, basis="stated_work")
    track.said("b", now_s=0.0, at_s=300.0, basis="residual_life")
    track.started("a", 100.0)
    assert track.errors_by("residual_life") == track.errors, "none of these has come"
    track.started("b", 100.0)
    assert track.errors_by("stated_work").median_ratio == pytest.approx(0.1)
    assert track.errors_by("residual_life").median_ratio == pytest.approx(2.0)
    assert (track.errors_by("residual_life").basis, track.errors.basis) == ("residual_life", "")


def test_a_start_counts_once():
    track = Track()
    track.said("a", now_s=100.0, at_s=200.0)
    track.started("a", 250.0)
    track.started("a", 900.0)
    assert track.errors.expectations == 1
