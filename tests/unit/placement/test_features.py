"""Jobs go only to nodes that have what they need beside GPUs, under every mechanism."""

from __future__ import annotations

import pytest

from libs.contracts.agent import JobMovable, JobSettingUp
from libs.contracts.base import Event
from libs.contracts.features import IMAGES, data
from libs.contracts.gateway import PolicyChanged
from libs.contracts.migration import MigrationStarted
from libs.contracts.placement import DestinationReserved, GangReserved, JobPlaced, JobQueued, MoveAbandoned, StopTask
from libs.contracts.reasons import PendingReason
from libs.testing.core_case import node, only
from tests.unit.placement.placement_case import SAID, PlacementCase
from tests.unit.placement.rounds_case import RoundsCase


def case_of(policy: str) -> PlacementCase:
    """The node with less has more GPUs and the first name: everything but its features speaks for it."""
    case = RoundsCase(policy) if policy == "max_min_fairness" else PlacementCase()
    if policy == "gandiva":
        case.give(PolicyChanged(policy=policy, requested_by="op"))
    case.give(node("n1", 4, features=[data("coco")]))
    case.give(node("n2", 2, features=[data("imagenet"), IMAGES]))
    return case


POLICIES = ("fifo_backfill", "max_min_fairness", "gandiva")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_goes_where_its_data_and_a_runner_are(policy: str):
    case = case_of(policy)
    case.submit("a", 2, image="ubuntu", mounts={"imagenet": "/data"})
    assert case.where("a") == {"n2": [0, 1]}
    case.submit("b", 1, mounts={"coco": ""})
    assert list(case.where("b")) == ["n1"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_that_fits_no_able_node_hears_what_is_missing(policy: str):
    case = case_of(policy)
    told = only(case.submit("a", 3, image="ubuntu"), JobQueued).reason
    assert told.code == PendingReason.FEATURE_MISSING
    assert told.message.startswith("needs a runner of container images; usable nodes that have this have 2 GPUs")
    assert [(rejected.what, rejected.code) for rejected in told.rejected] == [("n1", "Lacks")]
    case.give(node("n3", 4, features=[IMAGES]))
    if policy == "max_min_fairness":
        assert isinstance(case, RoundsCase)
        case.next_round()
    assert list(case.where("a")) == ["n3"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("host", "beside"), [({"cpus": 8}, "as many CPUs"), ({"memory_bytes": 8 << 30}, "as much memory")]
)
def test_a_node_with_the_data_and_one_with_the_cpus_are_no_place_for_a_job_that_needs_both(
    policy: str, host: dict[str, int], beside: str
):
    case = case_of(policy)
    case.give(node("n3", 2, cpus=4, memory_bytes=4 << 30, features=[data("mnist")]))
    case.give(node("n4", 2, cpus=64, memory_bytes=64 << 30))
    told = only(case.submit("a", 1, mounts={"mnist": ""}, **host), JobQueued).reason
    assert told.code == PendingReason.FEATURE_MISSING
    assert (
        told.message
        == f"needs data mnist; usable nodes that have this have 0 GPUs of one type with {beside} beside them"
    )
    assert [rejected.what for rejected in told.rejected] == ["n1", "n2", "n4"]
    case.give(node("n5", 2, cpus=16, memory_bytes=16 << 30, features=[data("mnist")]))
    if isinstance(case, RoundsCase):
        case.next_round()
    assert list(case.where("a")) == ["n5"]


def test_cpus_that_are_promised_on_the_only_node_with_the_data_are_waited_for():
    case = PlacementCase()
    case.give(node("n1", 2, cpus=16, features=[data("mnist")]))
    case.give(node("n2", 2, cpus=64))
    case.submit("big", 1, cpus=12, mounts={"mnist": ""})
    told = only(case.submit("a", 1, cpus=8, mounts={"mnist": ""}), JobQueued).reason
    assert told.code == PendingReason.INSUFFICIENT_CPUS
    assert told.message == (
        "needs 1 GPU with 8 CPUs on nodes with data mnist; GPUs are free, but not 8 CPUs beside them: n1 has 4"
    )
    case.exit("big", at=5.0)
    assert list(case.where("a")) == ["n1"]


def test_a_reservation_for_both_is_where_the_data_is():
    case = PlacementCase()
    case.give(node("n1", 2, cpus=16, features=[data("mnist")]))
    case.give(node("n2", 2, cpus=64))
    case.submit("big", 1, cpus=12, mounts={"mnist": ""})
    case.submit("a", 1, cpus=8, mounts={"mnist": ""}, at=1.0)
    assert only(case.wake(), GangReserved).node_ids == ["n1"]
    case.submit("late", 1, cpus=4, mounts={"mnist": ""})
    assert case.placed == ["big"], "the CPUs beside its GPU are kept for the one that came first"
    case.exit("big", at=50.0)
    assert case.placed == ["big", "a", "late"]


def test_a_job_with_both_moves_to_a_node_with_both():
    case = PlacementCase()
    case.give(node("n1", 1, cpus=16, features=[IMAGES]))
    case.submit("a", 1, cpus=8, image="ubuntu")
    case.start("a", "n1")
    case.give(JobMovable(job_id="a", attempt=1, node_id="n1"))
    case.give(node("n2", 1, cpus=4, features=[IMAGES]))
    case.give(node("n3", 1, cpus=64))

    def move(migration_id: str) -> list[Event]:
        wanted = MigrationStarted(
            migration_id=migration_id,
            job_id="a",
            attempt=1,
            from_nodes=["n1"],
            to_nodes=[],
            must_leave=False,
            reason=SAID,
        )
        return case.give(wanted)

    assert only(move("m-1"), MoveAbandoned).reason.code == "NoRoom"
    case.give(node("n4", 1, cpus=8, features=[IMAGES]))
    assert [task.node_id for task in only(move("m-2"), DestinationReserved).gang] == ["n4"]


def test_gangs_and_reservations_count_able_nodes_alone():
    case = PlacementCase()
    for name, features in (("n1", []), ("n2", [IMAGES]), ("n3", [IMAGES])):
        case.give(node(name, 2, features=features))
    case.submit("a", 1, image="ubuntu")
    case.start("a", *case.where("a"))
    case.submit("b", 4, image="ubuntu")
    assert case.placed == ["a"]
    while not case.decided(GangReserved):
        case.wake()
    assert sorted(case.decided(GangReserved)[0].node_ids) == ["n2", "n3"]
    case.submit("c", 2)
    assert case.where("c") == {"n1": [0, 1]}


def test_a_setup_has_the_time_that_the_node_gives_it():
    case = PlacementCase(n1=1)
    case.submit("a", setup="pip install x")
    limit_s = case.replica.next_wakeup
    assert limit_s is not None
    case.give(JobSettingUp(job_id="a", attempt=1, node_id="n1", limit_s=5000.0, reason=SAID))
    assert case.replica.next_wakeup is not None and case.replica.next_wakeup >= limit_s + 4000.0
    assert only(case.wake(), StopTask).reason.code == "StartTimedOut", "an agent that hangs does not keep the GPU"


def test_a_setup_of_an_attempt_that_has_begun_changes_nothing():
    case = PlacementCase(n1=1)
    case.submit("a")
    case.start("a")
    case.give(JobSettingUp(job_id="a", attempt=1, node_id="n1", limit_s=5000.0, reason=SAID))
    assert case.replica.next_wakeup is None
    assert len(case.decided(JobPlaced)) == 1
