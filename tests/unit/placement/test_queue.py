"""Which job goes first, which may pass, and that none starves."""

from dataclasses import replace

import pytest

from libs.contracts.agent import GpuUnhealthy
from libs.contracts.gateway import JobPriorityChanged, PolicyChanged
from libs.contracts.jobs import GpuRequest
from libs.contracts.placement import GangReleased, GangReserved, JobQueued, ReservedPart
from libs.contracts.reasons import PendingReason
from libs.policies.queueing.table import QUEUE_POLICIES
from libs.testing.core_case import only
from services.placement.core.machine import machine
from tests.unit.placement.placement_case import SAID, PlacementCase


def test_small_jobs_pass_a_gang_that_does_not_fit_yet():
    case = PlacementCase(n1=4)
    case.submit("a", 2)
    case.submit("gang", 4)
    case.submit("small", 1)
    assert case.placed == ["a", "small"]


def test_under_fifo_no_job_passes():
    case = PlacementCase(n1=4)
    case.give(PolicyChanged(policy="strict_fifo", requested_by="op"))
    case.submit("a", 2)
    case.submit("gang", 4)
    behind = only(case.submit("small", 1), JobQueued)
    assert case.placed == ["a"]
    assert behind.job_id == "small" and behind.reason.code == PendingReason.BEHIND


def test_switching_the_policy_takes_effect_at_once():
    case = PlacementCase(n1=4)
    case.give(PolicyChanged(policy="strict_fifo", requested_by="op"))
    case.submit("a", 2)
    case.submit("gang", 4)
    case.submit("small", 1)
    case.give(PolicyChanged(policy="backfill", requested_by="op"))
    assert case.placed == ["a", "small"]


def test_a_gang_is_not_starved_by_a_stream_of_small_jobs():
    case = PlacementCase(n1=4)
    for i in range(4):
        case.submit(f"s{i}", 1)
    case.submit("gang", 4, at=1.0)
    case.exit("s0", at=2.0)
    case.submit("s4", 1)
    assert case.placed[-1] == "s4"
    reserved = only(case.wake(), GangReserved)
    assert (reserved.node_ids, case.now_s) == (["n1"], 31.0)
    assert (reserved.gpu_type, reserved.gpus_missing) == ("v100", 4)
    assert reserved.parts == [ReservedPart(node_id="n1", gpus=4)]
    case.exit("s1", at=40.0)
    waits = only(case.submit("s5", 1), JobQueued)
    assert waits.reason.code == PendingReason.BEHIND and "gang" in waits.reason.message
    for job in ("s2", "s3", "s4"):
        case.exit(job, at=50.0)
    assert case.placed[-1] == "gang"
    assert case.decided(GangReleased)[-1].reason.code == "Placed"
    case.exit("gang", at=60.0)
    assert case.placed[-1] == "s5"


def test_a_reservation_says_which_gpus_are_kept_already_and_how_many_are_missing():
    case = PlacementCase(n1=4, n2=2)
    case.submit("a", 1)
    case.submit("b", 2)
    case.submit("gang", 6)
    reserved = only(case.wake(), GangReserved)
    assert reserved.parts == [
        ReservedPart(node_id="n1", gpus=4, kept=[2, 3]),
        ReservedPart(node_id="n2", gpus=2, kept=[1]),
    ]
    assert reserved.gpus_missing == 3


def test_a_reservation_of_an_earlier_version_keeps_whole_nodes():
    case = PlacementCase(n1=4)
    case.submit("a", 3)
    case.submit("gang", 2)
    earlier = GangReserved(job_id="gang", attempt=1, node_ids=["n1"], gpus_held=1, reason=SAID)
    cell = case.replica.state
    machine.evolve(cell, earlier, case.now_s)
    assert cell.reservations["gang"].parts == {"n1": 4} and cell.reservations["gang"].gpu_type == "v100"


