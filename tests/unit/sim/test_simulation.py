"""A simulated cell: how long jobs take, what nodes do with orders, and what happens to them."""

from __future__ import annotations

import pytest

from libs.contracts import wire
from libs.contracts.agent import (
    GpuRecovered,
    GpuUnhealthy,
    JobExited,
    JobResumed,
    JobStarted,
    JobSuspended,
    NodeJoined,
    NodeLeft,
)
from libs.contracts.failure_analysis import JobAbandoned, RetryScheduled
from libs.contracts.gateway import PolicyChanged, SettingChanged
from libs.contracts.introspection import JobProfiled, NodeLost
from libs.contracts.migration import NodeDrained
from libs.contracts.placement import AttemptFailed, JobCancelled, JobPlaced, JobPreempted, JobSucceeded
from libs.sim.options import FailureModel, FaultKind
from libs.sim.simulation import Simulation, Stalled
from libs.sim.throughputs import parse_throughputs
from libs.testing.builders import Scenario, Spec, events
from services.roster import SERVICES


def time_of(simulation: Simulation, cls: type, number: int = 0) -> float:
    """When the event of this type stands on the log, the `number`-th of them."""
    return [e.time_s for e in simulation.log.control if isinstance(e.event, cls)][number]


def table(**rates: float):
    row = {"model": "LM", "batch_size": 5, "gpus": 2, "consolidated": True, "steps_per_s": rates}
    spread = row | {"consolidated": False, "steps_per_s": {name: rate / 2 for name, rate in rates.items()}}
    return parse_throughputs({"format": "throughputs/1", "gpu_types": list(rates), "isolated": [row, spread]}, "t")


def trained(scenario: Scenario, throughputs) -> Simulation:
    built = scenario.build(SERVICES)
    simulation = Simulation(SERVICES, built.cluster, built.workload, options=built.options, throughputs=throughputs)
    simulation.run()
    return simulation


def test_a_job_takes_as_long_as_its_trace_says():
    simulation = Scenario().servers(v100=4).job("a", at=10, runs_s=100).run(SERVICES)
    assert time_of(simulation, JobStarted) == 10
    assert time_of(simulation, JobSucceeded) == 110
    (exited,) = events(simulation, JobExited)
    assert (exited.exit_code, exited.outcome, exited.ran_s) == (0, "exited", 100)


def test_delays_come_on_top():
    simulation = Scenario().servers(v100=4).job("a", runs_s=100).options(start_delay_s=3.0).run(SERVICES)
    assert time_of(simulation, JobStarted) == 3
    assert time_of(simulation, JobSucceeded) == 103


def test_steps_run_at_the_rate_of_the_gpu_type_and_placement():
    job = Spec().gpus(2).trains("LM", 5, 1000)
    together = trained(Scenario().servers(2, v100=2).job("a", spec=job), table(v100=10.0))
    assert time_of(together, JobSucceeded) == 100
    assert together.world.jobs["a"].steps_100_s == 10
    assert events(together, JobExited)[0].minibatches_total == 1000
    blocker = Spec().gpus(1).runs(10_000).with_(max_retries=0)
    spread = (
        Scenario().servers(2, v100=4).job("x", spec=blocker).job("y", spec=blocker.gpus(2)).job("a", at=1, spec=job)
    )
    spread.servers(1, v100=0).setting("placement", "locality_relax_s", 0)
    assert spread.run(SERVICES).outcomes["a"].status == "SUCCEEDED"


def test_a_gang_over_several_servers_runs_at_the_spread_rate():
    job = Spec().gpus(2).trains("LM", 5, 1000)
    half = (
        Scenario()
        .servers(2, v100=4)
        .job("x", runs_s=1e4)
        .job("y", runs_s=1e4)
        .setting("placement", "locality_relax_s", 0.0)
    )
    half.job("z", gpus=2, runs_s=5).job("a", at=1, spec=job)
    simulation = trained(half, table(v100=10.0))
    placed = {event.job_id: len(event.gang) for event in events(simulation, JobPlaced)}
    end_s = simulation.outcomes["a"].finish_s
    start_s = simulation.outcomes["a"].first_start_s
    assert end_s is not None and start_s is not None
    assert end_s - start_s == pytest.approx(100 if placed["a"] == 1 else 200)


