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
        """Of those with so many free GPUs of the type, the one with the fewest."""

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


def fullest_of(free: Iterable[Free], count: int) -> Free | None:
    """Of servers with so many GPUs to give away, the one with the fewest."""
    fitting = (pair for pair in free if len(pair[1]) >= count)
    return min(fitting, key=lambda pair: (len(pair[1]), tie(pair[0].node_id)), default=None)


def _most_free(node: Node, gpu_types: Sequence[str]) -> tuple[int, str]:
    return max((len(node.free(t)) for t in gpu_types), default=0), node.node_id


def _most_first(found: tuple[int, str]) -> tuple[int, str]:
    free, node_id = found
    return -free, node_id


@dataclass
class _OfType:
    """What the usable servers have of one GPU type."""

    servers: int = 0
    """Those with a GPU of the type, healthy or not."""
    free: dict[str, list[int]] = field(default_factory=dict)
    """{server: its free GPUs}, where there are any."""
    by_count: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    """{free GPUs, or none: (tie, server), ascending}."""
    free_gpus: int = 0
    capacities: Counter[int] = field(default_factory=Counter)


class Index:
    """What is free where on the usable servers, kept up to date server by server.

    Derived of the nodes, and in no snapshot. Where nothing is closed, its answers cost what they return, not what the
    cluster has.
    """

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes
        self._types: dict[str, _OfType] = {}
        self._known: dict[str, dict[str, tuple[list[int], int]]] = {}
        """{usable server: {GPU type: its free GPUs, and its healthy ones}}."""
        self._names: list[str] = []
        """The usable servers, sorted."""
        for node_id in nodes:
            self.refresh(node_id)

    def refresh(self, node_id: str) -> None:
        """The server has changed, or is new."""
        if node_id in self._known:
            del self._names[bisect_left(self._names, node_id)]
        for gpu_type, (indices, capacity) in self._known.pop(node_id, {}).items():
            self._count(node_id, self._types[gpu_type], indices, capacity, -1)
        node = self._nodes[node_id]
        if node.usable:
            insort(self._names, node_id)
            parts = {gpu_type: (node.free(gpu_type), node.capacity(gpu_type)) for gpu_type in _types_of(node)}
            self._known[node_id] = parts
            for gpu_type, (indices, capacity) in parts.items():
                self._count(node_id, self._types.setdefault(gpu_type, _OfType()), indices, capacity, 1)

    def _count(self, node_id: str, of_type: _OfType, indices: list[int], capacity: int, sign: int) -> None:
        of_type.servers += sign
        of_type.free_gpus += sign * len(indices)
        of_type.capacities[capacity] += sign
        same = of_type.by_count.setdefault(len(indices), [])
        entry = tie(node_id), node_id
        if sign > 0:
            insort(same, entry)
        else:
            del same[bisect_left(same, entry)]
        if indices and sign > 0:
            of_type.free[node_id] = indices
        elif indices:
            del of_type.free[node_id]

    def without(self, closed: Iterable[str]) -> Servers:
        """The usable servers but for these."""
        return _Open(self._nodes, self._types, self._known, self._names, dict.fromkeys(closed))

    def agrees(self) -> bool:
        """Whether it is what a new one would be."""
        fresh = Index(self._nodes)
        return self._known == fresh._known and all(
            self._types.get(gpu_type, _OfType()).free == of_type.free for gpu_type, of_type in fresh._types.items()
        )


def _types_of(node: Node) -> dict[str, None]:
    return dict.fromkeys(gpu.gpu_type for gpu in node.gpus)


class _Open:
    """The servers of an index but for a few that are closed."""

    def __init__(
        self,
        nodes: Mapping[str, Node],
        types: Mapping[str, _OfType],
        known: Mapping[str, dict[str, tuple[list[int], int]]],
        names: Sequence[str],
        closed: Mapping[str, None],
    ) -> None:
        self._nodes, self._types, self._names = nodes, types, names
        self._closed = {node_id: known[node_id] for node_id in closed if node_id in known}

    def _closed_of(self, gpu_type: str) -> Iterator[tuple[list[int], int]]:
        return (parts[gpu_type] for parts in self._closed.values() if gpu_type in parts)

    def nodes(self) -> Iterable[Node]:
        return [node for node_id, node in self._nodes.items() if node.usable and node_id not in self._closed]

    def types(self) -> list[str]:
        closed = Counter(gpu_type for parts in self._closed.values() for gpu_type in parts)
        return sorted(t for t, of_type in self._types.items() if of_type.servers > closed[t])

    def with_free(self, gpu_type: str) -> list[Free]:
        free = self._types[gpu_type].free.items()
        return [(self._nodes[node_id], indices) for node_id, indices in free if node_id not in self._closed]

    def fullest(self, gpu_type: str, count: int) -> Free | None:
        of_type = self._types[gpu_type]
        for free in sorted(n for n, same in of_type.by_count.items() if n >= count and same):
            for _, node_id in of_type.by_count[free]:
                if node_id not in self._closed:
                    return self._nodes[node_id], of_type.free[node_id]
        return None

    def emptiest(self, gpu_type: str, capacity: int) -> Node | None:
        of_type = self._types[gpu_type]
        for free in sorted(of_type.by_count, reverse=True):
            for _, node_id in of_type.by_count[free]:
                node = self._nodes[node_id]
                if node_id not in self._closed and node.capacity(gpu_type) >= capacity:
                    return node
        return None

    def closest(self, gpu_types: Sequence[str], count: int) -> list[tuple[int, str]]:
        # A server that is among the closest by its best type is among the closest of that type.
        found: dict[str, None] = {}
        for gpu_type in gpu_types:
            found.update(dict.fromkeys(islice(self._most_free(gpu_type), count)))
        if len(found) < count:  # then these are all that have any
            without = (name for name in self._names if name not in found and name not in self._closed)
            found.update(dict.fromkeys(islice(without, count - len(found))))
        return nsmallest(count, (_most_free(self._nodes[name], gpu_types) for name in found), key=_most_first)

    def _most_free(self, gpu_type: str) -> Iterator[str]:
        """Servers with free GPUs of the type, most first, then by name."""
        by_count = self._types[gpu_type].by_count
        for free in sorted((n for n in by_count if n > 0), reverse=True):
            yield from (name for name in sorted(name for _, name in by_count[free]) if name not in self._closed)

    def free(self, gpu_type: str) -> int:
        return self._types[gpu_type].free_gpus - sum(len(indices) for indices, _ in self._closed_of(gpu_type))

    def capacities(self, gpu_type: str) -> Mapping[int, int]:
        found = self._types[gpu_type].capacities
        return found - Counter(capacity for _, capacity in self._closed_of(gpu_type)) if self._closed else found
