"""What only waits for time to pass has a wake-up, under every policy."""

from __future__ import annotations

import pytest

from libs.contracts.gateway import PolicyChanged
from libs.contracts.placement import JobQueued
from libs.contracts.reasons import PendingReason
from tests.unit.placement.placement_case import PlacementCase

def gangs_on_single_gpus(policy: str) -> PlacementCase:
    """One GPU is free on each of two servers; tenant a's gang waits since 10 s, tenant b's since 50 s."""
    case = PlacementCase(n1=2, n2=2)
    case.give(PolicyChanged(policy=policy, requested_by="op"))
    for number in range(4):
        case.submit(f"single-{number}", tenant="a")
    nodes = {job_id: next(iter(case.where(job_id))) for job_id in case.placed}
    for node_id in ("n1", "n2"):
        job_id = next(job_id for job_id in case.placed if nodes[job_id] == node_id)
        case.start(job_id, node_id)
        case.exit(job_id, node_id, at=5.0)
    case.submit("of-a", 2, at=10.0, tenant="a")
    case.submit("of-b", 2, at=50.0, tenant="b")
    return case


@pytest.mark.parametrize("policy", ["antman", "backfill", "strict_fifo"])
def test_a_gang_that_is_told_to_wait_for_fewer_servers_is_woken_when_that_is_over(policy: str):
    case = gangs_on_single_gpus(policy)
    told = [event for event in case.decided(JobQueued) if event.reason.code == PendingReason.LOCALITY_RELAXING][-1]
    until_s = told.reason.until_s
    assert until_s is not None
    while told.job_id not in case.placed:
        case.wake()
    assert case.now_s == until_s