def test_a_job_that_cannot_run_on_a_type_ends_badly_there():
    simulation = trained(
        Scenario().servers(2, k80=2).job("a", spec=Spec().gpus(2).trains("LM", 5, 10)), table(v100=10.0, k80=0.0)
    )
    (abandoned,) = events(simulation, JobAbandoned)
    assert abandoned.exit_code == 1
    assert "no rate for this job on k80" in events(simulation, JobExited)[0].stderr_tail


def test_a_preempted_job_goes_on_where_it_was_stopped():
    scenario = Scenario().servers(1, v100=2).job("a", runs_s=100, restartable=True).drain("v100-000", at=40)
    simulation = scenario.options(checkpoint_overhead_s=5.0).run(SERVICES)
    assert [event.gang[0].node_id for event in events(simulation, JobPlaced)] == ["v100-000", "v100-001"]
    assert time_of(simulation, JobSucceeded) == 105


def test_a_job_that_keeps_no_checkpoints_begins_anew_elsewhere():
    scenario = Scenario().servers(1, v100=2).job("a", runs_s=100).drain("v100-000", at=40)
    simulation = scenario.options(checkpoint_overhead_s=5.0).run(SERVICES)
    assert time_of(simulation, JobSucceeded) == 140


def test_suspension_stops_progress_and_loses_none():
    simulation = Scenario().servers(v100=1).job("a", runs_s=100).pause("a", at=30, until=80).run(SERVICES)
    assert (time_of(simulation, JobSuspended), time_of(simulation, JobResumed)) == (30, 80)
    assert time_of(simulation, JobSucceeded) == 150
    assert len(events(simulation, JobPlaced)) == 1


def test_a_gang_waits_for_its_suspended_task():
    simulation = Scenario().servers(1, v100=2).job("a", gpus=2, runs_s=100).pause("a", at=30, until=80).run(SERVICES)
    assert len(events(simulation, JobSuspended)) == 2
    assert time_of(simulation, JobSucceeded) == 150


def test_cancelling_stops_the_tasks():
    simulation = (
        Scenario().servers(v100=1).job("a", runs_s=100).cancel("a", at=30).options(stop_delay_s=2).run(SERVICES)
    )
    assert time_of(simulation, JobCancelled) == 32
    assert events(simulation, JobExited)[0].outcome == "stopped"


def test_a_time_limit_ends_the_task():
    simulation = Scenario().servers(v100=1).job("a", runs_s=100, time_limit_s=20.0).run(SERVICES)
    assert events(simulation, JobExited)[0].outcome == "time_limit"
    assert simulation.outcomes["a"].status == "FAILED"


def test_attempts_fail_by_chance_and_each_jobs_luck_is_its_own():
    def outcomes(jobs: int) -> dict[str, list[int | None]]:
        scenario = Scenario(seed=7).servers(8, v100=64).options(failures=FailureModel(attempt_failure_ratio=0.5))
        for number in range(jobs):
            scenario.job(f"job-{number}", max_retries=3)
        simulation = scenario.run(SERVICES)
        exits: dict[str, list[int | None]] = {}
        for event in events(simulation, JobExited):
            exits.setdefault(event.job_id, []).append(event.exit_code)
        return exits

    many, few = outcomes(30), outcomes(10)
    assert {job_id: many[job_id] for job_id in few} == few
    assert any(codes[0] != 0 for codes in many.values()) and any(codes[0] == 0 for codes in many.values())


