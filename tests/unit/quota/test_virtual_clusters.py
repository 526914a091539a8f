"""Guarantees, borrowing, reclaim, the tree of tenants, limits per type and per user."""

from __future__ import annotations

from typing import Any

import pytest

from libs.contracts.admission import JobAdmitted
from libs.contracts.agent import NodeLeaving, NodeLeft
from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.gateway import NodeDrainRequested, SettingChanged, TenantConfigured
from libs.contracts.jobs import GpuRequest
from libs.contracts.placement import AttemptFailed, JobPlaced, JobQueued, JobSucceeded
from libs.contracts.quota import QuotaDeferred, QuotaGranted, QuotaReclaimed
from libs.contracts.reasons import PendingReason, Reason
from libs.testing.core_case import CoreCase, arrival, node, only
from services.quota.service import SERVICE

SAID = Reason(code="Test", message="said by the test")


class Clusters(CoreCase):
    """A cell of v100 servers with 4 GPUs each, and tenants with guarantees of `v100`."""

    def __init__(self, gpus: int = 8, /, **guarantees: int) -> None:
        super().__init__(SERVICE)
        for number in range(gpus // 4):
            self.give(node(f"n{number}", 4))
        for name, guaranteed in guarantees.items():
            self.tenant(name, guarantees={"v100": guaranteed} if guaranteed else {})
        self._next = 0

    def tenant(self, name: str, **share: Any) -> list[Event]:
        fields = {"gpu_limit": None, **share}
        return self.give(TenantConfigured(tenant=name, requested_by="op", **fields))

    def submit(self, job_id: str, gpus: int | GpuRequest, tenant: str, **spec: Any) -> list[Event]:
        self.give(arrival(job_id, gpus, tenant=tenant, **spec))
        return self.give(JobAdmitted(job_id=job_id, reason=SAID))

    def place(self, job_id: str, gpus: int = 1, node_id: str = "n0", attempt: int = 1, **at: float) -> list[Event]:
        gang = [TaskPlacement(node_id=node_id, gpu_indices=list(range(gpus)), first_rank=0)]
        return self.give(JobPlaced(job_id=job_id, attempt=attempt, gang=gang, reason=SAID), **at)

    def run(self, job_id: str, gpus: int, tenant: str, *, at: float = 0.0, **spec: Any) -> None:
        """The job is granted, and placed on the nodes in turn."""
        granted = only(self.submit(job_id, gpus, tenant, **spec), QuotaGranted)
        assert granted.job_id == job_id
        self.place(job_id, gpus, f"n{self._next % 2}", at=at)
        self._next += 1

    def leave(self, job_id: str, attempt: int = 2) -> list[Event]:
        """A victim has left its GPUs."""
        return self.give(JobQueued(job_id=job_id, attempt=attempt, reason=SAID, returns_to_quota=True))

    def succeed(self, job_id: str) -> list[Event]:
        return self.give(JobSucceeded(job_id=job_id, attempt=1))

    def victims(self) -> list[list[str]]:
        return [[victim.job_id for victim in event.victims] for event in self.decided(QuotaReclaimed)]


def full_of_borrowers(*, restartable: bool = False) -> Clusters:
    """Tenant a has its 4 GPUs and has borrowed the 4 of tenant b."""
    case = Clusters(a=4, b=4)
    case.run("own", 4, "a")
    for number in range(4):
        case.run(f"lent-{number}", 1, "a", at=10.0 * number, restartable=restartable)
    return case


def test_an_unused_guarantee_is_lent_at_once():
    case = Clusters(a=4, b=4)
    assert only(case.submit("own", 4, "a"), QuotaGranted).share == "guaranteed"
    lent = only(case.submit("more", 3, "a"), QuotaGranted)
    assert (lent.share, lent.guarantee_of, lent.borrowed_from, lent.gpu_type) == ("borrowed", "", {"b": 3}, "v100")


def test_no_more_is_lent_than_the_cell_has():
    case = full_of_borrowers()
    deferred = only(case.submit("more", 1, "a"), QuotaDeferred)
    assert (deferred.reason.code, deferred.share) == (PendingReason.FAIR_SHARE, "borrowed")
    assert [event.job_id for event in case.succeed("lent-0")] == ["more"]


def test_gpus_of_no_guarantee_are_lent_first():
    case = Clusters(8, a=2, b=2)
    case.submit("own", 2, "a")
    assert only(case.submit("more", 4, "a"), QuotaGranted).borrowed_from == {}


def test_a_guarantee_is_given_back_by_the_borrower_that_loses_least():
    case = full_of_borrowers()
    case.now_s = 40.0
    said = case.submit("b1", 1, "b")
    reclaimed = only(said, QuotaReclaimed)
    assert [(v.job_id, v.lost_gpu_s) for v in reclaimed.victims] == [("lent-3", 10.0)]
    assert (reclaimed.job_id, reclaimed.short_gpus, reclaimed.in_use_ratio) == ("b1", 1, 1.0)
    assert only(said, QuotaDeferred).reason.code == PendingReason.WAITING_FOR_VICTIMS
    granted = only(case.leave("lent-3"), QuotaGranted)
    assert (granted.job_id, granted.share, granted.guarantee_of) == ("b1", "guaranteed", "b")
    assert only(case.all[-1:], QuotaDeferred).job_id == "lent-3", "it waits for quota again"
    assert [(e.job_id, e.attempt) for e in case.succeed("b1")] == [("lent-3", 2)]


def test_jobs_that_save_their_work_go_before_younger_ones_that_do_not():
    case = Clusters(a=4, b=4)
    case.run("own", 4, "a")
    case.run("old", 2, "a", at=1.0, restartable=True)
    case.run("young", 2, "a", at=50.0)
    case.now_s = 60.0
    case.submit("b1", 2, "b")
    assert case.victims() == [["old"]]


def test_no_more_gangs_are_taken_than_needed():
    case = Clusters(a=4, b=4)
    case.run("own", 4, "a")
    case.run("one", 1, "a", at=90.0)
    case.run("three", 3, "a", at=10.0)
    case.now_s = 100.0
    case.submit("b1", 3, "b")
    assert case.victims() == [["three"]], "the first alone would have been too few, the second alone is enough"


def test_while_few_gpus_are_in_use_a_guarantee_waits_for_ends():
    case = Clusters(12, a=6, b=6)
    case.give(SettingChanged(service="quota", name="reclaim_above", value=0.9, requested_by="op"))
    case.submit("own", 4, "a")
    case.place("own", 4, "n0")
    case.submit("lent", 4, "a")
    case.place("lent", 4, "n1")
    case.submit("b1", 1, "b")
    deferred = only(case.submit("b2", 5, "b"), QuotaDeferred)
    assert (deferred.reason.code, deferred.share) == (PendingReason.INSUFFICIENT_GPUS, "guaranteed")
    assert case.victims() == []
    assert [event.job_id for event in case.succeed("lent")] == ["b2"]


def test_reclaim_follows_when_more_gpus_are_in_use():
    case = Clusters(a=4, b=4)
    case.submit("own", 4, "a")
    case.submit("lent", 4, "a")
    case.place("lent", 4, "n1")
    case.submit("b1", 1, "b")
    assert case.victims() == [], "half of the GPUs are in use"
    case.place("own", 4, "n0")
    assert case.victims() == [["lent"]]


def test_a_borrower_without_gpus_gives_its_turn_back_at_any_time():
    case = Clusters(a=4, b=4)
    case.submit("own", 4, "a")
    case.submit("lent", 4, "a")
    case.submit("b1", 1, "b")
    assert case.victims() == [["lent"]]
    assert case.decided(QuotaReclaimed)[0].victims[0].placed_s is None


def test_a_victim_is_none_again_until_it_has_rested():
    case = Clusters(a=4, b=4)
    case.give(SettingChanged(service="quota", name="reclaim_rest_s", value=100.0, requested_by="op"))
    case.run("own", 4, "a")
    case.run("lent", 4, "a", at=1.0)
    case.submit("b1", 1, "b")
    case.leave("lent")
    case.succeed("b1")
    case.place("lent", 4, "n1", attempt=2, at=20.0)
    said = case.submit("b2", 1, "b")
    assert only(said, QuotaDeferred).reason.code == PendingReason.INSUFFICIENT_GPUS
    assert case.replica.next_wakeup == 101.0
    assert only(case.wake(), QuotaReclaimed).job_id == "b2"
    assert case.victims() == [["lent"], ["lent"]]


def test_what_is_within_the_guarantee_is_never_taken():
    case = Clusters(a=8, b=0)
    case.run("own", 4, "a")
    case.run("own-2", 4, "a")
    case.submit("b1", 1, "b")
    assert case.victims() == []
    assert only(case.all[-1:], QuotaDeferred).reason.code == PendingReason.FAIR_SHARE


def test_a_borrowed_job_is_within_the_guarantee_as_soon_as_it_has_room():
    case = full_of_borrowers()
    case.succeed("own")
    case.submit("b1", 4, "b")
    assert case.victims() == [], "the four that were borrowed are within the guarantee now"
    assert [e.job_id for e in case.decided(QuotaGranted)][-1] == "b1"


def test_several_jobs_reclaim_at_once():
    case = full_of_borrowers()
    for number in range(3):
        case.submit(f"b{number}", 1, "b")
    assert [len(victims) for victims in case.victims()] == [1, 1, 1]
    assert len({victim for victims in case.victims() for victim in victims}) == 3


def test_a_victim_that_fails_meanwhile_gives_its_gpus_back_all_the_same():
    case = full_of_borrowers()
    case.submit("b1", 1, "b")
    [[victim]] = case.victims()
    failed = AttemptFailed(
        job_id=victim, attempt=1, node_id="n1", exit_code=1, signal=None, outcome="exited", reason=SAID
    )
    assert [event.job_id for event in case.give(failed)] == ["b1"]


def test_borrowers_are_served_by_weight():
    case = Clusters(8, a=0, b=0, owner=8)
    case.tenant("b", weight=3.0)
    case.submit("all", 8, "owner")
    for number in range(6):
        case.submit(f"a{number}", 1, "a")
        case.submit(f"b{number}", 1, "b")
    case.succeed("all")
    got = [event.tenant for event in case.decided(QuotaGranted)][1:]
    assert (got.count("a"), got.count("b")) == (2, 6)


def test_a_gang_that_waits_for_borrowers_alone_is_passed_by_none():
    case = Clusters(8, a=0, b=0, owner=4)
    case.submit("a1", 6, "a")
    case.submit("gang", 8, "b")
    case.submit("small", 1, "a")
    assert [event.job_id for event in case.decided(QuotaGranted)] == ["a1"]
    assert [event.job_id for event in case.succeed("a1")] == ["gang"]


def test_a_gang_that_would_not_fit_anyway_is_passed():
    case = Clusters(8, a=0, b=0, owner=4)
    case.submit("own", 4, "owner")
    case.submit("gang", 8, "b")
    assert only(case.submit("small", 1, "a"), QuotaGranted).share == "borrowed"


def test_a_job_that_waits_behind_another_of_its_tenant_names_it():
    case = Clusters(8, a=4, b=2)
    case.submit("own", 4, "a")
    first = only(case.submit("gang", 5, "a"), QuotaDeferred).reason
    assert first.message.endswith("of the rest too few are free for the 5 that the job asks for")
    behind = only(case.submit("small", 1, "a"), QuotaDeferred).reason
    assert (behind.code, behind.message) == (first.code, f"behind gang of its tenant: {first.message}")


def test_what_is_not_lent_stays_free():
    case = Clusters(8, a=4, b=0)
    case.tenant("a", guarantees={"v100": 4}, lend=False)
    case.submit("b1", 4, "b")
    assert only(case.submit("b2", 1, "b"), QuotaDeferred).reason.code == PendingReason.FAIR_SHARE
    assert only(case.submit("own", 4, "a"), QuotaGranted).share == "guaranteed"


def test_a_tenant_that_does_not_borrow_waits_for_its_own():
    case = Clusters(8, a=4, b=4)
    case.tenant("a", guarantees={"v100": 4}, borrow=False)
    case.submit("a1", 4, "a")
    assert only(case.submit("a2", 1, "a"), QuotaDeferred).reason.code == PendingReason.FAIR_SHARE
    assert [event.job_id for event in case.succeed("a1")] == ["a2"]


def test_a_tenant_uses_what_the_one_above_it_has_left():
    case = Clusters(12, research=8)
    case.tenant("vision", parent="research", guarantees={"v100": 4})
    case.tenant("speech", parent="research")
    assert only(case.submit("v1", 4, "vision"), QuotaGranted).guarantee_of == "vision"
    assert only(case.submit("s1", 3, "speech"), QuotaGranted).guarantee_of == "research"
    assert only(case.submit("s2", 2, "speech"), QuotaGranted).share == "borrowed"


def test_what_the_tenant_above_has_left_goes_by_arrival():
    """Tenant a comes before tenant b in the list of tenants, and its job behind that of b."""
    case = Clusters(above=8)
    case.tenant("a", parent="above", guarantees={"v100": 1})
    case.tenant("b", parent="above")
    case.submit("lent-6", 6, "guest")
    case.submit("lent-1", 1, "guest")
    for job_id, gpus in (("lent-6", 3), ("lent-1", 1)):
        case.place(job_id, gpus)
    assert only(case.submit("first", 2, "b"), QuotaDeferred).share == "guaranteed"
    case.submit("second", 7, "a")
    granted = only(case.succeed("lent-1"), QuotaGranted)
    assert (granted.job_id, granted.guarantee_of) == ("first", "above")


def test_a_limit_counts_a_tenant_and_those_below_it():
    case = Clusters(12, other=4)
    case.tenant("research", gpu_limit=5)
    case.tenant("vision", parent="research")
    case.submit("r1", 3, "research")
    deferred = only(case.submit("v1", 3, "vision"), QuotaDeferred)
    assert deferred.reason.code == PendingReason.EXCEEDS_QUOTA
    assert deferred.reason.numbers == {"used_gpus": 3, "limit_gpus": 5, "gpus": 3}
    assert [event.job_id for event in case.succeed("r1")] == ["v1"]


@pytest.mark.parametrize("guaranteed", [0, 4])
def test_a_user_has_a_limit_and_others_pass(guaranteed: int):
    case = Clusters(12, a=guaranteed)
    case.tenant("a", guarantees={"v100": guaranteed} if guaranteed else {}, per_user={"v100": 2})
    case.submit("ann-1", 2, "a", user="ann")
    waits = only(case.submit("ann-2", 1, "a", user="ann"), QuotaDeferred)
    assert waits.reason.code == PendingReason.EXCEEDS_QUOTA
    assert "user ann of tenant a uses 2 of at most 2 GPUs of type v100" in waits.reason.message
    assert only(case.submit("bob-1", 2, "a", user="bob"), QuotaGranted).job_id == "bob-1"
    assert [event.job_id for event in case.succeed("ann-1")] == ["ann-2"]


def test_a_limit_of_a_gpu_type_leaves_the_others():
    case = Clusters(8)
    case.give(node("k", 4, gpu_type="k80"))
    case.tenant("a", limits={"v100": 2})
    case.submit("v1", GpuRequest(count=2, types=["v100"]), "a")
    assert only(case.submit("any", 1, "a"), QuotaGranted).gpu_type == "k80"
    assert only(case.submit("v2", GpuRequest(count=1, types=["v100"]), "a"), QuotaDeferred)


def test_a_job_counts_for_the_type_that_it_gets():
    case = Clusters(4, a=4)
    case.give(node("k", 4, gpu_type="k80"))
    granted = only(case.submit("a1", 2, "a"), QuotaGranted)
    assert (granted.share, granted.gpu_type) == ("guaranteed", "v100")
    case.place("a1", 2, "k")
    assert only(case.submit("a2", 4, "a"), QuotaGranted).share == "guaranteed", "nothing of the guarantee is taken"


def test_a_change_takes_effect_at_the_next_decision():
    case = full_of_borrowers()
    said = case.tenant("b", guarantees={"v100": 4}, weight=2.0)
    assert said == []
    case.submit("b1", 4, "b")
    assert len(case.victims()[0]) == 4
    assert case.tenant("a", guarantees={"v100": 2}) == []
    assert case.replica.state.tenants["a"].guaranteed_gpus == 0, "the gang of four does not fit into two"


@pytest.mark.parametrize("cls", [NodeLeft, NodeLeaving])
def test_borrowers_give_way_to_a_job_that_has_lost_its_node(cls: type[NodeLeft] | type[NodeLeaving]):
    case = Clusters(8, a=4, b=0)
    case.run("lent", 4, "b")
    case.run("own", 4, "a")
    case.give(cls(node_id="n1", incarnation=1, note=""))
    assert case.victims() == [], "the job is still to leave the node"
    case.give(JobQueued(job_id="own", attempt=2, reason=SAID))
    assert [(e.job_id, e.victims[0].job_id) for e in case.decided(QuotaReclaimed)] == [("own", "lent")]


def test_a_drained_node_takes_nothing_new():
    case = Clusters(8, a=4, b=4)
    case.give(NodeDrainRequested(node_id="n1", note="", requested_by="op"))
    assert only(case.submit("a1", 4, "a"), QuotaGranted)
    assert only(case.submit("b1", 1, "b"), QuotaDeferred).reason.code == PendingReason.INSUFFICIENT_GPUS


def test_what_was_granted_before_types_counted_counts_where_there_is_room():
    case = Clusters(0)
    case.give(node("k", 1, gpu_type="k80"))
    case.give(node("v", 4))
    case.submit("early", 4, "a")
    case.tenant("b", guarantees={"v100": 2})
    assert only(case.submit("b1", 2, "b"), QuotaReclaimed).victims[0].job_id == "early"


def test_an_earlier_job_of_the_same_tenant_is_no_victim():
    case = Clusters(8, a=5)
    case.run("own", 4, "a")
    case.run("lent", 4, "a")
    assert only(case.submit("small", 1, "a"), QuotaDeferred).reason.code == PendingReason.INSUFFICIENT_GPUS
    assert case.victims() == [], "it would stand before the other one again"


def test_a_job_behind_one_that_borrows_at_last_is_within_the_guarantee_all_the_same():
    case = Clusters(8, a=4, b=0)
    case.submit("own", 1, "a")
    case.submit("lent", 5, "b")
    case.submit("head", 4, "a")
    case.submit("next", 2, "a")
    assert case.succeed("lent") == case.decided(QuotaGranted)[-2:]
    assert [(event.job_id, event.share) for event in case.decided(QuotaGranted)[-2:]] == [
        ("head", "borrowed"),
        ("next", "guaranteed"),
    ]


def test_a_job_behind_one_that_borrows_at_last_has_victims():
    case = Clusters(8, a=4, b=0)
    case.give(SettingChanged(service="quota", name="reclaim_above", value=0.1, requested_by="op"))
    case.submit("own", 1, "a")
    case.run("small", 3, "b")
    case.submit("large", 4, "b")
    case.submit("head", 4, "a")
    case.submit("next", 2, "a")
    case.succeed("large")
    assert case.decided(QuotaGranted)[-1].job_id == "head"
    assert [(event.job_id, event.victims[0].job_id) for event in case.decided(QuotaReclaimed)] == [("next", "small")]


def test_a_job_behind_two_is_within_the_guarantee_when_the_first_has_borrowed():
    """The second could never be backed, and so holds none up."""
    case = Clusters(b=2)
    case.run("lent-4", 4, "guest")
    case.run("lent-3", 3, "guest")
    case.run("own", 1, "b")
    case.submit("borrows", 2, "b")
    case.submit("large", 3, "b")
    case.submit("last", 1, "b")
    granted = [event for event in case.succeed("lent-4") if isinstance(event, QuotaGranted)]
    assert [(event.job_id, event.guarantee_of) for event in granted] == [("borrows", ""), ("last", "b")]
