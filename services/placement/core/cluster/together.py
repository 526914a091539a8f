"""Servers of two kinds, looked at as one group: most are as they are indexed, a few as a gang sees them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest

from msgspec.structs import replace

from services.placement.core.cluster.nodes import Node
from services.placement.core.cluster.servers import Free, Listed, Servers, fullest_of, tie


def without(node: Node, reserved: Mapping[str, int]) -> Node:
    """The node as a gang sees it that may not have all of its GPUs.

    Args:
        node: is not changed.
        reserved: {GPU type: GPUs that others are to have}. The first free ones are kept for them; the others of them
            are among those that jobs hold now.
    """
    healthy = dict(node.healthy)
    for gpu_type, gpus in reserved.items():
        kept = node.free(gpu_type)[:gpus]
        held = [index for index in node.healthy.get(gpu_type, ()) if node.gpus[index].holders]
        gone = [*kept, *held[: gpus - len(kept)]]
        healthy[gpu_type] = [index for index in node.healthy.get(gpu_type, ()) if index not in gone]
    return replace(node, healthy=healthy)


class Together:
    """Two groups of servers that have none in common."""

    def __init__(self, most: Servers, few: Listed) -> None:
        self._groups: tuple[Servers, Servers] = (most, few)

    def nodes(self) -> Iterable[Node]:
        """See `Servers`."""
        return [node for group in self._groups for node in group.nodes()]

    def types(self) -> list[str]:
        """See `Servers`."""
        return sorted({gpu_type for group in self._groups for gpu_type in group.types()})

    def with_free(self, gpu_type: str) -> list[Free]:
        """See `Servers`."""
        return [pair for group in self._groups for pair in group.with_free(gpu_type)]

    def fullest(self, gpu_type: str, count: int) -> Free | None:
        """See `Servers`."""
        return fullest_of((f for group in self._groups if (f := group.fullest(gpu_type, count)) is not None), count)

    def emptiest(self, gpu_type: str, capacity: int) -> Node | None:
        """See `Servers`."""
        found = [node for group in self._groups if (node := group.emptiest(gpu_type, capacity)) is not None]
        return Listed(found).emptiest(gpu_type, capacity)

    def closest(self, gpu_types: Sequence[str], count: int) -> list[tuple[int, str]]:
        """See `Servers`."""
        found = [pair for group in self._groups for pair in group.closest(gpu_types, count)]
        return nsmallest(count, found, key=lambda pair: (-pair[0], tie(pair[1])))

    def free(self, gpu_type: str) -> int:
        """See `Servers`."""
        return sum(group.free(gpu_type) for group in self._groups)

    def capacities(self, gpu_type: str) -> Mapping[int, int]:
        """See `Servers`."""
        return Counter(self._groups[0].capacities(gpu_type)) + Counter(self._groups[1].capacities(gpu_type))
