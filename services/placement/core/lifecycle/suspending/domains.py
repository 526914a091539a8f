"""Servers as Gandiva sees them: their residents, their height, their affinity (OSDI'18, section 4.2).

The unit is a *domain*: servers that a gang spans take their turns together. Nearly always it is one server.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from services.placement.core.cell import DOMAINS, Cell
from services.placement.core.cluster import gangs
from services.placement.core.cluster.nodes import Node
from services.placement.core.cluster.servers import Listed
from services.placement.core.jobs import Job, Phase


@dataclass(frozen=True)
class Domain:
    """Servers on which jobs take turns together."""

    nodes: list[Node]
    residents: list[Job]
    """Jobs that run here or are suspended here, in order of arrival."""

    @property
    def name(self) -> str:
        """That of its first server."""
        return self.nodes[0].node_id

    @property
    def gpus(self) -> int:
        """Healthy GPUs, in use or not."""
        return sum(len(indices) for node in self.nodes for indices in node.healthy.values())

    @property
    def height(self) -> float:
        """GPUs of its residents per GPU: above 1 they must take turns."""
        return self.load / self.gpus if self.gpus else float("inf")

    @property
    def load(self) -> int:
        """GPUs that its residents have, or will have in their turn."""
        return sum(job.width for job in self.residents)

    @property
    def affinity(self) -> int:
        """GPUs per job of the residents: jobs of one size take turns without gaps. 0: there are none."""
        return self.residents[0].spec.gpus.count if self.residents else 0

    @property
    def suspended(self) -> list[Job]:
        """Residents that wait for their turn."""
        return [job for job in self.residents if job.suspended and takes_part(job)]

    def can_hold(self, job: Job) -> bool:
        """Whether the job fits here when all residents are suspended."""
        servers, limit = gangs.fewest_servers(job.spec.gpus, Listed(self.nodes)), job.spec.gpus.max_nodes
        return servers is not None and (limit is None or servers <= limit)


def takes_part(job: Job) -> bool:
    """Whether the job takes turns: it is not being stopped, paused or moved."""
    return job.lasts and not job.held and job.move is None


def domains(cell: Cell) -> list[Domain]:
    """All usable servers, grouped, in the order in which they joined. Grouped once per change of nodes or gangs."""
    known: list[Domain] | None = cell.__dict__.get(DOMAINS)
    if known is None:
        known = cell.__dict__[DOMAINS] = grouped(cell)
    return known


def grouped(cell: Cell) -> list[Domain]:
    """The same, grouped now."""
    residents = [job for job in cell.jobs.values() if job.phase is Phase.ACTIVE]
    leaders = _leaders(job for job in residents if len(job.gang) > 1)
    found: dict[str, Domain] = {}
    for node in cell.nodes.values():
        if node.present:
            name = leaders.get(node.node_id, node.node_id)
            found.setdefault(name, Domain([], [])).nodes.append(node)
    for job in residents:
        server = job.gang[0].node_id
        domain = found.get(leaders.get(server, server))
        if domain is not None:
            domain.residents.append(job)
    return list(found.values())


def _leaders(spread: Iterable[Job]) -> dict[str, str]:
    """{server: the one that its group is called after}, for servers that gangs span."""
    leaders: dict[str, str] = {}
    for job in spread:
        names = [leaders.get(task.node_id, task.node_id) for task in job.gang]
        joined = dict.fromkeys([*names, *(task.node_id for task in job.gang)])
        for node_id in [*leaders, *joined]:
            if node_id in joined or leaders.get(node_id) in joined:
                leaders[node_id] = names[0]
    return leaders
