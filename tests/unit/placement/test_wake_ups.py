"""What only waits for time to pass has a wake-up, under every policy."""

from __future__ import annotations

import pytest

from libs.contracts.gateway import PolicyChanged
from libs.contracts.placement import JobQueued
from libs.contracts.reasons import PendingReason
from tests.unit.placement.guests_case import GuestsCase
from tests.unit.placement.placement_case import PlacementCase


def gangs_on_single_gpus(policy: str) -> PlacementCase:
    """One GPU is free on each of two servers; tenant a's gang waits since 10 s, tenant b's since 50 s."""
    case = PlacementCase(n1=2, n2=2)
    case.give(PolicyChanged(policy=policy, requested_by="op"))
    leave_one_free_on_each(case)
    case.submit("of-a", 2, at=10.0, tenant="a")
    case.submit("of-b", 2, at=50.0, tenant="b")
    return case


def leave_one_free_on_each(case: PlacementCase) -> None:
    """One GPU of each of two servers."""
    for number in range(4):
        case.submit(f"single-{number}", tenant="a")
    nodes = {job_id: next(iter(case.where(job_id))) for job_id in case.placed}
    for node_id in ("n1", "n2"):
        job_id = next(job_id for job_id in case.placed if nodes[job_id] == node_id)
        case.start(job_id, node_id)
        case.exit(job_id, node_id, at=5.0)


@pytest.mark.parametrize("policy", ["antman", "backfill", "strict_fifo"])
def test_a_gang_that_is_told_to_wait_for_fewer_servers_is_woken_when_that_is_over(policy: str):
    case = gangs_on_single_gpus(policy)
    told = [event for event in case.decided(JobQueued) if event.reason.code == PendingReason.LOCALITY_RELAXING][-1]
    until_s = told.reason.until_s
    assert until_s is not None
    while told.job_id not in case.placed:
        case.wake()
    assert case.now_s == until_s


@pytest.mark.parametrize("policy", ["antman", "backfill"])
def test_a_guest_that_is_placed_just_before_a_timer_takes_no_wake_up_away_from_a_gang(policy: str):
    case = GuestsCase(policy, n1=2, n2=2)
    leave_one_free_on_each(case)
    case.submit("gang", 2, at=10.0, tenant="a")
    for node_id in ("n1", "n2"):
        for index in (0, 1):
            case.load(index, 0.95, node_id)
    case.guest("guest")
    while (due_s := case.replica.next_wakeup) is not None and due_s < 70.0:
        case.wake()
    case.load(0, 0.1, at=70.5)
    case.load(1, 0.1, at=70.5)
    assert case.placed[-1] == "guest", "it comes before the timer that is due at 70 s"
    assert case.replica.next_wakeup == 70.0
    case.wake()
    assert case.placed[-1] == "gang"
