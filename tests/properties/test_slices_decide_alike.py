"""What the time slices leave out changes nothing: the same is decided when everything is looked at, at every step."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.contracts.base import Event
from libs.contracts.gateway import JobPriorityChanged, PolicyChanged
from libs.kernel.machine import Turn
from libs.policies.policy import Kind
from libs.testing.builders import Scenario, Spec
from libs.testing.strategies import crowded_cells, scenarios
from services.placement.core.cell import Cell
from services.placement.core.lifecycle.plan import Plan, carry_out
from services.placement.core.machine import machine
from services.placement.core.mechanism import Mechanism, Moment
from services.placement.core.mechanisms.slicing.mechanism import SlicingMechanism
from services.placement.core.mechanisms.table import MECHANISMS
from services.placement.core.state import State
from services.roster import SERVICES
from tests.properties.effort import whole_system
from tests.properties.slices_the_long_way import LongWay

Planned = Callable[[Cell, Moment], Plan]


class Compared(SlicingMechanism):
    """Decides, and compares with what the long way decides on a copy that has nothing but what snapshots have."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self, cell: Cell, moment: Moment) -> Plan:
        self.steps += 1
        yield from self._compared(cell, moment, LongWay().step, super().step)

    def wind_down(self, cell: Cell, in_force: Mechanism, moment: Moment) -> Plan:
        def after(wind_down: Callable[[Cell, Mechanism, Moment], Plan]) -> Planned:
            return lambda cell, moment: wind_down(cell, in_force, moment)

        yield from self._compared(cell, moment, after(LongWay().wind_down), after(super().wind_down))

    def _compared(self, cell: Cell, moment: Moment, long_way: Planned, short_way: Planned) -> Plan:
        copy = msgspec.json.decode(msgspec.json.encode(cell), type=State)
        expected: list[Event] = []
        turn: Turn[Cell] = Turn(copy, machine.evolve, moment.now_s, moment.cause_id)
        carry_out(copy, _noted(long_way(copy, moment), expected), turn)
        decided: list[Event] = []
        yield from _noted(short_way(cell, moment), decided)
        assert decided == expected
        assert _next(super().moments(cell), cell) == _next(LongWay().moments(copy), copy)


def _noted(plan: Plan, decisions: list[Event]) -> Plan:
    for decision in plan:
        decisions.append(decision)
        yield decision


def _next(moments: object, cell: Cell) -> float | None:
    return min((moment_s for moment_s in moments if moment_s > cell.looked_s), default=None)  # type: ignore[attr-defined]


@st.composite
def long_queues(draw: st.DrawFn) -> Scenario:
    """Some servers, many times more jobs than fit, and what changes their order and their room meanwhile."""
    scenario = Scenario().servers(4, v100=4 * draw(st.integers(1, 4)), k80=4 * draw(st.integers(0, 1)))
    early = st.integers(0, 200).map(float)
    jobs = [f"job-{number}" for number in range(draw(st.integers(10, 30)))]
    alike = draw(st.booleans())
    for job_id in jobs:
        width = draw(st.sampled_from([1, 1, 2, 4, 6]))
        spec = Spec().gpus(width, *draw(st.sampled_from([(), ("v100",)]))).runs(draw(st.integers(10, 120)))
        scenario.job(job_id, at=draw(early), spec=spec.priority(0 if alike else draw(st.sampled_from([0, 0, 5]))))
    for _ in range(draw(st.integers(0, 3))):
        changed = JobPriorityChanged(
            job_id=draw(st.sampled_from(jobs)), priority=draw(st.integers(0, 5)), requested_by="op"
        )
        scenario.plan(draw(early), changed)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(early)
        scenario.pause(draw(st.sampled_from(jobs)), at=at, until=at + draw(st.integers(1, 100)))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(early)
        scenario.drain("v100-000", at=at, until=at + draw(st.integers(1, 100)))
    for _ in range(draw(st.integers(0, 2))):
        scenario.setting("placement", "max_height", draw(st.sampled_from(HEIGHTS)), at=draw(early))
    return scenario.setting("placement", "slice_s", draw(st.sampled_from([20.0, 60.0])))


HEIGHTS = [1.0, 2.0, 8.0, 20.0]
cells = st.one_of(crowded_cells(), scenarios(policy="gandiva", most_jobs=16), long_queues(), long_queues())


@whole_system
@given(cells, st.sampled_from(HEIGHTS))
def test_the_long_way_decides_the_same(scenario: Scenario, max_height: float):
    scenario.setting("placement", "max_height", max_height)
    scenario.plan(0.0, PolicyChanged(policy="gandiva", requested_by="op"))
    compared = Compared()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MECHANISMS, Kind.TURNS, compared)
        scenario.build(SERVICES).run()
    assert compared.steps
