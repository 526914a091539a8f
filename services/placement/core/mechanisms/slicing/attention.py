"""Which domains have to be looked at: those that have changed, and those at the end of their slice."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from dataclasses import dataclass

from services.placement.core.cell import Cell
from services.placement.core.lifecycle.suspending.domains import Domain, takes_part
from services.placement.core.mechanisms.slicing.turns import lowest_running

_Ends = list[tuple[float, str]]
"""(when its slice is over, name) of domains, ascending."""
NEVER_BEGUN = float("-inf")
"""The end of the slice of a domain that has had none: it is over at any time."""


@dataclass(frozen=True)
class _Noted:
    end_s: float
    waits: bool
    lowest: int


class Attention:
    """A view of the domains: which have changed since they were looked at, and when slices end."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._noted: dict[str, _Noted] = {}
        self._ends: _Ends = []
        self._waiting: _Ends = []
        """Of domains with suspended residents alone."""
        self._lowest: Counter[int] = Counter()
        """{lowest priority that runs on a domain: domains}."""
        self.changed: dict[str, None] = {}
        """Domains that have changed since suspended jobs were looked at that might go on there."""
        self.unsettled: dict[str, None] = {}
        """Domains that have changed since it was found that all jobs there stay as they are inside a slice."""

    def add(self, domain: Domain) -> None:
        """See `View`."""
        name, current = domain.name, self._cell.slices.get(domain.name)
        end_s = current.ends_s if current is not None else NEVER_BEGUN
        noted = _Noted(end_s, any(job.suspended for job in domain.residents), lowest_running(domain))
        self._noted[name] = noted
        insort(self._ends, (end_s, name))
        if noted.waits:
            insort(self._waiting, (end_s, name))
        self._lowest[noted.lowest] += 1
        if not _is_plain(self._cell, domain):
            self.changed[name] = self.unsettled[name] = None

    def remove(self, domain: Domain) -> None:
        """See `View`."""
        name = domain.name
        noted = self._noted.pop(name)
        del self._ends[bisect_left(self._ends, (noted.end_s, name))]
        if noted.waits:
            del self._waiting[bisect_left(self._waiting, (noted.end_s, name))]
        self._lowest[noted.lowest] -= 1
        if not self._lowest[noted.lowest]:
            del self._lowest[noted.lowest]
        self.changed.pop(name, None)
        self.unsettled.pop(name, None)

    def over(self, now_s: float) -> dict[str, None]:
        """The domains at the end of their slice."""
        return _until(self._ends, now_s)

    def waiting(self, now_s: float) -> dict[str, None]:
        """Those of them on which jobs are suspended."""
        return _until(self._waiting, now_s)

    def settled(self, domain: Domain) -> None:
        """All jobs there stay as they are inside a slice, unless others begin there."""
        self.unsettled.pop(domain.name, None)

    def lowest(self) -> int:
        """The lowest priority that runs on any domain."""
        return min(self._lowest, default=0)


def _until(ends: _Ends, now_s: float) -> dict[str, None]:
    return dict.fromkeys(name for _, name in ends[: bisect_right(ends, now_s, key=lambda end: end[0])])


def _is_plain(cell: Cell, domain: Domain) -> bool:
    """Whether it is plain that all jobs stay as they are inside a slice.

    That is so where all take part in turns with one priority, none shares GPUs, each server is there, and each GPU is
    held by one of them: the jobs that run go first, and leave nothing. It is mostly so.
    """
    residents = domain.residents
    ids = {job.job_id: None for job in residents}
    return (
        all(takes_part(job) and job.job_id not in cell.book.companions for job in residents)
        and len({job.priority for job in residents}) <= 1
        and all(cell.nodes[task.node_id].present for job in residents if len(job.gang) > 1 for task in job.gang)
        and all(
            len(gpu.holders) == 1 and gpu.holders[0] in ids if gpu.holders else not node.is_healthy(index)
            for node in domain.nodes
            for index, gpu in enumerate(node.gpus)
        )
    )
