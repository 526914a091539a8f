"""Jobs go only to nodes that have what they need beside GPUs, under every mechanism."""

from __future__ import annotations

import pytest

from libs.contracts.agent import JobSettingUp
from libs.contracts.features import IMAGES, data
from libs.contracts.gateway import PolicyChanged
from libs.contracts.placement import GangReserved, JobPlaced, JobQueued, StopTask
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
