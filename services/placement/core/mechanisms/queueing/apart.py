"""Servers set apart for small jobs, so that these disturb no gang: an option of `philly`.

The second guideline of the Philly study (Jeon et al., ATC'19, section 6): different jobs that share a server may
interfere with each other. Jobs of one GPU have their servers first, and all others have them last; nothing that is free
stays idle for that.
"""

from __future__ import annotations

from collections.abc import Iterator

from services.placement.core.cell import Cell
from services.placement.core.cluster.servers import Listed, Servers
from services.placement.core.jobs import Job


def preferred(cell: Cell, job: Job, servers: Servers) -> Iterator[Servers]:
    """Where a place for the job is looked for: first among those servers that are meant for its size, then among all.

    Args:
        servers: that the job may use.
    """
    apart = set_apart(cell)
    if apart:
        is_small = job.width == 1
        yield Listed([node for node in servers.nodes() if (node.node_id in apart) is is_small])
    yield servers


def set_apart(cell: Cell) -> dict[str, None]:
    """The servers for small jobs: the first by rack and name of those that can be used."""
    count = int(cell.settings.small_servers)
    if count <= 0:
        return {}
    usable = (node for node in cell.nodes.values() if node.usable)
    ranked = sorted(usable, key=lambda node: (node.rack, node.node_id))
    return dict.fromkeys(node.node_id for node in ranked[:count])
