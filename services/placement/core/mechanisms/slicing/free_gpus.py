"""Where free GPUs are, by the affinity of the servers."""

from __future__ import annotations

from services.placement.core.cell import Cell
from services.placement.core.cluster import gangs
from services.placement.core.cluster.features import lacking
from services.placement.core.cluster.nodes import Node
from services.placement.core.cluster.servers import Index
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.suspending.domains import Domain, up_to_date
from services.placement.core.promises import open_to


class ByAffinity:
    """An index of free GPUs per affinity: a view of the domains."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._nodes: dict[int, dict[str, Node]] = {}
        self._indices: dict[int, Index] = {}

    def add(self, domain: Domain) -> None:
        """See `View`."""
        nodes = self._nodes.setdefault(domain.affinity, {})
        index = self._indices.setdefault(domain.affinity, Index(nodes))
        for node in domain.nodes:
            nodes[node.node_id] = node
            index.refresh(node.node_id)

    def remove(self, domain: Domain) -> None:
        """See `View`."""
        for node in domain.nodes:
            del self._nodes[domain.affinity][node.node_id]
            self._indices[domain.affinity].refresh(node.node_id)

    def best_fit(self, job: Job, affinity: int) -> gangs.Fit | None:
        """The best place for the job on free GPUs of servers with this affinity."""
        index = self._indices.get(affinity)
        if index is None:
            return None
        able = index.without(lacking(index.nodes.values(), job.needs))
        return gangs.best_fit(job.spec.gpus, open_to(self._cell, job, able))


def free_place(cell: Cell, job: Job) -> gangs.Fit | None:
    """On free GPUs: of servers with its affinity, of empty ones, of any."""
    # Any first: where the job fits on some of the servers, it fits on all of them, and mostly it does not.
    anywhere = gangs.best_fit(job.spec.gpus, open_to(cell, job))
    if anywhere is None:
        return None
    view = up_to_date(cell).view(ByAffinity)
    return view.best_fit(job, job.spec.gpus.count) or view.best_fit(job, 0) or anywhere
