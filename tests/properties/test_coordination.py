"""What holds at every moment of a GPU's coordination, whenever processes apply what they are told."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from libs.coordination.actions import Admit, SetLimit, SetShare, Stop, Suspend
from libs.coordination.readings import Readings, TaskReading
from libs.coordination.settings import Settings
from libs.coordination.state import Coordination
from libs.coordination.step import step
from tests.properties.effort import few_examples

CAPACITY, RESERVE = 1_000_000, 10_000
STEP_S = 0.1
QUICK = Settings(yield_s=1.0, settle_s=4.0, peak_s=4.0, credit_s=60.0)
"""Shorter times, so that a history of a minute has all that can happen."""


@dataclass
class Process:
    """A task that applies the newest change at its boundaries, and comes to these when the search says so."""

    name: str
    guest: bool
    begun: bool = False
    in_force: int = 0
    told: SetLimit | None = None
    applied: int = 0
    share: float = 0.0
    minibatches: int = 0
    closed: int = 0
    demand: int = 0
    on_host: int = 0
    unread: int = 0
    """So many looks find that its page cannot be read."""
    last_open_s: float = 0.0

    def boundary(self, demand: int, *, opened: bool = False) -> None:
        self.demand, self.on_host = demand, max(0, demand - self.in_force)
        self.minibatches += 1
        self.closed += not opened
        if self.told is not None:
            self.applied = self.told.change
            self.in_force = CAPACITY if self.told.limit_bytes is None else self.told.limit_bytes

    def reading(self) -> TaskReading:
        if self.unread:
            self.unread -= 1
            return TaskReading(
                job_id=self.name,
                attempt=1,
                guest=self.guest,
                begun=self.begun,
                unread=True,
                limited=False,
                gated=False,
            )
        return TaskReading(
            job_id=self.name,
            attempt=1,
            guest=self.guest,
            begun=self.begun,
            applied=self.applied,
            minibatch_host_bytes=self.on_host,
            demand_bytes=self.demand,
            minibatches=self.minibatches,
            closed_minibatches=self.closed,
            last_minibatch_s=0.1,
        )


class History:
    """Tasks come, go, change their roles, want more or less memory, and reach their boundaries, all at random."""

    def __init__(self) -> None:
        self.state, self.now_s = Coordination(settings=QUICK), 0.0
        self.processes: list[Process] = []
        self.number = 0

    def come(self, *, guest: bool) -> None:
        if guest or not self.owners():
            self.number += 1
            self.processes.append(Process(f"j{self.number}", guest))

    def owners(self) -> list[Process]:
        return [each for each in self.processes if not each.guest]

    def step(self) -> None:
        readings = Readings(
            node_id="n1",
            index=0,
            capacity_bytes=CAPACITY,
            reserve_bytes=RESERVE,
            tasks=[each.reading() for each in self.processes],
        )
        by_task = {f"{each.name}.1": each for each in self.processes}
        for action in step(self.state, readings, self.now_s).actions:
            process = by_task[action.task]
            if isinstance(action, SetLimit):
                process.told = action
            elif isinstance(action, SetShare):
                process.share = action.share_ratio
            elif isinstance(action, Admit):
                assert process.told is not None, "its limit precedes the admission"
                process.begun, process.applied = True, process.told.change
                process.in_force = CAPACITY if process.told.limit_bytes is None else process.told.limit_bytes
            elif isinstance(action, Suspend | Stop):
                process.begun = False
        self.check()
        self.now_s = round(self.now_s + STEP_S, 6)

    def check(self) -> None:
        running = [each for each in self.processes if each.begun]
        reserve = RESERVE if len(running) > 1 else 0
        assert sum(each.in_force for each in running) + reserve <= CAPACITY, "limits in force exceed the capacity"
        told = [each.told.limit_bytes for each in running if each.told is not None]
        assert sum(CAPACITY if limit is None else limit for limit in told) + reserve <= CAPACITY, "and so do those told"

    def calm(self, seconds: float, owner_demand: int) -> None:
        """Every process reaches a boundary per step from now on, nothing else changes."""
        for _ in range(round(seconds / STEP_S)):
            self.step()
            opened = any(each.guest and each.share > 0 for each in self.processes)
            for each in self.processes:
                if each.begun and (not each.guest or each.share > 0):
                    each.boundary(30_000 if each.guest else owner_demand, opened=opened)
                if each.share > 0:
                    each.last_open_s = self.now_s


moves = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.booleans()),
        st.tuples(st.just("go"), st.integers(0, 9)),
        st.tuples(st.just("upgrade"), st.integers(0, 9)),
        st.tuples(st.just("boundary"), st.integers(0, 9), st.integers(0, CAPACITY - RESERVE)),
        st.tuples(st.just("unread"), st.integers(0, 9), st.sampled_from([1, 5, 30])),
        st.tuples(st.just("steps"), st.sampled_from([1, 3, 12])),
    ),
    max_size=40,
)


def play(history: History, drawn: list[tuple]) -> None:
    for what, *more in drawn:
        if what == "come":
            history.come(guest=more[0])
        elif what == "steps":
            for _ in range(more[0]):
                history.step()
        elif history.processes:
            process = history.processes[more[0] % len(history.processes)]
            if what == "go":
                history.processes.remove(process)
            elif what == "upgrade" and not history.owners():
                process.guest = False
            elif what == "unread":
                process.unread = more[1]
            elif what == "boundary" and process.begun:
                process.boundary(more[1])
        history.step()


@given(drawn=moves)
def test_limits_never_exceed_the_capacity_whenever_they_are_applied(drawn: list[tuple]):
    play(History(), drawn)


@few_examples
@given(drawn=moves, owner_demand=st.integers(0, CAPACITY - RESERVE))
def test_whatever_has_been_owners_have_their_demand_and_no_guest_is_closed_out(drawn: list[tuple], owner_demand: int):
    history = History()
    play(history, drawn)
    history.come(guest=False)
    history.come(guest=True)
    history.calm(50.0, owner_demand)
    owner = history.owners()[0]
    guests = [each for each in history.processes if each.guest]
    assert all(each.begun for each in history.processes), "all tasks have begun"
    assert owner.in_force >= owner_demand and owner.on_host == 0
    assert all(guest.last_open_s > history.now_s - 20.0 for guest in guests), "each has had its gates open of late"
    history.processes.remove(owner)
    history.calm(1.0, 0)
    assert all(guest.share == 1.0 for guest in guests)
