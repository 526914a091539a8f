"""A job hangs, has diverged or leaves its GPUs idle: its tenant's choice."""

import pytest

from libs.contracts.base import Event
from libs.contracts.gateway import TenantConfigured
from libs.contracts.introspection import GpuIdle, JobStalled, LossDiverged
from libs.contracts.placement import AttemptFailed, JobPreempted, JobQueued, JobSucceeded, StopTask
from libs.contracts.reasons import Reason
from libs.testing.core_case import only
from services.placement.core.lifecycle.alarms import REQUEUES
from tests.unit.placement.placement_case import PlacementCase

NAMES = {"stalled": "on_stall", "diverged": "on_divergence", "idle": "on_idle"}


def alarm(name: str, attempt: int = 1) -> Event:
    reason = Reason(code=name, message=f"it is {name}")
    if name == "stalled":
        return JobStalled(
            job_id="a", attempt=attempt, quiet_s=70.0, limit_s=60.0, p99_s=0.1, minibatches_total=9, reason=reason
        )
    if name == "idle":
        return GpuIdle(job_id="a", attempt=attempt, idle_s=900.0, limit_s=900.0, gpus=1, reason=reason)
    return LossDiverged(
        job_id="a", attempt=attempt, rank=0, loss_nonfinite="nan", in_a_row=5, minibatches_total=9, reason=reason
    )


def running(response: str = "", name: str = "stalled", gpus: int = 1) -> PlacementCase:
    case = PlacementCase(n1=1, n2=1)
    case.submit("a", gpus)
    if response:
        tenant = case.replica.state.jobs["a"].spec.tenant
        case.give(TenantConfigured(tenant=tenant, gpu_limit=None, requested_by="op", **{NAMES[name]: response}))
    return case


def stopped(case: PlacementCase, attempt: int = 1, node: str = "n1") -> list[Event]:
    return case.exit("a", node, code=None, signal=15, outcome="stopped", attempt=attempt)


@pytest.mark.parametrize("name", NAMES)
def test_by_default_nothing_is_done(name: str):
    assert running().give(alarm(name)) == []
    assert running("tell", name).give(alarm(name)) == []


@pytest.mark.parametrize("name", NAMES)
def test_stop_ends_the_attempt_as_a_failure_with_the_reason(name: str):
    case = running("stop", name, gpus=2)
    orders = case.give(alarm(name))
    assert [type(order) for order in orders] == [StopTask, StopTask]
    assert case.give(alarm(name)) == []
    assert stopped(case) == []
    failed = only(stopped(case, node="n2"), AttemptFailed)
    assert (failed.outcome, failed.stderr_tail, failed.reason.message) == (name, f"it is {name}", f"it is {name}")


def test_another_alarm_than_the_one_that_was_set_only_tells():
    assert running("stop", "diverged").give(alarm("stalled")) == []


def test_what_is_not_said_anew_stays():
    case = running("stop")
    tenant = case.replica.state.jobs["a"].spec.tenant
    case.give(TenantConfigured(tenant=tenant, gpu_limit=4, requested_by="op"))
    assert [type(order) for order in case.give(alarm("stalled"))] == [StopTask]


def test_requeue_starts_the_job_anew_and_stops_it_when_that_does_not_help():
    case = running("requeue")
    for attempt in range(1, REQUEUES + 1):
        said = case.give(alarm("stalled", attempt))
        assert [type(event) for event in said] == [JobPreempted, StopTask]
        assert only(stopped(case, attempt), JobQueued).reason.message == "it is stalled"
    assert [type(event) for event in case.give(alarm("stalled", REQUEUES + 1))] == [StopTask]
    failed = only(stopped(case, REQUEUES + 1), AttemptFailed)
    assert failed.reason.message == "it is stalled; it was queued again for that 3 times before"


def test_a_job_that_has_done_its_work_before_the_stop_arrives_has_succeeded():
    case = running("stop")
    case.give(alarm("stalled"))
    assert [type(event) for event in case.exit("a")] == [JobSucceeded]


def test_late_alarms_change_nothing():
    case = running("stop")
    case.exit("a", code=1)
    assert case.give(alarm("stalled")) == []
    case = PlacementCase(n1=1)
    assert case.give(alarm("stalled")) == []
