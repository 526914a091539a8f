"""How many GPUs are in use and how many servers are empty, over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from libs.lifecycle.books import Holding
from libs.studies.philly.observed import Load


def beside_small(holdings: Iterable[Holding], end_s: float) -> float | None:
    """The part of the GPU time of gangs that they had on servers where jobs of one GPU ran at the same time.

    None: no gang ran.
    """
    changes: dict[str, list[tuple[float, int, int]]] = {}
    for holding in holdings:
        until_s = end_s if holding.end_s is None else holding.end_s
        for task in holding.gang:
            gpus = len(task.gpu_indices) if holding.gpus > 1 else 0
            of_node = changes.setdefault(task.node_id, [])
            of_node += [(holding.begin_s, gpus, int(not gpus)), (until_s, -gpus, -int(not gpus))]
    shared_s = total_s = 0.0
    for of_node in changes.values():
        gpus, small, since_s = 0, 0, 0.0
        for at_s, more_gpus, more_small in sorted(of_node):
            total_s += gpus * (at_s - since_s)
            shared_s += gpus * (at_s - since_s) if small else 0.0
            gpus, small, since_s = gpus + more_gpus, small + more_small, at_s
    return shared_s / total_s if total_s else None


def loads_of(holdings: Iterable[Holding], servers: Mapping[str, int], end_s: float) -> list[Load]:
    """The stretches between two changes of what is held.

    Args:
        holdings: of all jobs.
        servers: {node id: GPUs} of all servers, which are there from the beginning.
        end_s: until when what still runs is counted.
    """
    total = sum(servers.values())
    changes: list[tuple[float, int, str, int]] = []
    for holding in holdings:
        until_s = end_s if holding.end_s is None else holding.end_s
        for task in holding.gang:
            for index in task.gpu_indices:
                changes += [(holding.begin_s, 1, task.node_id, index), (until_s, -1, task.node_id, index)]
    holders: Counter[tuple[str, int]] = Counter()
    per_node: Counter[str] = Counter()
    found: list[Load] = []
    used, busy_nodes, since_s = 0, 0, 0.0
    for at_s, change, node_id, index in sorted(changes):
        if at_s > since_s and total:
            found.append(Load(used / total, 1.0 - busy_nodes / len(servers), at_s - since_s))
        since_s = at_s
        before = holders[node_id, index]
        holders[node_id, index] += change
        turned = int(before + change > 0) - int(before > 0)
        if turned:
            had = per_node[node_id]
            per_node[node_id] += turned
            used += turned
            busy_nodes += int(had + turned > 0) - int(had > 0)
    return found
