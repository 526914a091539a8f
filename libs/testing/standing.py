"""For tests of whole cells: nothing may be left standing, at any moment of a run."""

from __future__ import annotations

from collections.abc import Iterable

from libs.contracts.envelope import Envelope
from libs.contracts.introspection import JobStuck
from libs.lifecycle.awaited import Books
from libs.lifecycle.stuck import STUCK_AFTER_S, Watch
from libs.sim.options import FaultKind
from libs.sim.simulation import Simulation

PROMPT_S, LAGGING_S = 100.0, 900.0
"""How long jobs of a simulation may stand: more than agents have patience, and where services lag behind, more than
that, because what they say late bears the time of what they have read."""


def none_is_left_standing(simulation: Simulation) -> None:
    """Asserts that no job of the run stood for too long at any moment."""
    lags = simulation.options.interleaving is not None
    # An agent without room, or whose facts are late, is heard and takes no orders: its tasks do wait for it as long.
    full_s = sum(fault.duration_s for fault in simulation.options.faults if fault.kind is FaultKind.DISK_FULL)
    late_s = max((fault.delay_s for fault in simulation.options.faults), default=0.0)
    found = left_standing(simulation.log.control, (LAGGING_S if lags else PROMPT_S) + full_s + late_s)
    assert not found, [f"{each.job_id}, awaited of {each.owed_by}: {each.reason.message}" for each in found]


def left_standing(control: Iterable[Envelope], stuck_after_s: float = STUCK_AFTER_S) -> list[JobStuck]:
    """The jobs of a recorded control log that stood for too long, in the order in which that would have been noticed.

    It is looked before and after each record, so also a job counts that was brought on by accident in the end.
    """
    books, watch, found = Books(), Watch(stuck_after_s), list[JobStuck]()

    def look(now_s: float) -> None:
        for _, fact in watch.look(books, now_s):
            books.take(fact, now_s)
            if isinstance(fact, JobStuck):
                found.append(fact)

    now_s = 0.0
    for envelope in control:
        now_s = max(now_s, envelope.time_s)
        look(now_s)
        books.take(envelope.event, now_s)
        look(now_s)
    return found
