"""Guaranteed, opportunistic and automatic jobs: quota, estimates, guests that are upgraded."""

import pytest

from libs.contracts.admission import JobAdmitted
from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.gateway import PolicyChanged, SettingChanged, TenantConfigured
from libs.contracts.introspection import JobProfiled
from libs.contracts.jobs import JobClass
from libs.contracts.placement import AttemptFailed, JobPlaced, JobSucceeded, UpgradeOffered, UpgradeWithdrawn
from libs.contracts.quota import JobUpgraded, OpportunityGranted, QuotaDeferred, QuotaGranted, UpgradeDeclined
from libs.contracts.reasons import Reason
from libs.testing.core_case import CoreCase, arrival, only
from services.quota.service import SERVICE

SAID = Reason(code="Test", message="said by the test")


class ClassesCase(CoreCase):
    """A tenant with a quota, in a cell with guests unless said otherwise."""

    def __init__(self, quota: int | None, guests: str = "antman") -> None:
        super().__init__(SERVICE)
        self.give(PolicyChanged(policy="backfill", requested_by="op", guests=guests))
        self.quota(quota)

    def quota(self, gpus: int | None) -> list[Event]:
        return self.give(TenantConfigured(tenant="default", gpu_limit=gpus, requested_by="op"))

    def submit(self, job_id: str, gpus: int = 1, job_class: JobClass = JobClass.AUTOMATIC, **spec: object):
        self.give(arrival(job_id, gpus, job_class=job_class, **spec))
        return self.give(JobAdmitted(job_id=job_id, reason=SAID))

    def place(self, job_id: str, at: float) -> None:
        gang = [TaskPlacement(node_id="n1", gpu_indices=[0], first_rank=0)]
        self.give(JobPlaced(job_id=job_id, attempt=1, gang=gang, reason=SAID), at=at)

    def profile(self, job_id: str, done: int, rate_per_s: float) -> None:
        self.give(
            JobProfiled(
                job_id=job_id,
                attempt=1,
                window_start_s=0.0,
                window_s=5.0,
                minibatches_total=done,
                rate_per_s=rate_per_s,
                loss=None,
                memory_peak_bytes=0,
                memory_min_bytes=0,
            )
        )

    def run(self, job_id: str, gpus: int, at: float, **spec: object) -> None:
        only(self.submit(job_id, gpus, **spec), QuotaGranted)
        self.place(job_id, at)

    def succeed(self, job_id: str, at: float | None = None) -> list[Event]:
        return self.give(JobSucceeded(job_id=job_id, attempt=1), at=at)

    def offer(self, job_id: str, gpus: int) -> list[Event]:
        return self.give(
            UpgradeOffered(job_id=job_id, attempt=1, tenant="default", gpus=gpus, since_s=0.0, reason=SAID)
        )

    def withdraw(self, job_id: str) -> list[Event]:
        return self.give(UpgradeWithdrawn(job_id=job_id, attempt=1, reason=SAID))

    def guest(self, job_id: str, gpus: int) -> None:
        only(self.submit(job_id, gpus, JobClass.OPPORTUNISTIC), OpportunityGranted)


def test_an_automatic_job_within_quota_is_guaranteed():
    case = ClassesCase(quota=2)
    assert only(case.submit("a", 2), QuotaGranted).job_class == "guaranteed"


def test_an_opportunistic_job_uses_no_quota_however_much_there_is():
    case = ClassesCase(quota=4, guests="none")
    assert only(case.submit("a", 4, JobClass.OPPORTUNISTIC), OpportunityGranted).reason.code == "AskedFor"
    assert only(case.submit("b", 4), QuotaGranted).gpus == 4


def test_an_opportunistic_job_is_not_held_up_by_guaranteed_ones():
    case = ClassesCase(quota=1)
    case.submit("a", 1, JobClass.GUARANTEED)
    case.submit("b", 1, JobClass.GUARANTEED)
    assert only(case.submit("c", 1, JobClass.OPPORTUNISTIC), OpportunityGranted).job_id == "c"


def test_without_guests_an_automatic_job_waits_as_a_guaranteed_one():
    case = ClassesCase(quota=1, guests="none")
    case.run("a", 1, at=0.0, time_limit_s=1000.0)
    deferred = only(case.submit("b"), QuotaDeferred)
    assert (deferred.expected_wait_s, deferred.basis) == (None, "")
    assert case.replica.next_wakeup is None


@pytest.mark.parametrize(
    ("spec", "profile", "at", "wait_s", "basis"),
    [
        ({"total_steps": 500.0}, (100, 2.0), 50.0, 200.0, "remaining_work"),
        ({"total_steps": 500.0, "time_limit_s": 900.0}, None, 50.0, 850.0, "time_limit"),
        ({}, None, 70.0, 70.0, "time_so_far"),
    ],
)
def test_a_job_that_would_wait_long_is_opportunistic_at_once(spec, profile, at, wait_s, basis):
    case = ClassesCase(quota=1)
    case.run("a", 1, at=0.0, **spec)
    if profile is not None:
        case.profile("a", *profile)
    case.now_s = at
    granted = only(case.submit("b"), OpportunityGranted)
    assert (granted.expected_wait_s, granted.basis, granted.threshold_s) == (wait_s, basis, 60.0)
    assert granted.reason.code == "LongWait"


