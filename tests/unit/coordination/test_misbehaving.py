"""Guests that do not keep to gates or limits."""

from __future__ import annotations

from libs.contracts.agent import GuestMisbehaved
from libs.coordination.actions import Pace
from libs.coordination.readings import Readings, TaskReading
from libs.coordination.state import Coordination
from libs.coordination.step import step

GB = 1 << 30
OWNER = TaskReading(job_id="o", attempt=1, guest=False, device_bytes=GB)


def paced_after(seconds: float, ran: float, waited: float, *, waiting: bool = False, **more: object) -> list[object]:
    """Pacing and facts of a guest that computes, and waits at gates, for these parts of the time beside an owner."""
    state, found = Coordination(), []
    for tenth in range(round(seconds * 10)):
        now_s = tenth / 10
        guest = TaskReading(
            job_id="g",
            attempt=1,
            guest=True,
            computed_s=ran * now_s,
            closed_s=waited * now_s,
            applied=99,
            **more,  # type: ignore[arg-type]
        )
        readings = Readings(node_id="n1", index=0, capacity_bytes=10 * GB, waiting=waiting, tasks=[OWNER, guest])
        result = step(state, readings, now_s)
        found += [action for action in result.actions if isinstance(action, Pace)]
        found += [fact.reason.code for fact in result.facts if isinstance(fact, GuestMisbehaved)]
    return found


PACED = Pace(task="g.1", paced=True)


def test_a_guest_that_computes_behind_closed_gates_is_paced_after_three_periods():
    assert paced_after(2.5, ran=0.9, waited=0.0) == []
    assert paced_after(5.0, ran=0.9, waited=0.0) == [PACED, "RanWhileClosed"]


def test_a_guest_that_waits_at_its_gates_is_left_alone_whatever_its_loaders_compute():
    assert paced_after(10.0, ran=1.5, waited=1.0) == []


def test_gaps_of_the_owner_may_be_filled():
    assert paced_after(10.0, ran=0.9, waited=0.0, waiting=True) == []


def test_a_guest_that_keeps_memory_is_paced():
    assert paced_after(4.0, ran=0.0, waited=1.0, device_bytes=5 * GB) == [PACED, "AboveLimit"]


def test_a_guest_without_the_harness_is_paced_from_the_start():
    assert paced_after(0.2, ran=0.0, waited=0.0, gated=False, limited=False, peak_bytes=GB) == [PACED]


def test_a_guest_whose_memory_nothing_limits_keeps_its_gates_closed_beside_an_owner():
    """It never applies the limit that it was told, so nothing is to be waited for."""
    guest = TaskReading(job_id="g", attempt=1, guest=True, limited=False)
    state = Coordination()
    for tenth in range(20):
        readings = Readings(node_id="n1", index=0, capacity_bytes=10 * GB, tasks=[OWNER, guest])
        step(state, readings, tenth / 10)
    assert state.occupants["g.1"].share_ratio == 0.0
