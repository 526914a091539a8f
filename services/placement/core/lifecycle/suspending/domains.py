"""Servers as Gandiva sees them: their residents, their height, their affinity (OSDI'18, section 4.2).

The unit is a *domain*: servers that a gang spans take their turns together. Nearly always it is one server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Protocol, TypeVar

from services.placement.core.cell import Cell
from services.placement.core.cluster import gangs
from services.placement.core.cluster.features import has
from services.placement.core.cluster.nodes import Node
from services.placement.core.cluster.servers import Listed
from services.placement.core.jobs import Job, Phase
from services.placement.core.promises import when_empty


@dataclass(frozen=True)
class Domain:
    """Servers on which jobs take turns together. Made anew when anything changes there."""

    nodes: list[Node]
    residents: list[Job]
    """Jobs that run here or are suspended here, in order of arrival."""

    @cached_property
    def name(self) -> str:
        """That of its first server."""
        return self.nodes[0].node_id

    @cached_property
    def gpus(self) -> int:
        """Healthy GPUs, in use or not."""
        return sum(len(indices) for node in self.nodes for indices in node.healthy.values())

    @property
    def height(self) -> float:
        """GPUs of its residents per GPU: above 1 they must take turns."""
        return self.load / self.gpus if self.gpus else float("inf")

    @cached_property
    def load(self) -> int:
        """GPUs that its residents have, or will have in their turn."""
        return sum(job.width for job in self.residents)

    @cached_property
    def affinity(self) -> int:
        """GPUs per job of the residents: jobs of one size take turns without gaps. 0: there are none.

        As it was when the domain was made: a job that has left may ask for others meanwhile.
        """
        return self.residents[0].spec.gpus.count if self.residents else 0

    @property
    def suspended(self) -> list[Job]:
        """Residents that wait for their turn."""
        return [job for job in self.residents if job.suspended and takes_part(job)]

    def can_hold(self, job: Job) -> bool:
        """Whether the job fits here when all residents are suspended."""
        able = [node for node in self.nodes if has(node, job.needs)]
        return gangs.can_hold(job.spec.gpus, when_empty(job, Listed(able)))


def takes_part(job: Job) -> bool:
    """Whether the job takes turns: it is not being stopped, paused or moved, and does not wait for quota."""
    return job.lasts and not job.held and job.move is None and not job.awaits_quota


class View(Protocol):
    """What is known of all domains, kept up to date domain by domain."""

    def add(self, domain: Domain) -> None:
        """The domain is new, or is like this from now on."""

    def remove(self, domain: Domain) -> None:
        """It is not any more."""


V = TypeVar("V", bound=View)


class Domains:
    """All present servers, grouped; derived of nodes and gangs, and in no snapshot. What is touched is grouped anew."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._places: dict[str, int] = {}
        """{server: its place in the order in which they joined}."""
        self._together: dict[str, list[str]] = {}
        """{server: those that gangs tie to it, itself among them}, absent ones, too."""
        self._of: dict[str, Domain] = {}
        """{present server: its domain}."""
        self._views: dict[object, View] = {}
        self._regroup(cell.nodes)

    def view(self, make: Callable[[Cell], V]) -> V:
        """What was made of all domains when it was first asked for, and was kept up to date since."""
        found = self._views.get(make)
        if found is None:
            found = self._views[make] = make(self._cell)
            for domain in self.listed():
                found.add(domain)
        return found  # type: ignore[return-value]  # kept under what has made it

    def listed(self) -> list[Domain]:
        """In the order in which their first servers joined."""
        return self.ordered(dict.fromkeys(domain.name for domain in self._of.values()))

    def ordered(self, names: Iterable[str]) -> list[Domain]:
        """The domains with these names, in the same order."""
        return [self._of[name] for name in sorted(names, key=self._places.__getitem__)]

    def of(self, node_id: str) -> Domain:
        """The domain of a present server."""
        return self._of[node_id]

    def refresh(self) -> None:
        """Take note of what has been touched."""
        touched = list(self._cell.touched)
        if touched:
            self._cell.touched.clear()
            self._regroup(touched)

    def _regroup(self, touched: Iterable[str]) -> None:
        # A gang that begins or ends somewhere touches all of its servers: those that it tied or will tie together are
        # among these, or tied to one of them.
        fresh: dict[str, None] = {}
        for node_id in touched:
            self._places.setdefault(node_id, len(self._places))
            fresh.update(dict.fromkeys(self._together.get(node_id, (node_id,))))
        gone = [self._of.pop(node_id) for node_id in fresh if node_id in self._of]
        for domain in {domain.name: domain for domain in gone}.values():
            for view in self._views.values():
                view.remove(domain)
        for node_id in fresh:
            self._together.pop(node_id, None)
        for node_id in fresh:
            if node_id not in self._together:
                self._group(node_id)

    def _group(self, node_id: str) -> None:
        cell = self._cell
        tied, jobs = {node_id: None}, dict.fromkeys(cell.residents.get(node_id, ()))
        if any(len(cell.jobs[job_id].gang) > 1 for job_id in jobs):
            tied, jobs = _tied_to(cell, node_id)
        servers = list(tied)
        self._together.update(dict.fromkeys(servers, servers))
        present = [server for server in servers if cell.nodes[server].present]
        if not present:
            return
        nodes = [cell.nodes[server] for server in sorted(present, key=self._places.__getitem__)]
        domain = Domain(nodes, sorted((cell.jobs[job_id] for job_id in jobs), key=attrgetter("seq")))
        self._of.update(dict.fromkeys(present, domain))
        for view in self._views.values():
            view.add(domain)


def _tied_to(cell: Cell, node_id: str) -> tuple[dict[str, None], dict[str, None]]:
    """The servers that gangs tie to this one, directly or over others, and all jobs that have a gang there."""
    servers: dict[str, None] = {node_id: None}
    jobs: dict[str, None] = {}
    todo = [node_id]
    while todo:
        for job_id in cell.residents.get(todo.pop(), ()):
            if job_id not in jobs:
                jobs[job_id] = None
                new = [task.node_id for task in cell.jobs[job_id].gang if task.node_id not in servers]
                servers.update(dict.fromkeys(new))
                todo += new
    return servers, jobs


_NAME = "domains"


def up_to_date(cell: Cell) -> Domains:
    """All domains as they are now."""
    known: Domains | None = cell.__dict__.get(_NAME)
    if known is None:
        cell.touched.clear()
        known = cell.__dict__[_NAME] = Domains(cell)
    known.refresh()
    return known


def domains(cell: Cell) -> list[Domain]:
    """All domains, in the order in which their first servers joined."""
    return up_to_date(cell).listed()


def domain_of(cell: Cell, job: Job) -> Domain:
    """The domain on which the job runs or is suspended."""
    return up_to_date(cell).of(next(task.node_id for task in job.gang if cell.nodes[task.node_id].present))


def grouped(cell: Cell) -> list[Domain]:
    """The same, all grouped now: what the domains that are kept up to date are checked against."""
    residents = [job for job in cell.without_guests() if job.phase is Phase.ACTIVE]
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
