"""Servers set apart for small jobs, so that these disturb no gang: an option of `philly`.

The second guideline of the Philly study (Jeon et al., ATC'19, section 6): different jobs that share a server may
interfere with each other. Jobs of one GPU have their servers first, and all others have them last; nothing that is free
stays idle for that.
"""

from __future__ import annotations

from collections.abc import Iterator

from services.placement.core.cell import Cell
from services.placement.core.cluster.locality import no_rack_holds
from services.placement.core.cluster.servers import Listed, Servers
from services.placement.core.jobs import Job


def preferred(cell: Cell, job: Job, servers: Servers) -> Iterator[Servers]:
    """Where a place for the job is looked for: first among those servers that are meant for its size, then among all.

    Args:
        servers: that the job may use.
    """
    apart = for_small_jobs(cell)
    if apart:
        is_small = job.width == 1
        meant = Listed([node for node in servers.nodes() if (node.node_id in apart) is is_small])
        # A gang that only a rack with servers for small jobs can hold is not spread over racks for their sake.
        if no_rack_holds(job.spec.gpus, servers) or not no_rack_holds(job.spec.gpus, meant):
            yield meant
    yield servers


def for_small_jobs(cell: Cell) -> dict[str, None]:
    """The first servers by rack and name of those that can be used, and are not in the pool for trials."""
    count = int(cell.settings.small_servers)
    if count <= 0:
        return {}
    usable = (node for node in cell.nodes.values() if node.usable and node.node_id not in cell.set_apart)
    ranked = sorted(usable, key=lambda node: (node.rack, node.node_id))
    return dict.fromkeys(node.node_id for node in ranked[:count])
