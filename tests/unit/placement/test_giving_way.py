"""A policy's row names the ways in which jobs are made to give GPUs up, and the mechanism goes them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from libs.contracts.placement import JobPreempted, TimeSliceStarted
from libs.policies.policy import Kind, Way
from libs.policies.table import POLICIES
from services.placement.core.lifecycle.giving_way import is_open, shrunk, way_of
from tests.unit.placement.test_pausing import PausingCase

RESTARTABLE = {"a": True, "b": False}


def after_a_few_rounds(monkeypatch: pytest.MonkeyPatch, *ways: Way) -> PausingCase:
    """Two jobs on one GPU, one of them restartable."""
    name = "max_min_fairness"
    monkeypatch.setitem(POLICIES, name, replace(POLICIES[name], ways=ways))
    case = PausingCase(name, n1=1)
    for job_id, restartable in RESTARTABLE.items():
        case.submit(job_id, restartable=restartable)
    for _ in range(8):
        for said in case.wake():
            if isinstance(said, JobPreempted):
                case.exit(said.job_id, attempt=said.attempt, code=None, signal=15, outcome="stopped")
    return case


@pytest.mark.parametrize(
    ("ways", "stopped", "suspended"),
    [
        ((Way.RESTART, Way.SUSPEND, Way.PREEMPT), {"a"}, {"b"}),
        ((Way.RESTART, Way.PREEMPT), {"a", "b"}, set()),
        ((Way.SUSPEND, Way.PREEMPT), set(), {"a", "b"}),
        ((Way.RESTART,), {"a"}, set()),
        ((), set(), set()),
    ],
)
def test_a_job_without_a_lease_leaves_in_the_first_way_that_is_open_to_it(
    monkeypatch: pytest.MonkeyPatch, ways: tuple[Way, ...], stopped: set[str], suspended: set[str]
):
    case = after_a_few_rounds(monkeypatch, *ways)
    assert {event.job_id for event in case.decided(JobPreempted)} == stopped
    assert {job_id for event in case.decided(TimeSliceStarted) for job_id in event.suspended} == suspended
    assert len(case.running) == 1


def test_a_job_gives_way_in_no_way_that_the_row_does_not_name():
    case = PausingCase("backfill", n1=1)
    case.submit("a", restartable=True)
    job = case.replica.state.jobs["a"]
    assert way_of(case.replica.state, job) is None
    assert not any(is_open(case.replica.state, job, way) for way in Way)
    with pytest.raises(ValueError, match="job a has 1 GPU and cannot shrink to 2"):
        shrunk(case.replica.state, job, 2, "m", "Test")


def test_policies_of_turns_name_suspension():
    assert all(Way.SUSPEND in policy.ways for policy in POLICIES.values() if policy.kind == Kind.TURNS)
