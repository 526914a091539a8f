"""Shares of what can be used of the cell: cordoned GPUs, guarantees that together are more than is left."""

from __future__ import annotations

import pytest

from libs.contracts.agent import NodeLeft
from libs.contracts.base import Event
from libs.contracts.features import TRIALS, pool
from libs.contracts.gateway import NodeDrainRequested, NodeUndrainRequested, SettingChanged
from libs.contracts.introspection import NodeLost
from libs.contracts.placement import JobQueued, NodeCordoned, NodeReturned
from libs.contracts.quota import QuotaDeferred, QuotaGranted, QuotaReclaimed
from libs.contracts.reasons import PendingReason
from libs.testing.core_case import node, only
from tests.unit.quota.test_virtual_clusters import SAID, Clusters


def cordoned(node_id: str, *indices: int) -> NodeCordoned:
    return NodeCordoned(node_id=node_id, gpu_indices=list(indices), reason=SAID)


def returned(node_id: str, *indices: int) -> NodeReturned:
    return NodeReturned(node_id=node_id, gpu_indices=list(indices), reason=SAID)


def test_a_cordoned_gpu_is_neither_lent_nor_granted_until_it_is_returned():
    case = Clusters(8, a=4, b=4)
    assert case.give(cordoned("n1", 2, 3)) == []
    assert only(case.submit("own", 4, "a"), QuotaGranted)
    assert only(case.submit("lent", 3, "a"), QuotaDeferred).reason.code == PendingReason.FAIR_SHARE
    assert only(case.submit("b1", 2, "b"), QuotaGranted).share == "guaranteed"
    assert only(case.submit("b2", 2, "b"), QuotaDeferred).reason.code == PendingReason.INSUFFICIENT_GPUS
    assert only(case.give(returned("n1", 2, 3)), QuotaGranted).job_id == "b2"


def test_a_cordon_survives_a_new_start_of_the_agent():
    case = Clusters(4, a=4)
    case.give(cordoned("n0", 0))
    case.give(node("n0", 4, incarnation=2))
    assert only(case.submit("a1", 4, "a"), QuotaDeferred)
    assert only(case.give(returned("n0", 0)), QuotaGranted).job_id == "a1"


def test_a_cordon_takes_nothing_back_from_jobs_that_run():
    case = Clusters(8, a=4, b=4)
    case.run("own", 4, "a")
    case.run("lent", 4, "a")
    case.submit("waits", 1, "a")
    for node_id in ("n0", "n1"):
        assert case.give(cordoned(node_id, 0, 1)) == []
    assert case.victims() == []


def test_a_gpu_under_a_borrower_that_is_cordoned_comes_back_to_none():
    """A victim gives back what can be used of its GPUs; a borrower on cordoned GPUs alone is no victim."""
    case = Clusters(8, a=4, b=4)
    case.run("own", 4, "a")
    case.place(only(case.submit("broken", 1, "a"), QuotaGranted).job_id, 1, "n1", at=5.0)
    case.submit("sound", 2, "a")
    case.place("sound", 2, "n1", at=1.0)
    case.give(cordoned("n1", 0))
    case.succeed("sound")
    case.submit("sound-2", 3, "a")
    case.place("sound-2", 3, "n0", at=6.0)
    case.submit("b1", 1, "b")
    assert case.victims() == [["sound-2"]], "the youngest with least loss is on a cordoned GPU"


def test_a_job_larger_than_what_can_be_used_keeps_nothing_from_others():
    case = Clusters(8, a=8)
    case.give(cordoned("n1", 3))
    waits = only(case.submit("large", 8, "a"), QuotaDeferred)
    assert waits.reason.code == PendingReason.HEALTHY_GPUS_MISSING
    assert waits.reason.numbers == {"gpus": 8, "usable_gpus": 7}
    assert only(case.submit("small", 4, "a"), QuotaGranted).share == "guaranteed"
    assert only(case.give(returned("n1", 3)), QuotaDeferred).reason.code == PendingReason.FAIR_SHARE
    assert only(case.submit("next", 4, "a"), QuotaDeferred).job_id == "next", "it is not passed any more"
    assert [event.job_id for event in case.succeed("small")] == ["large"]