def test_two_gangs_have_a_reservation_at_a_time_and_start_where_they_have_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(QUEUE_POLICIES, "backfill", replace(QUEUE_POLICIES["backfill"], reservations=2))
    case = PlacementCase(n1=4, n2=4)
    case.submit("a", 3)
    case.submit("b", 3)
    case.submit("first", 4)
    case.submit("second", 4, at=1.0)
    case.wake(), case.wake()
    assert [(e.job_id, e.node_ids) for e in case.decided(GangReserved)] == [("first", ["n1"]), ("second", ["n2"])]
    waits = only(case.submit("small", 1), JobQueued)
    assert (
        waits.reason.message == "the GPUs that it could use are kept for first (on n1), second (on n2), which go first"
    )
    case.exit("b", "n2", at=40.0)
    assert case.placed[-1] == "first", "it goes first, wherever the GPUs become free"
    last = case.decided(GangReserved)[-1]
    assert (last.job_id, last.node_ids, last.gpus_missing) == ("second", ["n1"], 3)
    case.exit("a", "n1", at=50.0)
    assert case.placed[-1] == "second" and not case.replica.state.reservations


def test_gpus_that_a_reserved_gang_does_not_need_are_given_away():
    case = PlacementCase(n1=4, n2=4)
    for job, gpus in (("a", 3), ("b", 4)):
        case.submit(job, gpus)
    case.submit("gang", 6)
    assert [(part.node_id, part.gpus) for part in only(case.wake(), GangReserved).parts] == [("n1", 4), ("n2", 2)]
    case.exit("b", "n2", at=40.0)
    case.submit("small", 2)
    case.submit("another", 1)
    assert case.placed[-1] == "small" and case.where("small") == {"n2": [2, 3]}
    case.exit("a", "n1", at=50.0)
    assert case.placed[-1] == "gang", "no longer than without the small one"


def test_a_reservation_that_a_broken_gpu_makes_vain_is_given_up_for_another():
    case = PlacementCase(n1=4, n2=4)
    case.submit("a", 3)
    case.submit("b", 3)
    case.submit("gang", 4)
    assert only(case.wake(), GangReserved).node_ids == ["n1"]
    said = case.give(GpuUnhealthy(node_id="n1", index=3, note="fell off the bus"))
    assert only(said, GangReleased).reason.code == "NodeUnusable" and only(said, GangReserved).node_ids == ["n2"]


def test_a_gang_that_fits_nowhere_keeps_no_other_from_a_reservation():
    case = PlacementCase(n1=4)
    case.submit("a", 3)
    case.submit("never", 8)
    case.submit("gang", 4)
    assert only(case.wake(), GangReserved).job_id == "gang"


def test_a_reservation_on_more_nodes_than_the_gang_accepts_is_not_made():
    case = PlacementCase(n1=2, n2=2)
    case.submit("a", 1)
    case.submit("gang", GpuRequest(count=4, max_nodes=1))
    case.wake()
    assert not case.decided(GangReserved)


def test_higher_priority_goes_first_and_takes_over_the_reservation():
    case = PlacementCase(n1=4)
    case.submit("a", 3)
    case.submit("low", 4, at=0.0)
    case.wake()
    case.submit("high", 4, priority=5, at=31.0)
    case.wake()
    assert case.decided(GangReleased)[-1].reason.code == "Outranked"
    case.exit("a", at=90.0)
    assert case.placed == ["a", "high"]


def test_a_changed_priority_reorders_the_queue():
    case = PlacementCase(n1=1)
    for job in ("a", "b", "c"):
        case.submit(job)
    case.give(JobPriorityChanged(job_id="c", priority=1, requested_by="u"))
    case.exit("a")
    assert case.placed == ["a", "c"]


def test_a_waiting_job_is_told_once_per_cause():
    case = PlacementCase(n1=1)
    case.submit("a")
    case.submit("b")
    case.submit("c")
    codes = [(e.job_id, e.reason.code) for e in case.decided(JobQueued)]
    assert codes == [("b", PendingReason.INSUFFICIENT_GPUS), ("c", PendingReason.BEHIND)]
    case.exit("a")
    assert [(e.job_id, e.reason.code) for e in case.decided(JobQueued)][2:] == [("c", PendingReason.INSUFFICIENT_GPUS)]


def test_choices_do_not_depend_on_the_order_in_which_nodes_joined_beyond_their_names():
    """Equal candidates are told apart by name, never by hash or arrival."""
    one, other = PlacementCase(n1=4, n2=4), PlacementCase(n2=4, n1=4)
    for case in (one, other):
        case.submit("a", 2)
        case.submit("b", 4)
    assert (one.where("a"), one.where("b")) == (other.where("a"), other.where("b"))
