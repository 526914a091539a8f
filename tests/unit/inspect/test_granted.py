"""The conservation check sees grants beyond limits, and GPUs that are given back without cause."""

from __future__ import annotations

from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.gateway import NodeDrainRequested, TenantConfigured
from libs.contracts.placement import (
    AttemptFailed,
    JobPlaced,
    JobQueued,
    JobSucceeded,
    NodeCordoned,
    NodeReturned,
    UpgradeWithdrawn,
)
from libs.contracts.quota import JobUpgraded, QuotaGranted, QuotaReclaimed, Victim
from libs.contracts.reasons import Reason
from libs.inspect.granted import Granted
from libs.testing.core_case import arrival, node

SAID = Reason(code="Test", message="said by the test")


def granted(job_id: str, gpus: int = 1, share: str = "borrowed", tenant: str = "a", attempt: int = 1) -> QuotaGranted:
    return QuotaGranted(
        job_id=job_id, attempt=attempt, tenant=tenant, gpus=gpus, share=share, gpu_type="v100", reason=SAID
    )


def reclaimed(job_id: str) -> QuotaReclaimed:
    victim = Victim(job_id=job_id, attempt=1, tenant="a", gpus=1, lost_gpu_s=0.0)
    return QuotaReclaimed(
        job_id="owner",
        tenant="b",
        gpu_type="v100",
        short_gpus=1,
        in_use_ratio=1.0,
        victims=[victim],
        lost_gpu_s=0.0,
        reason=SAID,
    )


def placed(job_id: str) -> JobPlaced:
    gang = [TaskPlacement(node_id="n1", gpu_indices=[0], first_rank=0)]
    return JobPlaced(job_id=job_id, attempt=2, gang=gang, reason=SAID)


def returned(job_id: str) -> JobQueued:
    return JobQueued(job_id=job_id, attempt=2, reason=SAID, returns_to_quota=True)


def arrivals(*jobs: str, tenant: str = "a") -> list[Event]:
    return [arrival(job_id, tenant=tenant, user="ann") for job_id in jobs]


def wrongs(*events: Event) -> list[str]:
    found: list[str] = []
    books = Granted(found.append)
    for offset, event in enumerate(events):
        books.take(event, offset, offset - 1)
    return found


def test_more_than_the_cell_has():
    events = [node("n1", 2), *arrivals("x", "y"), granted("x", 2)]
    assert wrongs(*events) == []
    assert wrongs(*events, granted("y")) == ["3 GPUs of type v100 are granted with that to job y, and 2 can be used"]
    assert wrongs(*events, granted("y", share="")) == [], "without guarantees more may be granted"


def test_more_than_a_tenant_and_those_below_it_may_have():
    tree = [
        TenantConfigured(tenant="top", gpu_limit=2, requested_by="op"),
        TenantConfigured(tenant="a", gpu_limit=None, parent="top", requested_by="op"),
    ]
    events = [node("n1", 8), *tree, *arrivals("x", "y"), granted("x", 2), granted("y")]
    assert wrongs(*events) == ["tenant top has 3 GPUs granted, and may have 2"]


def test_more_than_a_user_may_have():
    tenant = TenantConfigured(tenant="a", gpu_limit=None, per_user={"any": 1}, requested_by="op")
    events = [node("n1", 8), tenant, *arrivals("x", "y"), granted("x"), granted("y")]
    assert wrongs(*events) == ["user ann of tenant a has 2 GPUs granted, and may have 1"]


def test_a_victim_had_borrowed():
    events = [node("n1", 8), *arrivals("x"), granted("x", share="guaranteed"), reclaimed("x")]
    assert wrongs(*events) == ["job x is to give back GPUs within a guarantee of "]


def test_a_victim_is_placed_after_quota_has_granted_it_something():
    events = [node("n1", 8), *arrivals("x"), granted("x"), reclaimed("x"), returned("x")]
    assert wrongs(*events, granted("x", attempt=2), placed("x")) == []
    assert wrongs(*events, placed("x")) == [
        "job x is placed, and quota has not granted it anything since it gave GPUs back"
    ]
    assert wrongs(*events[:3], returned("x")) == ["job x gives GPUs back that were not reclaimed"]


def test_what_cannot_be_used_counts_neither_for_the_cell_nor_for_the_job_that_holds_it():
    sick = NodeCordoned(node_id="n1", gpu_indices=[0], reason=SAID)
    first = [node("n1", 3), *arrivals("x", "y", "z"), granted("x")]
    assert wrongs(*first, sick, granted("y", 2)) == [
        "3 GPUs of type v100 are granted with that to job y, and 2 can be used"
    ]
    assert wrongs(*first, placed("x"), sick, granted("y", 2)) == [], "its GPU is not among the two"
    back = NodeReturned(node_id="n1", gpu_indices=[0], reason=SAID)
    assert wrongs(*first, sick, back, granted("y", 2)) == []
    drained = NodeDrainRequested(node_id="n1", note="", requested_by="op")
    assert len(wrongs(*first, drained, granted("y"))) == 1


def test_a_decision_is_held_against_what_was_known_when_it_was_made():
    events = [node("n1", 1), *arrivals("x"), granted("x"), NodeCordoned(node_id="n1", gpu_indices=[0], reason=SAID)]
    found: list[str] = []
    books = Granted(found.append)
    for offset, event in enumerate([events[0], events[1], events[3], events[2]]):
        books.take(event, offset, 1)
    assert found == []


def test_a_grant_that_crosses_with_the_end_of_its_job_or_attempt_counts_for_nothing():
    events = [node("n1", 2), *arrivals("x", "y"), granted("x", 2)]
    done = JobSucceeded(job_id="x", attempt=1)
    assert wrongs(*events, done, granted("x", 2), granted("y", 2)) == []
    failed = AttemptFailed(job_id="x", attempt=1, node_id="n1", exit_code=1, signal=None, outcome="exited", reason=SAID)
    assert wrongs(*events, failed, granted("x", 2), granted("y", 2)) == []
    assert len(wrongs(*events, failed, granted("x", 2, attempt=2), granted("y", 2))) == 1


def test_an_upgrade_that_crosses_with_its_withdrawal_counts_for_nothing():
    """Quota decided it before it had read that the job stays a guest, and granted the room to another one then."""
    found: list[str] = []
    books = Granted(found.append)
    upgraded = JobUpgraded(job_id="x", attempt=1, tenant="a", gpus=1, reason=SAID)
    withdrawn = UpgradeWithdrawn(job_id="x", attempt=1, reason=SAID)
    limit = TenantConfigured(tenant="a", gpu_limit=1, requested_by="op")
    for offset, (event, cause) in enumerate(
        [
            *((each, -1) for each in (node("n1", 2), limit, *arrivals("x", "y"))),
            (withdrawn, 3),
            (upgraded, 3),
            (granted("y"), 4),
        ]
    ):
        books.take(event, offset, cause)
    assert found == []
