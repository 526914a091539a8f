"""Servers as a gang looks at them: how many GPUs of each type are free where, and how many there are."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice
from typing import Protocol

from services.placement.core.cluster.nodes import Node

Free = tuple[Node, list[int]]
"""A server, and indices of the GPUs of one type that may be given away."""


def tie(node_id: str) -> str:
    """Among servers that are equally good the one with the least of these wins: the first by name."""
    return node_id


class Servers(Protocol):
    """Some servers."""

    def nodes(self) -> Iterable[Node]:
        """The servers."""

    def types(self) -> list[str]:
        """GPU types that they have, sorted."""

    def with_free(self, gpu_type: str) -> list[Free]:
        """Those with free GPUs of the type, in any order."""

    def fullest(self, gpu_type: str, count: int) -> Free | None:
        """Of those with so many free GPUs of the type, the one that `fullness` puts first."""

    def emptiest(self, gpu_type: str, capacity: int) -> Node | None:
        """Of those with so many healthy GPUs of the type, held or free, the one with the most free."""

    def closest(self, gpu_types: Sequence[str], count: int) -> list[tuple[int, str]]:
        """(free GPUs of one of the types, name) of so many servers: most free first, then by name."""

    def free(self, gpu_type: str) -> int:
        """Free GPUs of the type on all of them."""

    def capacities(self, gpu_type: str) -> Mapping[int, int]:
        """{healthy GPUs of the type, held or free: servers that have so many}."""


class Listed:
    """Servers in a list."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes

    def nodes(self) -> Iterable[Node]:
        """See `Servers`."""
        return self._nodes

    def types(self) -> list[str]:
        """See `Servers`."""
        return sorted({gpu.gpu_type for node in self._nodes for gpu in node.gpus})

    def with_free(self, gpu_type: str) -> list[Free]:
        """See `Servers`."""
        return [(node, indices) for node in self._nodes if (indices := node.free(gpu_type))]

    def fullest(self, gpu_type: str, count: int) -> Free | None:
        """See `Servers`."""
        return fullest_of(self.with_free(gpu_type), count)

    def emptiest(self, gpu_type: str, capacity: int) -> Node | None:
        """See `Servers`."""
        fitting = (node for node in self._nodes if node.capacity(gpu_type) >= capacity)
        return min(fitting, key=lambda node: (-len(node.free(gpu_type)), tie(node.node_id)), default=None)

    def closest(self, gpu_types: Sequence[str], count: int) -> list[tuple[int, str]]:
        """See `Servers`."""
        return nsmallest(count, (_most_free(node, gpu_types) for node in self._nodes), key=_most_first)

    def free(self, gpu_type: str) -> int:
        """See `Servers`."""
        return sum(len(node.free(gpu_type)) for node in self._nodes)

    def capacities(self, gpu_type: str) -> Mapping[int, int]:
        """See `Servers`."""
        return Counter(node.capacity(gpu_type) for node in self._nodes)


def entry(node_id: str) -> Entry:
    """The server in an ordered list."""
    return tie(node_id), node_id


def fullness(pair: Free, count: int) -> tuple[int, int, str]:
    """Where so many GPUs are taken first: where the fewest guests are disturbed, then where the fewest are free."""
    node, indices = pair
    return node.guests_on(node.least_shared(indices, count)), len(indices), tie(node.node_id)


def fullest_of(free: Iterable[Free], count: int) -> Free | None:
    """Of servers with so many GPUs to give away, the one that `fullness` puts first."""
    return min((pair for pair in free if len(pair[1]) >= count), key=lambda pair: fullness(pair, count), default=None)


def _most_free(node: Node, gpu_types: Sequence[str]) -> tuple[int, str]:
    return max((len(node.free(t)) for t in gpu_types), default=0), node.node_id


def _most_first(found: tuple[int, str]) -> tuple[int, str]:
    free, node_id = found
    return -free, tie(node_id)


Entry = tuple[str, str]
"""A server in an ordered list: its tie, and its name (`entry`)."""
Parts = dict[str, tuple[list[int], int]]
"""{GPU type: a server's free GPUs of it, and how many healthy ones it has}."""


class ByFree(dict[int, list[Entry]]):
    """{free GPUs: the servers that have so many, ascending}."""

    def add(self, server: Entry, free: int) -> None:
        """The server has so many."""
        if (same := self.get(free)) is None:
            self[free] = [server]
        else:
            insort(same, server)

    def remove(self, server: Entry, free: int) -> None:
        """It has not any more."""
        same = self[free]
        del same[bisect_left(same, server)]
        if not same:
            del self[free]

    def fullest(self, count: int) -> str | None:
        """Of those with so many, the one with the fewest."""
        free = min((free for free in self if free >= count), default=None)
        return self[free][0][1] if free is not None else None


@dataclass
class _OfType:
    """What the usable servers have of one GPU type."""

    free_gpus: int = 0
    by_free: ByFree = field(default_factory=ByFree)
    """Of all servers, those without free GPUs, too."""
    capacities: Counter[int] = field(default_factory=Counter)
    """{healthy GPUs: servers}."""

    def add(self, server: Entry, indices: list[int], capacity: int) -> None:
        """A server has these free GPUs, and so many healthy ones."""
        self.free_gpus += len(indices)
        self.capacities[capacity] += 1
        self.by_free.add(server, len(indices))

    def remove(self, server: Entry, indices: list[int], capacity: int) -> None:
        """It has not any more."""
        self.free_gpus -= len(indices)
        self.capacities[capacity] -= 1
        self.by_free.remove(server, len(indices))


