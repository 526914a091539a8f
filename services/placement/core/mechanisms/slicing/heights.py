"""How high the domains are, by what they are made of: where an over-subscribed job is to begin is read off."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from services.placement.core.cell import Cell
from services.placement.core.cluster.nodes import Node
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.suspending.domains import Domain

Ranked = list[tuple[int, str]]
"""(load, name) of domains, ascending: of domains with equally many GPUs that is by height, then by name."""
Make = tuple[tuple[tuple[tuple[str, int], ...], int, int, tuple[str, ...]], ...]
"""(GPU type, healthy GPUs of it), CPUs, memory and features of each server of a domain."""


@dataclass(eq=False)
class Alike:
    """Domains with the same healthy GPUs, CPUs, memory and features: what one of them can hold, all can."""

    make: Make
    gpus: int
    """Of each."""
    members: dict[str, Domain] = field(default_factory=dict)
    load: int = 0
    """Of all together."""
    by_affinity: dict[int, Ranked] = field(default_factory=dict)
    _holds: dict[str, bool] = field(default_factory=dict)

    def can_hold(self, shape: str, job: Job) -> bool:
        """Whether a job of the shape fits on one of these when all residents are suspended."""
        known = self._holds.get(shape)
        if known is None:
            known = self._holds[shape] = next(iter(self.members.values())).can_hold(job)
        return known

    def add(self, domain: Domain) -> None:
        """The domain is one of these."""
        self.members[domain.name] = domain
        self.load += domain.load
        insort(self.by_affinity.setdefault(domain.affinity, []), (domain.load, domain.name))

    def remove(self, domain: Domain) -> None:
        """It is not any more."""
        del self.members[domain.name]
        self.load -= domain.load
        ranked = self.by_affinity[domain.affinity]
        del ranked[bisect_left(ranked, (domain.load, domain.name))]
        if not ranked:
            del self.by_affinity[domain.affinity]


class Heights:
    """The domains on which jobs may begin: a view of the domains."""

    def __init__(self, cell: Cell) -> None:
        self.version = 0
        """Another number after each change."""
        self._alike: dict[Make, Alike] = {}
        self._of: dict[str, Alike] = {}

    def add(self, domain: Domain) -> None:
        """See `View`."""
        self.version += 1
        if any(node.usable for node in domain.nodes):
            make = _make(domain)
            alike = self._of[domain.name] = self._alike.setdefault(make, Alike(make, domain.gpus))
            alike.add(domain)

    def remove(self, domain: Domain) -> None:
        """See `View`."""
        self.version += 1
        alike = self._of.pop(domain.name, None)
        if alike is not None:
            alike.remove(domain)
            if not alike.members:
                del self._alike[alike.make]

    def of(self, name: str) -> Alike | None:
        """The domains like this one; None: nothing may begin on it."""
        return self._of.get(name)

    def that_hold(self, shape: str, job: Job) -> Iterator[Alike]:
        """The kinds of domains on which a job of this shape fits."""
        return (alike for alike in self._alike.values() if alike.can_hold(shape, job))


def _make(domain: Domain) -> Make:
    servers = ((_gpus(node), node.cpus, node.memory_bytes, _features(node)) for node in domain.nodes)
    return tuple(sorted(servers))


def _features(node: Node) -> tuple[str, ...]:
    """With its name, where a job avoids it: then no other is like it."""
    return (*node.features, node.node_id) if node.avoided_by else tuple(node.features)


def _gpus(node: Node) -> tuple[tuple[str, int], ...]:
    return tuple(sorted({gpu.gpu_type: node.capacity(gpu.gpu_type) for gpu in node.gpus}.items()))
