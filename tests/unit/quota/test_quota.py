"""Limits per tenant, order within a tenant, back-off."""

from libs.contracts.admission import JobAdmitted
from libs.contracts.base import Event
from libs.contracts.failure_analysis import RetryScheduled
from libs.contracts.gateway import JobPriorityChanged, TenantConfigured
from libs.contracts.placement import AttemptFailed, JobCancelled, JobSucceeded
from libs.contracts.quota import QuotaDeferred, QuotaGranted
from libs.contracts.reasons import PendingReason, Reason
from libs.testing.core_case import CoreCase, arrival, only
from services.quota.service import SERVICE

SAID = Reason(code="Test", message="said by the test")


class QuotaCase(CoreCase):
    def __init__(self, limit: int | None = None) -> None:
        super().__init__(SERVICE)
        self.limit(limit)

    def limit(self, gpus: int | None) -> list[Event]:
        return self.give(TenantConfigured(tenant="default", gpu_limit=gpus, requested_by="op"))

    def submit(self, job_id: str, gpus: int = 1, **spec: object) -> list[Event]:
        self.give(arrival(job_id, gpus, **spec))
        return self.give(JobAdmitted(job_id=job_id, reason=SAID))

    def succeed(self, job_id: str) -> list[Event]:
        return self.give(JobSucceeded(job_id=job_id, attempt=1))

    def fail(self, job_id: str) -> list[Event]:
        return self.give(
            AttemptFailed(
                job_id=job_id, attempt=1, node_id="n1", exit_code=1, signal=None, outcome="exited", reason=SAID
            )
        )

    @property
    def granted(self) -> list[tuple[str, int]]:
        return [(e.job_id, e.attempt) for e in self.decided(QuotaGranted)]


def test_without_a_limit_everything_is_granted_at_once():
    case = QuotaCase()
    assert [type(e) for e in case.submit("a", 1000)] == [QuotaGranted]


def test_over_the_limit_a_job_waits_until_another_has_ended():
    case = QuotaCase(limit=4)
    case.submit("a", 3)
    deferred = only(case.submit("b", 2), QuotaDeferred)
    assert deferred.reason.code == PendingReason.EXCEEDS_QUOTA
    assert deferred.reason.numbers == {"used_gpus": 3, "limit_gpus": 4, "gpus": 2, "jobs_ahead": 0}
    assert [e.job_id for e in case.succeed("a")] == ["b"]


def test_no_job_passes_a_large_job_of_the_same_tenant():
    case = QuotaCase(limit=4)
    case.submit("a", 2)
    case.submit("large", 4)
    assert only(case.submit("small", 1), QuotaDeferred).reason.numbers["jobs_ahead"] == 1
    case.succeed("a")
    assert case.granted == [("a", 1), ("large", 1)]


def test_priority_orders_the_waiting():
    case = QuotaCase(limit=1)
    for job in ("a", "b", "c"):
        case.submit(job)
    case.give(JobPriorityChanged(job_id="c", priority=1, requested_by="u"))
    case.succeed("a")
    assert case.granted == [("a", 1), ("c", 1)]


def test_tenants_do_not_count_against_each_other():
    case = QuotaCase(limit=1)
    case.submit("a")
    assert [type(e) for e in case.submit("b", tenant="other")] == [QuotaGranted]


def test_a_raised_limit_grants_at_once_and_a_lowered_one_takes_nothing_back():
    case = QuotaCase(limit=1)
    case.submit("a")
    case.submit("b")
    assert [e.job_id for e in case.limit(2)] == ["b"]
    assert case.limit(1) == []
    assert case.succeed("a") == []


def test_a_failed_attempt_holds_no_quota_while_it_backs_off():
    case = QuotaCase(limit=1)
    case.submit("a")
    case.submit("b")
    assert [e.job_id for e in case.fail("a")] == ["b"]
    deferred = only(case.give(RetryScheduled(job_id="a", attempt=2, not_before_s=5.0, reason=SAID)), QuotaDeferred)
    assert (deferred.attempt, deferred.reason.code) == (2, PendingReason.BACKOFF)
    assert case.replica.next_wakeup == 5.0
    late = only(case.wake(), QuotaDeferred)
    assert late.reason.code == PendingReason.EXCEEDS_QUOTA
    case.succeed("b")
    assert case.granted == [("a", 1), ("b", 1), ("a", 2)]


def test_a_job_that_is_cancelled_while_it_waits_is_forgotten():
    case = QuotaCase(limit=1)
    case.submit("a")
    case.submit("b")
    case.give(JobCancelled(job_id="b", attempt=0, reason=SAID))
    assert case.succeed("a") == []
    assert case.replica.state.claims == {}


def test_a_job_larger_than_a_lowered_limit_holds_no_other_up():
    case = QuotaCase(limit=8)
    case.submit("a", 8)
    case.submit("large", 8)
    case.limit(4)
    case.submit("small", 1)
    assert [e.job_id for e in case.succeed("a")] == ["small"]