def _parts(node: Node) -> Parts:
    types = dict.fromkeys([gpu.gpu_type for gpu in node.gpus])
    return {gpu_type: (node.free(gpu_type), node.capacity(gpu_type)) for gpu_type in types}


class Index:
    """What is free where on the usable servers, kept up to date server by server.

    Derived of the nodes, and in no snapshot. Where nothing is closed, its answers cost what they return, not what the
    cluster has. `nodes` may be any part of the cluster.
    """

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self.nodes = nodes
        self.usable: dict[str, Parts] = {}
        self.in_order: list[Entry] = []
        """The usable servers, ascending."""
        self.types: dict[str, _OfType] = {}
        self.shared: dict[str, None] = {}
        """The usable servers with guests."""
        self._stale = dict.fromkeys(nodes)

    def refresh(self, node_id: str) -> None:
        """The server has changed, is new, or is none of these any more.

        It is looked at when the index is asked next: where a round begins, a server changes with each job there.
        """
        self._stale[node_id] = None

    def _look_at(self, node_id: str) -> None:
        node, server = self.nodes.get(node_id), entry(node_id)
        before, after = self.usable.get(node_id), _parts(node) if node is not None and node.usable else None
        if before != after:
            if before is not None:
                del self.usable[node_id]
                del self.in_order[bisect_left(self.in_order, server)]
                for gpu_type, part in before.items():
                    self.types[gpu_type].remove(server, *part)
            if after is not None:
                self.usable[node_id] = after
                insort(self.in_order, server)
                for gpu_type, part in after.items():
                    self.types.setdefault(gpu_type, _OfType()).add(server, *part)
        self.shared.pop(node_id, None)
        if after is not None and node is not None and any(gpu.guests for gpu in node.gpus):
            self.shared[node_id] = None

    def without(self, closed: Iterable[str]) -> Servers:
        """The usable servers but for these, as long as none changes."""
        for node_id in self._stale:
            self._look_at(node_id)
        self._stale.clear()
        return _Open(self, closed)

    def agrees(self) -> bool:
        """Whether it is what a new one would be."""
        fresh = Index(self.nodes)
        self.without(()), fresh.without(())
        known = {gpu_type: of_type for gpu_type, of_type in self.types.items() if of_type.by_free}
        found = (self.usable, self.in_order, known, self.shared.keys())
        return found == (fresh.usable, fresh.in_order, fresh.types, fresh.shared.keys())


class _Open:
    """The servers of an index but for a few that are closed."""

    def __init__(self, index: Index, closed: Iterable[str]) -> None:
        self._index = index
        self._closed = {node_id: index.usable[node_id] for node_id in closed if node_id in index.usable}

    def _closed_of(self, gpu_type: str) -> list[tuple[list[int], int]]:
        return [parts[gpu_type] for parts in self._closed.values() if gpu_type in parts]

    def _opened(self, servers: Iterable[Entry]) -> Iterator[str]:
        return (node_id for _, node_id in servers if node_id not in self._closed)

    def _by_free(self, gpu_type: str, least: int, *, most_first: bool = False) -> Iterator[str]:
        """Servers with so many free GPUs of the type at least, by their number, then in order."""
        by_free = self._index.types[gpu_type].by_free
        for free in sorted((free for free in by_free if free >= least), reverse=most_first):
            yield from self._opened(by_free[free])

    def _pair(self, gpu_type: str, node_id: str) -> Free:
        return self._index.nodes[node_id], self._index.usable[node_id][gpu_type][0]

    def nodes(self) -> Iterable[Node]:
        return [self._index.nodes[node_id] for node_id in self._opened(self._index.in_order)]

    def types(self) -> list[str]:
        types = self._index.types
        return sorted(t for t in types if types[t].capacities.total() > len(self._closed_of(t)))

    def with_free(self, gpu_type: str) -> list[Free]:
        return [self._pair(gpu_type, node_id) for node_id in self._by_free(gpu_type, 1)]

    def fullest(self, gpu_type: str, count: int) -> Free | None:
        if self._index.shared:
            return fullest_of(self.with_free(gpu_type), count)
        return next((self._pair(gpu_type, node_id) for node_id in self._by_free(gpu_type, count)), None)

    def emptiest(self, gpu_type: str, capacity: int) -> Node | None:
        servers = (self._index.nodes[node_id] for node_id in self._by_free(gpu_type, 0, most_first=True))
        return next((node for node in servers if node.capacity(gpu_type) >= capacity), None)

    def closest(self, gpu_types: Sequence[str], count: int) -> list[tuple[int, str]]:
        # A server that is among the closest by its best type is among the closest of that type.
        found: dict[str, None] = {}
        for gpu_type in gpu_types:
            found.update(dict.fromkeys(islice(self._by_free(gpu_type, 1, most_first=True), count)))
        if len(found) < count:  # then these are all that have any
            without = (node_id for node_id in self._opened(self._index.in_order) if node_id not in found)
            found.update(dict.fromkeys(islice(without, count - len(found))))
        nodes = (self._index.nodes[node_id] for node_id in found)
        return nsmallest(count, (_most_free(node, gpu_types) for node in nodes), key=_most_first)

    def free(self, gpu_type: str) -> int:
        return self._index.types[gpu_type].free_gpus - sum(len(indices) for indices, _ in self._closed_of(gpu_type))

    def capacities(self, gpu_type: str) -> Mapping[int, int]:
        return self._index.types[gpu_type].capacities - Counter(capacity for _, capacity in self._closed_of(gpu_type))
