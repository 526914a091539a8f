"""Arrivals, bursts and returns of memory, on a model."""

from __future__ import annotations

from itertools import pairwise

import pytest

from libs.contracts.agent import ComputeShareChanged, MemoryBurst, MemoryLimitChanged
from libs.coordination.memory import divide
from libs.coordination.readings import Readings, TaskReading
from libs.coordination.state import Coordination
from libs.coordination.step import step
from tests.unit.coordination.model import CAPACITY, GB, STEP_S, Gpu, Job

FLOOR = int(0.02 * CAPACITY)


def owner(**more: object) -> Job:
    return Job("o", guest=False, wanted=lambda number: 10 * GB, **more)  # type: ignore[arg-type]


def test_a_guest_alone_has_the_whole_gpu():
    guest = Job("g", wanted=lambda number: 4 * GB)
    gpu = Gpu(guest)
    gpu.run(1.0)
    assert (guest.begun, guest.limit, guest.share) == (True, None, 1.0)


def test_an_owner_begins_when_guests_have_shrunk_and_they_grow_when_it_is_stable():
    guest = Job("g", minibatch_s=lambda now_s: 1.0, wanted=lambda number: 20 * GB)
    gpu = Gpu(guest)
    gpu.run(5.05)
    newcomer = owner()
    gpu.jobs.append(newcomer)
    gpu.coordinate()
    assert not newcomer.begun
    gpu.run(1.2)
    assert newcomer.begun
    assert (guest.limit, newcomer.limit) == (FLOOR, CAPACITY - FLOOR)
    assert guest.share == 0.0
    gpu.run(0.5)
    assert gpu.state.occupants["g.1"].limit_bytes == FLOOR
    gpu.run(10.0)
    left = CAPACITY - 10 * GB - int(0.05 * CAPACITY)
    assert left - 0.01 * CAPACITY <= gpu.state.occupants["g.1"].limit_bytes <= left


def test_an_owner_that_waits_for_a_slow_guest_has_it_suspended_after_ten_seconds():
    guest = Job("g", minibatch_s=lambda now_s: 600.0, wanted=lambda number: 20 * GB)
    gpu = Gpu(guest)
    gpu.run(5.0)
    newcomer = owner()
    gpu.jobs.append(newcomer)
    gpu.run(9.9)
    assert not newcomer.begun and gpu.suspended == []
    gpu.run(0.5)
    assert newcomer.begun and gpu.suspended == ["g"] and not guest.begun
    gpu.run(10.0)
    assert guest.begun, "it goes on when the owner is stable"


def test_an_owner_waits_for_a_guest_that_applies_its_limit_and_keeps_its_memory():
    guest = Job("g", wanted=lambda number: 20 * GB, host_room=5 * GB)
    gpu = Gpu(guest)
    gpu.run(5.0)
    newcomer = owner()
    gpu.jobs.append(newcomer)
    gpu.run(9.9)
    assert guest.applied == guest.told[-1].change, "it says that it has applied its limit"
    assert not newcomer.begun and gpu.suspended == []
    gpu.run(0.5)
    assert newcomer.begun and gpu.suspended == ["g"]


def test_a_limit_that_a_guest_never_kept_to_is_forgotten_when_a_later_one_is_in_force():
    guest = Job("g", wanted=lambda number: 20 * GB, host_room=5 * GB)
    gpu = Gpu(guest)
    gpu.run(5.0)
    guest.memory_bound = 4 * GB
    gpu.run(5.0)
    guest.memory_bound = 16 * GB
    gpu.run(5.0)
    occupant = gpu.state.occupants["g.1"]
    assert (occupant.confirmed_bytes, occupant.unconfirmed) == (16 * GB, [])


def test_a_guest_waits_until_a_running_owner_has_made_room():
    first = owner(minibatch_s=lambda now_s: 1.0)
    gpu = Gpu(first)
    gpu.run(2.0)
    assert first.limit is None
    guest = Job("g", wanted=lambda number: 4 * GB)
    gpu.jobs.append(guest)
    gpu.coordinate()
    assert not guest.begun
    gpu.run(2.0)
    assert guest.begun and guest.limit == FLOOR


