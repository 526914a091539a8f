"""Simulated jobs that hang: found by the judge of live cells, and treated as their tenant wants."""

from __future__ import annotations

import pytest

from libs.contracts.gateway import TenantConfigured
from libs.contracts.introspection import GpuIdle, JobStalled
from libs.contracts.placement import AttemptFailed, JobPreempted, JobSucceeded
from libs.sim.options import FailureModel
from libs.sim.simulation import Simulation
from libs.testing.builders import Scenario, events
from services.roster import SERVICES


def hanging(response: str = "", seed: int = 3, **options: float) -> Simulation:
    scenario = Scenario(seed=seed).servers(v100=4).options(failures=FailureModel(**{"hang_ratio": 1.0, **options}))
    for number in range(4):
        scenario.job(f"j{number}", runs_s=1000)
    tenant = TenantConfigured(tenant="default", gpu_limit=None, requested_by="op", on_stall=response)
    return scenario.plan(0.0, tenant).run(SERVICES)


def test_hanging_jobs_are_told_once_and_keep_their_gpus():
    simulation = hanging()
    stalled, idle = events(simulation, JobStalled), events(simulation, GpuIdle)
    # Those that hang within their first mini-batches have no rhythm to fall out of, and hold idle GPUs all the same.
    assert sorted(fact.job_id for fact in stalled) == sorted({fact.job_id for fact in stalled}) != []
    assert sorted(fact.job_id for fact in idle) == ["j0", "j1", "j2", "j3"]
    assert all(fact.quiet_s == 60.0 for fact in stalled) and all(fact.idle_s == 900.0 for fact in idle)
    assert events(simulation, AttemptFailed) == events(simulation, JobSucceeded) == []


def test_their_tenant_may_have_them_stopped():
    simulation = hanging("stop")
    failed = events(simulation, AttemptFailed)
    assert {fact.job_id for fact in events(simulation, JobStalled)} == {fact.job_id for fact in failed}
    assert {fact.outcome for fact in failed} == {"stalled"}


@pytest.mark.parametrize("seed", range(3))
def test_their_tenant_may_have_them_start_anew_but_not_for_ever(seed: int):
    simulation = hanging("requeue", seed)
    stalled, preempted = events(simulation, JobStalled), events(simulation, JobPreempted)
    failed = events(simulation, AttemptFailed)
    assert len(stalled) == len(preempted) + len(failed) > 0
    assert all(sum(fact.job_id == one.job_id for fact in preempted) == 3 for one in failed)


def test_without_hanging_there_is_no_alarm():
    simulation = hanging(hang_ratio=0.0)
    assert events(simulation, JobStalled) == events(simulation, GpuIdle) == []
    assert len(events(simulation, JobSucceeded)) == 4
