"""How GPUs were used over a run: as figure 1 and section 5.3 of AntMan (OSDI'20) look at them, and its table 5."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

BINS = 20
"""Of equal width from 0 to 1; what is 1 is in one more."""


@dataclass
class Beside:
    """An owner while guests were on its GPU."""

    minibatch_s: float
    """Alone; the longest of its phases."""
    seconds: float = 0.0
    work_s: float = 0.0
    """What it would have taken alone for what it has done meanwhile."""


@dataclass
class Usage:
    """Seconds, over all GPUs."""

    busy_s: list[float] = field(default_factory=lambda: [0.0] * (BINS + 1))
    """{part of its time in which a GPU computed: seconds}, of GPUs that some job has."""
    memory_s: list[float] = field(default_factory=lambda: [0.0] * (BINS + 1))
    """The same of the part of their memory that is in use."""
    owned_s: float = 0.0
    """With an owner."""
    guests_s: float = 0.0
    """Of guests, each counted."""
    guests_work_s: float = 0.0
    """Of these, each times the guest's part of its full speed."""
    beside: dict[str, Beside] = field(default_factory=dict)
    """{owner's job id: while guests were there}."""

    def add(self, seconds: float, busy: float, memory: float, owned: bool, guest_speeds: Sequence[float]) -> None:
        """One GPU was used so for a while."""
        self.busy_s[bin_of(busy)] += seconds
        self.memory_s[bin_of(memory)] += seconds
        self.owned_s += seconds * owned
        self.guests_s += seconds * len(guest_speeds)
        self.guests_work_s += seconds * sum(guest_speeds)

    def add_beside(self, job_id: str, minibatch_s: float, seconds: float, speed: float) -> None:
        """An owner had guests for a while."""
        entry = self.beside.setdefault(job_id, Beside(minibatch_s))
        entry.minibatch_s = max(entry.minibatch_s, minibatch_s)
        entry.seconds += seconds
        entry.work_s += seconds * speed

    def document(self) -> dict[str, Any]:
        """As a result document keeps it."""
        return {
            "busy_s": [round(each, 3) for each in self.busy_s],
            "memory_s": [round(each, 3) for each in self.memory_s],
            "owned_s": round(self.owned_s, 3),
            "guests_s": round(self.guests_s, 3),
            "guests_work_s": round(self.guests_work_s, 3),
            "beside": {
                job_id: [each.minibatch_s, round(each.seconds, 3), round(each.work_s, 3)]
                for job_id, each in self.beside.items()
            },
        }


def bin_of(ratio: float) -> int:
    """Its place in the lists."""
    return min(BINS, max(0, int(ratio * BINS + 1e-9)))