@pytest.mark.parametrize("burst", [0.3, 0.6, 1.0])
def test_a_burst_is_whole_again_as_soon_as_guests_have_shrunk(burst: float):
    bursting = Job(
        "o", guest=False, wanted=lambda number: 10 * GB if number < 100 else int(burst * CAPACITY), slowed_by_guests=0.1
    )
    guest = Job("g", wanted=lambda number: 30 * GB)
    gpu = Gpu(bursting, guest)
    gpu.run(30.0)
    facts = gpu.of(MemoryBurst)
    if burst * CAPACITY <= 10 * GB + 0.05 * CAPACITY:
        assert facts == []
    else:
        [fact] = facts
        assert isinstance(fact, MemoryBurst)
        assert (fact.job_id, fact.from_jobs) == ("o", ["g"])
        assert fact.minibatches >= 1 and fact.host_bytes > 0
    assert bursting.limit_bytes >= burst * CAPACITY and bursting.host == 0


def test_what_a_peak_took_comes_back_after_a_minute():
    bursting = Job("o", guest=False, wanted=lambda number: 28 * GB if number == 100 else 10 * GB)
    guest = Job("g", wanted=lambda number: 30 * GB)
    gpu = Gpu(bursting, guest)
    gpu.run(20.0)
    assert guest.limit_bytes < 4 * GB
    gpu.run(70.0)
    assert guest.limit_bytes > 18 * GB


def test_an_owner_that_leaves_little_leaves_most_of_that_to_its_guest():
    guest = Job("g", wanted=lambda number: int(3.5 * GB))
    gpu = Gpu(guest, Job("o", guest=False, wanted=lambda number: 30 * GB))
    gpu.run(30.0)
    assert guest.limit is not None and 1.7 * GB < guest.limit <= 1.8 * GB


def test_an_operators_bound_counts_for_guests_and_owners():
    guest = Job("g", wanted=lambda number: 4 * GB, memory_bound=2 * GB)
    gpu = Gpu(guest)
    gpu.run(1.0)
    assert guest.limit == 2 * GB
    guest.memory_bound = None
    gpu.run(1.0)
    assert guest.limit is None


def test_an_owners_bound_takes_nothing_from_another_one_that_it_is_packed_with():
    bounded = Job("a", guest=False, wanted=lambda number: 4 * GB, memory_bound=3 * GB)
    other = Job("b", guest=False, wanted=lambda number: 25 * GB)
    gpu = Gpu(bounded, other)
    gpu.run(5.0)
    assert bounded.begun and other.begun
    assert bounded.limit == 3 * GB and other.limit is None
    bounded.memory_bound = None
    gpu.run(5.0)
    assert bounded.limit is None and other.limit is None
    gpu.jobs.append(Job("g", wanted=lambda number: 30 * GB))
    gpu.run(30.0)
    assert gpu.jobs[-1].begun, "both owners have made room"


def test_an_agent_that_comes_after_another_one_takes_limits_from_the_files():
    guest, running = Job("g", wanted=lambda number: 4 * GB), owner()
    gpu = Gpu(guest, running)
    gpu.run(30.0)
    limit = guest.limit
    gpu.state = Coordination()
    gpu.run(10.0)
    assert guest.begun and running.begun and guest.limit is not None and guest.limit <= limit
    gpu.run(60.0)
    assert guest.limit == limit, "what it grows to follows from the owner alone"


def test_an_upgraded_guest_is_an_owner_and_the_others_shrink():
    first, second = (Job(name, wanted=lambda number: 8 * GB) for name in ("a", "b"))
    gpu = Gpu(first, second)
    gpu.run(5.0)
    first.guest = False
    gpu.run(1.0)
    assert (second.limit, first.limit) == (FLOOR, CAPACITY - FLOOR)


