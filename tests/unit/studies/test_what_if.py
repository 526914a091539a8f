"""What would have become of recorded jobs under another policy."""

from __future__ import annotations

import pytest

from libs.contracts.bad_input import BadInput
from libs.contracts.gateway import PolicyChanged, SettingChanged
from libs.contracts.placement import JobPlaced
from libs.inspect.logs import Log
from libs.policies.table import POLICIES
from libs.studies.what_if import WhatIf, what_if
from libs.testing.builders import Scenario, log_of
from services.roster import SERVICES


def recorded(policy: str = "backfill") -> Log:
    """`wide` waits for `long`; `short` fits beside `long`, where it may go first."""
    scenario = Scenario(seed=1).servers(4, v100=4).plan(0.0, PolicyChanged(policy=policy, requested_by="test"))
    scenario.job("long", 3, at=0.0, runs_s=100.0)
    scenario.job("wide", 4, at=10.0, runs_s=100.0)
    scenario.job("short", 1, at=20.0, runs_s=50.0)
    scenario.job("late", 1, at=400.0, runs_s=30.0)
    return log_of(scenario.run(SERVICES), cell="what-if")


def asked(log: Log, policy: str, from_offset: int = 0) -> WhatIf:
    return what_if(log, SERVICES, PolicyChanged(policy=policy, requested_by="test"), from_offset=from_offset)


def test_waits_and_ends_are_those_of_the_other_policy():
    found = asked(recorded(), "strict_fifo")
    assert (found.policy, found.other, found.gpus) == ("backfill", "strict_fifo", 4)
    waits = {job.job_id: (job.recorded_wait_s, job.wait_s, job.other_wait_s) for job in found.jobs}
    assert waits == {"long": (0, 0, 0), "wide": (90, 90, 90), "short": (0, 0, 180), "late": (0, 0, 0)}
    ends = {job.job_id: (job.finish_s, job.other_finish_s) for job in found.jobs}
    assert ends["short"] == (50, 230) and ends["wide"] == (190, 190)
    assert found.jobs[0].job_id == "short", "what differs most comes first"
    assert found.makespan_s == (430, 430)
    assert (found.unknown, found.unfinished) == ([], [])


def test_the_recorded_policy_differs_from_itself_in_nothing():
    found = asked(recorded("strict_fifo"), "strict_fifo")
    assert all(job.finish_s == job.other_finish_s and job.recorded_wait_s == job.wait_s for job in found.jobs)


def test_from_an_offset_on_what_was_done_before_is_done():
    log = recorded()
    [wide] = [
        record
        for record in log.control()
        if isinstance(record.envelope.event, JobPlaced) and record.envelope.event.job_id == "wide"
    ]
    found = asked(log, "strict_fifo", wide.offset)
    assert sorted(job.job_id for job in found.jobs) == ["late", "wide"]
    [late] = [job for job in found.jobs if job.job_id == "late"]
    assert (late.wait_s, late.other_finish_s) == (0, 30)
    assert found.makespan_s == (330, 330)


def with_a_pool() -> Log:
    """Of two servers one is for trials: `wide` has the other one, behind its trial, and `narrow` waits for it."""
    scenario = Scenario(seed=1).servers(4, v100=8).trial_pool(1).setting("admission", "trial_above_gpus", 1.0)
    scenario.job("wide", 4, at=0.0, runs_s=100.0).job("narrow", 1, at=10.0, runs_s=50.0)
    return log_of(scenario.run(SERVICES), cell="what-if")


def test_a_pool_for_trials_is_one_there_too_and_trials_are_run_in_it():
    found = asked(with_a_pool(), "strict_fifo")
    waits = {job.job_id: (job.recorded_wait_s, job.wait_s, job.other_wait_s) for job in found.jobs}
    assert waits == {"wide": (0, 0, 0), "narrow": (93, 93, 93)}, "the trial takes 3 s, and narrow gets none of the pool"
    assert {job.job_id: job.other_finish_s for job in found.jobs} == {"wide": 103, "narrow": 143}


def test_without_trials_a_job_takes_as_long_as_its_gang_has():
    none = SettingChanged(service="admission", name="trial_above_gpus", value=0.0, requested_by="test")
    other = PolicyChanged(policy="backfill", requested_by="test")
    found = what_if(with_a_pool(), SERVICES, other, changes=[none])
    assert {job.job_id: job.other_finish_s for job in found.jobs} == {"wide": 100, "narrow": 140}


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_can_be_asked_for(policy: str):
    found = asked(recorded(), policy)
    assert all(job.other_finish_s is not None for job in found.jobs)


def test_a_job_without_gpus_is_left_out_and_a_log_without_jobs_is_refused():
    scenario = Scenario(seed=1).servers(4, v100=4)
    scenario.job("a", 1, at=0.0, runs_s=10.0).job("too-large", 64, at=1.0, runs_s=10.0)
    log = log_of(scenario.run(SERVICES), cell="what-if")
    found = asked(log, "strict_fifo")
    assert ([job.job_id for job in found.jobs], found.unknown) == (["a"], ["too-large"])
    with pytest.raises(BadInput, match="no job that has held GPUs"):
        asked(log, "strict_fifo", 10_000)