def test_stragglers_are_slow():
    slow = FailureModel(straggler_ratio=1.0, straggler_speed=0.5)
    simulation = Scenario().servers(v100=1).job("a", runs_s=100).options(failures=slow).run(SERVICES)
    assert time_of(simulation, JobSucceeded) == 200


def test_a_crashed_node_is_called_lost_and_joins_again():
    scenario = Scenario().servers(1, v100=2).job("a", runs_s=100).fault(FaultKind.CRASH, "v100-000", at=50, for_s=300)
    simulation = scenario.run(SERVICES)
    assert time_of(simulation, NodeLost) == 80
    assert [e.incarnation for e in events(simulation, NodeJoined) if e.node_id == "v100-000"] == [1, 2]
    assert events(simulation, JobPlaced)[-1].gang[0].node_id == "v100-001"
    assert time_of(simulation, JobSucceeded) == 180, "what the dead node had done is lost"


def test_an_agent_that_restarts_adopts_its_tasks():
    scenario = Scenario().servers(v100=1).job("a", runs_s=100)
    simulation = scenario.fault(FaultKind.AGENT_RESTART, "v100-000", at=50, for_s=10).run(SERVICES)
    assert [len(event.tasks) for event in events(simulation, NodeJoined)] == [0, 1]
    assert not events(simulation, JobPreempted)
    assert time_of(simulation, JobSucceeded) == 100


def test_what_ends_while_the_agent_is_away_is_reported_when_it_is_back():
    scenario = Scenario().servers(v100=1).job("a", runs_s=55)
    simulation = scenario.fault(FaultKind.AGENT_RESTART, "v100-000", at=50, for_s=10).run(SERVICES)
    assert [len(event.tasks) for event in events(simulation, NodeJoined)] == [0, 1]
    assert time_of(simulation, JobSucceeded) == 60


def test_a_short_silence_loses_nothing():
    scenario = Scenario().servers(v100=1).job("a", runs_s=60).cancel("b", at=55).job("b", at=1, runs_s=10)
    simulation = scenario.fault(FaultKind.SILENCE, "v100-000", at=50, for_s=20).run(SERVICES)
    assert not events(simulation, NodeLost)
    assert time_of(simulation, JobSucceeded) == 70


def test_a_node_that_leaves_ends_its_tasks():
    scenario = Scenario().servers(1, v100=2).job("a", runs_s=100)
    simulation = scenario.fault(FaultKind.LEAVE, "v100-000", at=50, for_s=10).run(SERVICES)
    assert time_of(simulation, NodeLeft) == 50
    assert time_of(simulation, JobPreempted) == 50
    assert events(simulation, AttemptFailed) == []
    assert simulation.outcomes["a"].status == "SUCCEEDED", "no retry is used up"


def test_an_unhealthy_gpu_gets_no_new_work():
    scenario = Scenario().servers(v100=1).job("a", at=20, runs_s=10)
    simulation = scenario.fault(FaultKind.GPU_UNHEALTHY, "v100-000", at=10, for_s=50).run(SERVICES)
    assert (time_of(simulation, GpuUnhealthy), time_of(simulation, GpuRecovered)) == (10, 60)
    assert time_of(simulation, JobPlaced) == 60


def test_progress_is_reported_when_asked_for():
    built = Scenario().servers(2, v100=2).job("a", spec=Spec().gpus(2).trains("LM", 5, 1000))
    simulation = trained(built.options(profile_every_s=30.0), table(v100=10.0))
    assert [(e.minibatches_total, e.rate_per_s) for e in events(simulation, JobProfiled)] == [
        (300, 10.0),
        (600, 10.0),
        (900, 10.0),
    ]