def test_the_rest_of_a_life_is_the_mean_rest_of_those_that_lived_as_long():
    case = ClassesCase(quota=1)
    for job_id, ran_s in (("x", 10.0), ("y", 200.0), ("z", 300.0)):
        begun_s = case.now_s
        case.run(job_id, 1, at=begun_s)
        case.succeed(job_id, at=begun_s + ran_s)
    begun_s = case.now_s
    case.run("a", 1, at=begun_s)
    case.now_s = begun_s + 100.0
    granted = only(case.submit("b"), OpportunityGranted)
    assert (granted.basis, granted.expected_wait_s) == ("residual_life", 150.0)


def test_a_job_that_would_not_wait_long_waits_and_says_how_long():
    case = ClassesCase(quota=1)
    case.run("a", 1, at=0.0, time_limit_s=40.0)
    deferred = only(case.submit("b"), QuotaDeferred)
    assert (deferred.expected_wait_s, deferred.basis) == (40.0, "time_limit")
    assert [e.job_id for e in case.succeed("a", at=30.0)] == ["b"]


def test_a_wait_that_lasts_longer_than_foreseen_ends_at_the_threshold():
    case = ClassesCase(quota=1)
    case.run("a", 1, at=0.0, time_limit_s=40.0)
    case.submit("b")
    assert case.replica.next_wakeup == 60.0
    assert only(case.wake(), OpportunityGranted).job_id == "b"
    assert case.replica.next_wakeup is None


def test_the_threshold_is_a_setting():
    case = ClassesCase(quota=1)
    case.run("a", 1, at=0.0, time_limit_s=100.0)
    case.give(SettingChanged(service="quota", name="opportunistic_after_s", value=200.0, requested_by="op"))
    only(case.submit("b"), QuotaDeferred)
    lowered = SettingChanged(service="quota", name="opportunistic_after_s", value=10.0, requested_by="op")
    assert only(case.give(lowered), OpportunityGranted).threshold_s == 10.0


def test_jobs_ahead_are_served_first():
    case = ClassesCase(quota=2)
    case.run("a", 1, at=0.0, time_limit_s=20.0)
    case.run("b", 1, at=0.0, time_limit_s=90.0)
    case.submit("first", 1, JobClass.GUARANTEED)
    assert only(case.submit("second", 1), OpportunityGranted).expected_wait_s == 90.0


def test_a_job_that_becomes_a_guest_holds_no_other_up():
    case = ClassesCase(quota=2)
    case.run("a", 1, at=0.0, time_limit_s=20.0)
    case.run("b", 1, at=0.0, time_limit_s=90.0)
    assert only(case.submit("wide", 2), OpportunityGranted).expected_wait_s == 90.0
    assert only(case.submit("small", 1), QuotaDeferred).expected_wait_s == 20.0


def test_an_automatic_job_larger_than_the_quota_is_opportunistic_for_good():
    case = ClassesCase(quota=2)
    granted = only(case.submit("wide", 4), OpportunityGranted)
    assert (granted.reason.code, granted.reason.numbers) == ("LargerThanQuota", {"gpus": 4, "limit_gpus": 2})
    assert only(case.offer("wide", 4), UpgradeDeclined).reason.numbers["limit_gpus"] == 2


def test_switching_guests_on_lets_waiting_jobs_go():
    case = ClassesCase(quota=1, guests="none")
    case.run("a", 1, at=0.0, time_limit_s=1000.0)
    case.submit("b")
    switched = case.give(PolicyChanged(policy="backfill", requested_by="op", guests="antman"))
    assert only(switched, OpportunityGranted).job_id == "b"


def test_a_guest_is_upgraded_where_there_is_room():
    case = ClassesCase(quota=4)
    case.guest("a", 3)
    upgraded = only(case.offer("a", 3), JobUpgraded)
    assert (upgraded.gpus, upgraded.reason.numbers) == (3, {"used_gpus": 0, "gpus": 3, "limit_gpus": 4})
    only(case.submit("b", 2, JobClass.GUARANTEED), QuotaDeferred)


def test_room_goes_to_the_oldest_guest_before_anything_new():
    case = ClassesCase(quota=2)
    case.run("a", 2, at=0.0)
    for job_id in ("old", "young"):
        case.guest(job_id, 1)
    case.submit("waits", 1, JobClass.GUARANTEED)
    assert only(case.offer("young", 1), UpgradeDeclined).reason.code == "ExceedsQuota"
    only(case.offer("old", 1), UpgradeDeclined)
    said = case.succeed("a", at=5.0)
    assert [(type(e), e.job_id) for e in said] == [(JobUpgraded, "old"), (JobUpgraded, "young")]


def test_no_upgrade_overtakes_an_older_one():
    case = ClassesCase(quota=2)
    case.run("a", 1, at=0.0)
    case.guest("old", 2)
    case.guest("young", 1)
    only(case.offer("old", 2), UpgradeDeclined)
    assert only(case.offer("young", 1), UpgradeDeclined).reason.code == "OlderGoesFirst"
    assert [e.job_id for e in case.withdraw("old")] == ["young"]


def test_an_upgrade_that_comes_too_late_counts_for_nothing():
    case = ClassesCase(quota=1)
    case.guest("guest", 1)
    only(case.offer("guest", 1), JobUpgraded)
    case.submit("waits", 1, JobClass.GUARANTEED)
    assert only(case.withdraw("guest"), QuotaGranted).job_id == "waits"


def test_a_guest_that_fails_asks_anew():
    case = ClassesCase(quota=1)
    case.guest("guest", 1)
    case.offer("guest", 1)
    case.give(
        AttemptFailed(job_id="guest", attempt=1, node_id="n1", exit_code=1, signal=None, outcome="exited", reason=SAID)
    )
    assert only(case.submit("b", 1, JobClass.GUARANTEED), QuotaGranted).job_id == "b"
