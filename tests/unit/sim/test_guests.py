"""Guests in the simulator: an owner is as fast as alone, guests have what is left."""

from __future__ import annotations

import pytest

from libs.cli.simulation import simulation_of
from libs.contracts.jobs import JobClass
from libs.contracts.placement import JobPlaced, UpgradeOffered
from libs.sim.choice import Choice
from libs.sim.simulation import Simulation
from libs.sim.throughputs import Throughputs
from libs.sim.traces import TraceJob
from libs.testing.builders import events

NO_RATES = Throughputs([], {}, [])


def played(guests: str | None, policy: str = "antman") -> Simulation:
    jobs = [
        TraceJob(job_id="owner", submit_time_s=0.0, gpus=1, duration_s=100.0),
        TraceJob(
            job_id="guest", submit_time_s=10.0, gpus=1, duration_s=60.0, job_class=JobClass.OPPORTUNISTIC, tenant="b"
        ),
    ]
    choice = Choice(policy=policy, cluster="v100=1", guests=guests)
    simulation = simulation_of(jobs, NO_RATES, choice, keep_log=True)
    simulation.run()
    return simulation


@pytest.mark.parametrize("policy", ["antman", "backfill", "max_min_fairness", "gandiva"])
def test_an_owner_keeps_its_speed_and_its_guest_half_of_it(policy: str):
    simulation = played("antman", policy)
    ends = {job.job_id: job.finish_s for job in simulation.outcomes.values()}
    assert [event.role for event in events(simulation, JobPlaced)] == ["owner", "guest"]
    assert ends["owner"] == pytest.approx(100.0)
    assert ends["guest"] == pytest.approx(100.0 + 60.0 - 0.5 * 90.0)
    assert events(simulation, UpgradeOffered) == [], "a job of this class never uses quota"


def test_without_guests_an_opportunistic_job_waits_for_gpus():
    ends = {job.job_id: job.finish_s for job in played("none").outcomes.values()}
    assert ends == {"owner": pytest.approx(100.0), "guest": pytest.approx(160.0)}


def test_the_policy_brings_its_guests():
    assert played(None).outcomes["guest"].finish_s == pytest.approx(115.0)