def test_retries_wait_on_the_virtual_clock():
    scenario = Scenario(seed=3).servers(v100=1).job("a", max_retries=5)
    simulation = scenario.options(failures=FailureModel(attempt_failure_ratio=0.7)).run(SERVICES)
    scheduled = events(simulation, RetryScheduled)
    placed = [e.time_s for e in simulation.log.control if isinstance(e.event, JobPlaced)]
    assert scheduled
    for retry, placed_s in zip(scheduled, placed[1:], strict=False):
        assert placed_s == pytest.approx(retry.not_before_s, abs=2e-6)


@pytest.mark.parametrize("interleaving", [None, 1, 2])
def test_twin_runs_are_the_same_to_the_byte(interleaving: int | None):
    def run() -> list[tuple[wire.Headers, bytes]]:
        scenario = Scenario(seed=5).servers(2, v100=4, k80=2)
        failures = FailureModel(attempt_failure_ratio=0.3, node_mtbf_s=900.0, node_repair_s=60.0)
        scenario.options(failures=failures, interleaving=interleaving)
        for number in range(20):
            scenario.job(f"job-{number}", gpus=number % 4 + 1, at=number * 7, max_retries=2)
        simulation = scenario.run(SERVICES)
        return [wire.encode(e) for e in simulation.log.control + simulation.log.orders]

    assert run() == run()


def test_a_run_can_forget_its_log_and_still_count():
    def scenario() -> Scenario:
        return Scenario().servers(v100=1).job("a", runs_s=100).job("b", runs_s=10)

    kept, forgotten = scenario().run(SERVICES), scenario().options(keep_log=False).run(SERVICES)
    assert forgotten.log.control == []
    assert forgotten.log.end == len(kept.log.control)
    assert forgotten.outcomes == kept.outcomes


def test_the_horizon_ends_a_run():
    simulation = Scenario().servers(v100=1).job("a", runs_s=1000).job("b").options(horizon_s=500.0).run(SERVICES)
    assert simulation.outcomes["a"].status == "UNFINISHED"
    assert simulation.now_s == 500


def test_a_run_that_can_never_end_says_so():
    scenario = Scenario().servers(1, v100=2).job("a", runs_s=10, max_retries=5).pause("a", at=0.0)
    scenario.options(failures=FailureModel(node_mtbf_s=50.0, node_repair_s=10.0))
    with pytest.raises(Stalled, match=r"only nodes come and go; 1 job has not ended \(a\)"):
        scenario.run(SERVICES)


def test_two_jobs_of_one_id_are_refused():
    with pytest.raises(ValueError, match="same id"):
        Scenario().servers(v100=1).job("a").job("a").build(SERVICES)


def test_a_measured_run_ends_with_the_measured_jobs():
    scenario = Scenario().servers(v100=4).options(measure=(1, 2))
    scenario.job("warm-up", runs_s=1000).job("measured", at=1, runs_s=10).job("tail", at=2, runs_s=1000)
    simulation = scenario.run(SERVICES)
    assert simulation.now_s == 11
    summary = simulation.result(policy="backfill", options={})["summary"]
    assert (summary["jobs"], summary["completed"], summary["avg_jct_s"]) == (1, 1, 10.0)


@pytest.mark.parametrize("policy", ["backfill", "gandiva"])
def test_a_gentle_drain_costs_no_job_what_it_has_done(policy: str):
    """Four unmodified jobs on two GPUs, one of which is drained while each of the four is under way somewhere."""
    scenario = Scenario().servers(1, v100=2)
    scenario.plan(0.0, PolicyChanged(policy=policy, requested_by="op"))
    scenario.plan(0.0, SettingChanged(service="placement", name="slice_s", value=20.0, requested_by="op"))
    for number in range(4):
        scenario.job(f"j{number}", runs_s=100, restartable=False)
    simulation = scenario.drain("v100-000", at=90, until=900, now=False).run(SERVICES)
    assert len(events(simulation, JobSucceeded)) == 4
    assert events(simulation, JobPreempted) == [] and {e.attempt for e in events(simulation, JobPlaced)} == {1}
    assert time_of(simulation, NodeDrained) < 900, "jobs that run on there end there"
