"""How many GPUs are in use and how many servers are empty, over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from libs.lifecycle.books import Holding
from libs.studies.philly.observed import Load


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