@pytest.mark.parametrize(
    "gone",
    [
        cordoned("n1", 0, 1, 2, 3),
        NodeLost(node_id="n1", incarnation=1, silent_s=30.0),
        NodeLeft(node_id="n1", incarnation=1, note=""),
        NodeDrainRequested(node_id="n1", note="", requested_by="op"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_guarantees_above_what_is_left_are_met_by_weight(gone: Event):
    case = Clusters(8, a=4)
    case.tenant("b", guarantees={"v100": 4}, weight=3.0)
    case.give(gone)
    case.submit("all", 4, "a")
    for number in range(4):
        case.submit(f"a{number}", 1, "a")
    for number in range(4):
        case.submit(f"b{number}", 1, "b")
    case.succeed("all")
    got = [event.tenant for event in case.decided(QuotaGranted)][1:]
    assert (got.count("a"), got.count("b")) == (1, 3)
    case.succeed("b0")
    assert case.decided(QuotaGranted)[-1].job_id == "b3", "and so it goes on"


def test_guarantees_that_can_all_be_met_are_met_by_arrival():
    case = Clusters(0, a=4)
    case.tenant("b", guarantees={"v100": 4}, weight=3.0)
    for number, name in enumerate("aaabbb"):
        case.submit(f"{name}{number}", 1, name)
    case.give(node("n0", 8))
    assert [event.tenant for event in case.decided(QuotaGranted)] == list("aaabbb")


def test_a_guarantee_that_has_more_than_its_part_keeps_it():
    case = Clusters(8, a=4, b=4)
    case.run("a-all", 4, "a")
    case.give(NodeDrainRequested(node_id="n1", note="", requested_by="op"))
    assert only(case.submit("b1", 1, "b"), QuotaDeferred).reason.code == PendingReason.INSUFFICIENT_GPUS
    assert case.victims() == []
    assert only(case.give(NodeUndrainRequested(node_id="n1", requested_by="op")), QuotaGranted).job_id == "b1"


def test_borrowers_give_way_to_a_job_whose_gpus_were_cordoned_before_it_had_them():
    """It is the job within a guarantee that asks for them, not the cordon."""
    case = Clusters(8, a=4, b=4)
    case.give(SettingChanged(service="quota", name="reclaim_above", value=0.5, requested_by="op"))
    case.run("own", 4, "b")
    case.run("lent", 1, "b")
    case.submit("waits", 3, "a")
    reclaimed = only(case.give(cordoned("n1", 3)), QuotaReclaimed)
    assert (reclaimed.job_id, [victim.job_id for victim in reclaimed.victims]) == ("waits", ["lent"])


def test_a_job_that_lost_its_node_counts_with_what_it_is_to_have():
    case = Clusters(8, a=4, b=4)
    case.run("own", 3, "a")
    case.run("lent", 4, "a")
    case.give(cordoned("n1", 0))
    case.give(NodeLost(node_id="n0", incarnation=1, silent_s=30.0))
    case.give(JobQueued(job_id="own", attempt=2, reason=SAID))
    [[victim]] = case.victims()
    assert victim == "lent"


def with_pool() -> Clusters:
    """Two tenants with 4 GPUs each, and 4 more of another type in the pool for trials."""
    case = Clusters(8, a=4, b=4)
    case.give(node("p1", 4, gpu_type="k80", features=[pool(TRIALS)]))
    return case


def test_gpus_of_the_pool_are_neither_lent_nor_granted():
    case = with_pool()
    case.give(node("p2", 4, features=[pool(TRIALS)]))
    assert only(case.submit("own", 4, "a"), QuotaGranted)
    assert only(case.submit("lent", 4, "a"), QuotaGranted)
    assert only(case.submit("more", 1, "a"), QuotaDeferred)


def test_a_trial_in_the_pool_keeps_the_whole_grant_of_its_gang_and_the_type_of_it():
    case = with_pool()
    granted = only(case.submit("tried", 4, "a"), QuotaGranted)
    case.place("tried", 1, "p1")
    claim = case.replica.state.claims["tried"]
    assert claim.gpu_type == granted.gpu_type == "v100"
    assert case.replica.state.holdings.by_type()["v100"].gpus == 4
    assert only(case.submit("b1", 4, "b"), QuotaGranted)
    assert only(case.submit("a2", 1, "a"), QuotaDeferred)
