"""Traces that are played with their failures."""

from __future__ import annotations

import io
from typing import Any

import pytest

from libs.cli.simulation import document_of, simulation_of
from libs.contracts.gateway import JobCancelRequested
from libs.contracts.placement import AttemptFailed
from libs.sim.choice import Choice, Failures
from libs.sim.failing import planned_ends, status_of
from libs.sim.throughputs import NO_THROUGHPUTS
from libs.sim.traces import TraceJob, parse_trace
from libs.testing.builders import events

TRACE = """job_id,submit_time_s,tenant,model,batch_size,gpus,total_steps,duration_s,status,attempts
well,0,t,,,2,,600,passed,1
again,0,t,,,1,,600,succeeded,3
bad,0,t,,,1,,600,Failed,2
killed,0,t,,,4,,600,killed,2
unknown,0,t,,,1,,600,running,
"""


def played(failures: Failures, *, policy: str = "backfill", cluster: str = "v100=16") -> tuple[Any, dict[str, Any]]:
    jobs = parse_trace(io.StringIO(TRACE), "trace")
    choice = Choice(policy=policy, cluster=cluster, gpus_per_server=8, failures=failures)
    simulation = simulation_of(jobs, NO_THROUGHPUTS, choice, keep_log=True)
    simulation.run()
    return simulation, document_of(simulation, choice, 0.0)


def test_each_job_ends_as_its_trace_says_after_as_many_attempts():
    simulation, document = played(Failures.TRACE)
    rows = {row["job_id"]: row for row in document["jobs"]}
    assert {job: (row["study_status"], row["retries"]) for job, row in rows.items()} == {
        "well": ("passed", 0),
        "again": ("passed", 2),
        "bad": ("unsuccessful", 1),
        "killed": ("killed", 1),
        "unknown": ("passed", 0),
    }
    assert rows["again"]["gpu_s_by_attempt"] == pytest.approx({"1": 200, "2": 200, "3": 200})
    assert rows["killed"]["gpu_s_by_attempt"] == pytest.approx({"1": 1200, "2": 1200})
    assert [event.job_id for event in events(simulation, JobCancelRequested)] == ["killed"]
    assert len(events(simulation, AttemptFailed)) == 2 + 2 + 1
    assert document["summary"]["by_status"] == {
        "passed": {"jobs": 3, "gpu_s": pytest.approx(1200 + 600 + 600), "retries": 2},
        "killed": {"jobs": 1, "gpu_s": pytest.approx(2400), "retries": 1},
        "unsuccessful": {"jobs": 1, "gpu_s": pytest.approx(600), "retries": 1},
    }
    assert document["options"]["failures"] == "trace"


@pytest.mark.parametrize("policy", ["gandiva", "max_min_fairness"])
def test_a_failure_comes_after_its_work_also_where_jobs_take_turns(policy: str):
    """Five jobs on half as many GPUs: attempts are suspended, or begin anew from checkpoints."""
    _, document = played(Failures.TRACE, policy=policy, cluster="v100=4")
    rows = {row["job_id"]: row for row in document["jobs"]}
    assert [rows[job]["study_status"] for job in ("well", "again", "bad", "killed")] == [
        "passed",
        "passed",
        "unsuccessful",
        "killed",
    ]
    assert [rows[job]["retries"] for job in ("well", "again", "bad", "killed")] == [0, 2, 1, 1]


def test_without_failures_every_job_ends_well_at_once():
    _, document = played(Failures.NONE)
    assert {row["study_status"] for row in document["jobs"]} == {"passed"}
    assert {row["retries"] for row in document["jobs"]} == {0} and "failures" not in document["options"]


def test_words_of_traces_for_an_end():
    jobs = [TraceJob(job_id=word, submit_time_s=0, gpus=1, status=word) for word in ("Pass", "CANCELED", "failed", "")]
    assert [status_of(job) for job in jobs] == ["passed", "killed", "unsuccessful", ""]
    assert planned_ends(jobs, Failures.NONE, seed=0) == (jobs, {})
