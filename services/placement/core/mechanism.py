"""What a mechanism is: one way of deciding when jobs run.

The mechanism of the policy in force decides (`step`). The others are not asked, but hear of jobs all the same
(`lifecycle/hearing.py`), so that the books of each are right when its turn comes. No mechanism knows another.
"""

from __future__ import annotations

from collections.abc import Iterator

from libs.kernel.machine import Turn
from libs.policies.table import POLICIES
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.hearing import Listener


class Mechanism(Listener):
    """Has no state: what it remembers is its part of the service's state, or the cell's."""

    kind: str
    """Policies of this kind are realised by it."""
    brings_back = False
    """Whether its steps give suspended jobs their GPUs again."""
    reassigns_paused = False
    """Whether others may have the GPUs of a paused job, so that a pause calls for a step."""

    def realises(self, policy: str) -> bool:
        """Whether it is the one that is in force under this policy."""
        return POLICIES[policy].kind == self.kind

    def step(self, cell: Cell, turn: Turn[Cell]) -> None:
        """Give away what may be given away now, and tell the other jobs why they wait."""
        raise NotImplementedError

    def moments(self, cell: Cell) -> Iterator[float]:
        """When the passing of time alone may change what it decides, in seconds since the epoch; past moments, too."""
        yield from ()

    def newcomer(self, cell: Cell, job: Job, turn: Turn[Cell]) -> None:
        """After a step: a job that has just been queued, if the step has not looked at it."""

    def wind_down(self, cell: Cell, in_force: Mechanism, turn: Turn[Cell]) -> None:
        """Before each step of another mechanism: end what this one has left, and the other does not know of."""
