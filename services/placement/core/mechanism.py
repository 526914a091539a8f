"""What a mechanism is: one way of deciding when jobs run.

The mechanism of the policy in force decides (`step`): it looks at the cell, changes nothing, and returns a plan, which
the scheduler carries out. The others are not asked, but hear of jobs all the same
(`lifecycle/hearing.py`), so that the books of each are right when its turn comes. No mechanism knows another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from libs.policies.table import POLICIES
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.hearing import Listener
from services.placement.core.lifecycle.plan import Plan


class Moment(NamedTuple):
    """When a step is taken."""

    now_s: float
    """In seconds since the epoch."""
    cause_id: str
    """Id of the input that calls for the step: what is named in it is named the same in every replay."""


class Mechanism(Listener):
    """Has no state: what it remembers is its part of the service's state, or the cell's. It does not know guests."""

    kind: str
    """Policies of this kind are realised by it."""
    brings_back = False
    """Whether its steps give suspended jobs their GPUs again."""
    reassigns_paused = False
    """Whether others may have the GPUs of a paused job before its memory is off them, so that a pause calls for a
    step."""

    def realises(self, policy: str) -> bool:
        """Whether it is the one that is in force under this policy."""
        return POLICIES[policy].kind == self.kind

    def upgraded(self, cell: Cell, job: Job, now_s: float) -> None:
        """Until now it did not know of the job."""
        self.placed(cell, job, now_s)

    def step(self, cell: Cell, moment: Moment) -> Plan:
        """What may be given away now, and what the other jobs are told about why they wait."""
        raise NotImplementedError

    def moments(self, cell: Cell) -> Iterator[float]:
        """When the passing of time alone may change what it decides, in seconds since the epoch; past moments, too."""
        yield from ()

    def wind_down(self, cell: Cell, in_force: Mechanism, moment: Moment) -> Plan:
        """Before each step of another mechanism: the end of what this one has left, and the other does not know of."""
        yield from ()
