"""Who goes first, who may pass, and that nobody starves."""

from libs.contracts.gateway import JobPriorityChanged, PolicyChanged
from libs.contracts.placement import GangReleased, GangReserved, JobQueued
from libs.contracts.reasons import PendingReason
from libs.testing.core_case import only
from tests.unit.placement.placement_case import PlacementCase


def test_small_jobs_pass_a_gang_that_does_not_fit_yet():
    case = PlacementCase(n1=4)
    case.submit("a", 2)
    case.submit("gang", 4)
    case.submit("small", 1)
    assert case.placed == ["a", "small"]


def test_under_fifo_nobody_passes():
    case = PlacementCase(n1=4)
    case.give(PolicyChanged(policy="strict_fifo", requested_by="op"))
    case.submit("a", 2)
    case.submit("gang", 4)
    behind = only(case.submit("small", 1), JobQueued)
    assert case.placed == ["a"]
    assert behind.job_id == "small" and behind.reason.code == PendingReason.FAIR_SHARE


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
    case.exit("s1", at=40.0)
    waits = only(case.submit("s5", 1), JobQueued)
    assert waits.reason.code == PendingReason.FAIR_SHARE and "gang" in waits.reason.message
    for job in ("s2", "s3", "s4"):
        case.exit(job, at=50.0)
    assert case.placed[-1] == "gang"
    assert case.decided(GangReleased)[-1].reason.code == "Placed"
    case.exit("gang", at=60.0)
    assert case.placed[-1] == "s5"


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
    assert codes == [("b", PendingReason.INSUFFICIENT_GPUS), ("c", PendingReason.FAIR_SHARE)]
    case.exit("a")
    assert [(e.job_id, e.reason.code) for e in case.decided(JobQueued)][2:] == [("c", PendingReason.INSUFFICIENT_GPUS)]


def test_choices_do_not_depend_on_the_order_in_which_nodes_joined_beyond_their_names():
    """Equal candidates are told apart by name, never by hash or arrival."""
    one, other = PlacementCase(n1=4, n2=4), PlacementCase(n2=4, n1=4)
    for case in (one, other):
        case.submit("a", 2)
        case.submit("b", 4)
    assert (one.where("a"), one.where("b")) == (other.where("a"), other.where("b"))
