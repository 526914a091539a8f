"""CPUs and memory of servers beside their GPUs, and servers as a gang looks at them that needs both.

A gang that needs so much for each of its GPUs sees of a server as many GPUs as there is enough for. So everything that
is decided by free GPUs is decided by CPUs and memory as well, and a gang that asks for neither sees what it always saw.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from services.placement.core.cluster.nodes import Node
from services.placement.core.cluster.servers import Free, Servers, fullness, tie


class Amount(NamedTuple):
    """CPUs and bytes of memory."""

    cpus: int = 0
    memory_bytes: int = 0

    def minus(self, other: Amount) -> Amount:
        """What is left of this without that; less than nothing where there is less."""
        return Amount(self.cpus - other.cpus, self.memory_bytes - other.memory_bytes)

    def times(self, gpus: int) -> Amount:
        """So much for each of so many GPUs."""
        return Amount(self.cpus * gpus, self.memory_bytes * gpus)

    def plus(self, other: Amount) -> Amount:
        """Both together."""
        return Amount(self.cpus + other.cpus, self.memory_bytes + other.memory_bytes)

    def gpus_of(self, need: Amount, most: int) -> int:
        """For how many GPUs this is enough, each with that need; at most so many."""
        for has, needs in zip(self, need, strict=True):
            if needs:
                most = min(most, max(0, has // needs))
        return most


def total_of(node: Node) -> Amount:
    """What the server has."""
    return Amount(node.cpus, node.memory_bytes)


class Rooms(Protocol):
    """For how many GPUs of a server there is enough beside them."""

    def now(self, node: Node, most: int) -> int:
        """As it is now; at most so many."""

    def empty(self, node: Node, most: int) -> int:
        """Were no job there; at most so many."""


_HELD = ["its CPUs or memory, by others"]


class Limited:
    """Servers of which a gang may have as many GPUs as there is enough beside. Its answers cost a look at each server.

    Only gangs that ask for CPUs or memory pay that.
    """

    def __init__(self, whole: Servers, rooms: Rooms) -> None:
        self.whole = whole
        """The same, to a gang that asks for neither."""
        self._rooms = rooms

    def _free(self, pair: Free) -> Free:
        node, indices = pair
        return node, indices[: self._rooms.now(node, len(indices))]

    def _capacity(self, node: Node, gpu_type: str) -> int:
        return self._rooms.empty(node, node.capacity(gpu_type))

    def limited(self, node: Node) -> Node:
        """The server with the GPUs of each type that the gang might have.

        Those that are free and have not enough beside them seem to be held: they are the gang's when others leave.
        """
        healthy: dict[str, list[int]] = {}
        gpus = list(node.gpus)
        for gpu_type, working in node.healthy.items():
            free = self._free((node, node.free(gpu_type)))[1]
            others = [index for index in working if index not in free]
            for index in others:
                if not gpus[index].holders:
                    gpus[index] = replace(gpus[index], holders=_HELD)
            healthy[gpu_type] = sorted([*free, *others[: max(0, self._capacity(node, gpu_type) - len(free))]])
        return replace(node, healthy=healthy, gpus=gpus)

    def nodes(self) -> Iterable[Node]:
        """See `Servers`."""
        return [self.limited(node) for node in self.whole.nodes()]

    def types(self) -> list[str]:
        """See `Servers`."""
        return self.whole.types()

    def with_free(self, gpu_type: str) -> list[Free]:
        """See `Servers`."""
        return [pair for pair in map(self._free, self.whole.with_free(gpu_type)) if pair[1]]

    def fullest(self, gpu_type: str, count: int) -> Free | None:
        """See `Servers`: of those with so many GPUs that the gang may have, the one with the fewest that are free."""
        first = self.whole.fullest(gpu_type, count)  # mostly there is enough beside, and this is it
        if first is None or self._rooms.now(first[0], count) == count:
            return self._free(first) if first is not None else None
        fitting = (pair for pair in self.whole.with_free(gpu_type) if len(self._free(pair)[1]) >= count)
        found = min(fitting, key=lambda pair: fullness(pair, count), default=None)
        return self._free(found) if found is not None else None

    def emptiest(self, gpu_type: str, capacity: int) -> Node | None:
        """See `Servers`."""
        fitting = [node for node in self.whole.nodes() if self._capacity(node, gpu_type) >= capacity]
        limited = (self.limited(node) for node in fitting)
        return min(limited, key=lambda node: (-len(node.free(gpu_type)), tie(node.node_id)), default=None)

    def closest(self, gpu_types: Sequence[str], count: int) -> list[tuple[int, str]]:
        """See `Servers`."""
        most = [
            (max((len(self._free((node, node.free(t)))[1]) for t in gpu_types), default=0), node.node_id)
            for node in self.whole.nodes()
        ]
        return nsmallest(count, most, key=lambda found: (-found[0], tie(found[1])))

    def free(self, gpu_type: str) -> int:
        """See `Servers`."""
        return sum(len(indices) for _, indices in self.with_free(gpu_type))

    def capacities(self, gpu_type: str) -> Mapping[int, int]:
        """See `Servers`."""
        return Counter(self._capacity(node, gpu_type) for node in self.whole.nodes())