def test_the_log_gets_a_change_of_each_kind_per_job_and_ten_seconds():
    guest = Job("g", wanted=lambda number: 30 * GB)
    bursting = Job("o", guest=False, wanted=lambda number: (10 + number % 40 // 10 * 6) * GB, slowed_by_guests=0.1)
    gpu = Gpu(bursting, guest)
    gpu.run(120.0)
    for kind in (MemoryLimitChanged, ComputeShareChanged):
        told_s = [at_s for at_s, fact in gpu.facts if isinstance(fact, kind) and fact.job_id == "g"]
        assert told_s and all(after - before >= 9.999 for before, after in pairwise(told_s))


def test_a_guest_that_cannot_be_parked_is_stopped():
    state = Coordination()
    waiting = TaskReading(job_id="o", attempt=1, guest=False, begun=False)
    kinds: list[str] = []
    for number in range(130):
        leaving = "Suspend" in kinds
        guest = TaskReading(job_id="g", attempt=1, guest=True, leaving=leaving)
        stuck = TaskReading(job_id="g", attempt=1, guest=True, leaving=leaving, stuck=number > 120)
        tasks = [guest if number < 120 else stuck, waiting]
        result = step(state, Readings(node_id="n", index=0, capacity_bytes=GB, tasks=tasks), number * STEP_S)
        kinds += [type(action).__name__ for action in result.actions]
    assert kinds.index("Suspend") < kinds.index("Stop")
    assert "Admit" not in kinds


def test_a_guest_keeps_what_it_may_have_while_its_page_cannot_be_read():
    guest = Job("g", minibatch_s=lambda now_s: 2.0, wanted=lambda number: 20 * GB)
    bursting = Job("o", guest=False, wanted=lambda number: 30 * GB if number > 600 else 4 * GB)
    gpu = Gpu(guest, bursting)
    while not gpu.of(MemoryLimitChanged) or bursting.demand < 30 * GB:
        gpu.run(STEP_S)
    assert guest.limit_bytes > 10 * GB, "it has not come to its boundary yet"
    before = bursting.limit
    guest.unread = True
    gpu.coordinate()
    assert gpu.state.occupants["o.1"].limit_bytes == before
    guest.unread = False
    gpu.run(5.0)
    assert bursting.limit_bytes >= 30 * GB


def test_an_owner_keeps_what_it_may_have_and_its_measure_while_its_page_cannot_be_read():
    guest, running = Job("g", wanted=lambda number: 30 * GB), owner()
    gpu = Gpu(guest, running)
    gpu.run(30.0)
    limits, measured = (guest.limit, running.limit), gpu.state.ledger
    running.unread = True
    gpu.run(0.5)
    assert (guest.limit, running.limit) == limits and gpu.state.ledger is measured
    gpu.run(2.0)
    running.unread = False
    gpu.run(1.0)
    assert (guest.limit, running.limit) == limits and gpu.state.ledger is measured


def test_an_agent_that_cannot_read_a_page_at_first_takes_its_limit_from_the_files():
    guest, running = Job("g", wanted=lambda number: 4 * GB), owner()
    gpu = Gpu(guest, running)
    gpu.run(30.0)
    limit = running.limit
    gpu.state = Coordination()
    guest.unread = running.unread = True
    gpu.run(0.5)
    assert gpu.state.occupants["o.1"].limit_bytes == limit, "nothing says that the guest has shrunk"
    guest.unread = running.unread = False
    gpu.run(0.5)
    assert gpu.state.occupants["o.1"].limit_bytes > limit


def test_a_guest_whose_page_cannot_be_read_is_not_paced_for_that():
    guest, running = Job("g"), owner()
    gpu = Gpu(guest, running)
    gpu.run(5.0)
    guest.unread = True
    gpu.run(5.0)
    assert not gpu.state.occupants["g.1"].paced


@pytest.mark.parametrize(("peak", "suspended"), [(2 * GB, False), (30 * GB, True)])
def test_a_guest_without_limits_stays_where_it_fits(peak: int, suspended: bool):
    state, found = Coordination(), []
    guest = TaskReading(job_id="g", attempt=1, guest=True, limited=False, peak_bytes=peak)
    running = TaskReading(job_id="o", attempt=1, guest=False, demand_bytes=10 * GB)
    for tenth in range(150):
        readings = Readings(node_id="n", index=0, capacity_bytes=CAPACITY, tasks=[guest, running])
        found += [type(action).__name__ for action in step(state, readings, tenth / 10).actions]
    assert ("Suspend" in found) is suspended


def test_parts_are_equal_but_none_is_more_than_is_wanted_while_another_wants_more():
    assert divide(90, [10, 100, 100]) == [10, 40, 40]
    assert divide(90, [10, 20, 30]) == [20, 30, 40]
    assert divide(10, []) == []
    assert sum(divide(101, [50, 60, 7])) == 101
