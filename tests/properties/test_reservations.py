"""GPUs that are kept for a gang are kept from those behind it, and all gangs with a reservation start at last."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from libs.contracts.agent import GpuUnhealthy
from libs.contracts.base import Event
from libs.contracts.jobs import GpuRequest
from libs.contracts.placement import GangReserved, JobPlaced
from services.placement.core.cell import Reservation
from services.placement.core.lifecycle.reservations import width_kept
from tests.properties.effort import few_examples
from tests.unit.placement.placement_case import PlacementCase

MOST_GPUS = 6


class Crowd(PlacementCase):
    """Jobs come and end, time passes, GPUs break: what is kept for a gang is looked at around each of these."""

    def __init__(self, nodes: dict[str, int]) -> None:
        super().__init__(**nodes)
        self.jobs = 0

    @property
    def running(self) -> list[str]:
        return [job.job_id for job in self.replica.state.jobs.values() if job.gang]

    @property
    def reserved(self) -> dict[str, tuple[Reservation, int]]:
        """{gang: its reservation, and how many GPUs are kept for it}, in queue order."""
        cell = self.replica.state
        found = sorted(cell.reservations.values(), key=lambda each: cell.jobs[each.job_id].order)
        return {each.job_id: (each, width_kept(cell, each)) for each in found}

    def come(self, gpus: GpuRequest, priority: int) -> None:
        self.jobs += 1
        self._kept_meanwhile(lambda: self.submit(f"j{self.jobs}", gpus, priority=priority))

    def end(self, job_id: str) -> None:
        for task in list(self.replica.state.jobs[job_id].gang):
            self._kept_meanwhile(lambda node_id=task.node_id: self.exit(job_id, node_id, at=self.now_s + 1.0))

    def wait(self) -> None:
        if self.replica.next_wakeup is not None:
            self._kept_meanwhile(self.wake)

    def _kept_meanwhile(self, happens: Callable[[], list[Event]]) -> None:
        orders = self._orders()
        before, said = self.reserved, happens()
        orders |= self._orders()
        placed_or_new = [event.job_id for event in said if isinstance(event, JobPlaced | GangReserved)]
        after = self.reserved
        for job_id, (reservation, had) in before.items():
            same = job_id in after and after[job_id][0] == reservation
            if same and all(orders[other] > orders[job_id] for other in placed_or_new):
                assert after[job_id][1] >= had, f"a gang behind {job_id} has got GPUs that were kept for it"

    def _orders(self) -> dict[str, tuple[int, int, str]]:
        return {job.job_id: job.order for job in self.replica.state.jobs.values()}


@few_examples
@given(st.data())
def test_what_is_kept_is_given_to_no_gang_behind_and_every_gang_with_a_reservation_starts(data: st.DataObject):
    sizes = data.draw(st.lists(st.integers(1, MOST_GPUS), min_size=1, max_size=4), "nodes")
    crowd = Crowd({f"n{number}": gpus for number, gpus in enumerate(sizes)})
    counts, limits = st.integers(1, sum(sizes)), st.sampled_from((None, None, 1, 2))
    requests = st.builds(GpuRequest, count=counts, max_nodes=limits)
    for _ in range(data.draw(st.integers(5, 40), "steps")):
        step = data.draw(st.sampled_from(("come", "come", "come", "end", "wait", "breaks")))
        if step == "come":
            crowd.come(data.draw(requests), data.draw(st.sampled_from((0, 0, 0, 1))))
        elif step == "end" and crowd.running:
            crowd.end(data.draw(st.sampled_from(crowd.running)))
        elif step == "wait":
            crowd.wait()
        elif step == "breaks" and data.draw(st.integers(0, 5)) == 0:
            _breaks(crowd, data.draw(st.integers(0, len(sizes) - 1)))
    promised = dict(crowd.reserved)
    for _ in range(2 * crowd.jobs):
        for job_id in crowd.running:
            crowd.end(job_id)
        if not crowd.running:
            crowd.wait()
    started = {event.job_id for event in crowd.decided(JobPlaced)}
    assert promised.keys() <= started


def _breaks(crowd: Crowd, number: int) -> list[Event]:
    return crowd.give(GpuUnhealthy(node_id=f"n{number}", index=0, note="fell off the bus"))
