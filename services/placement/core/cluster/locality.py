"""How close together a gang is to be, and where it fits so: ranked racks and servers (Philly study, section 2.3)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from libs.contracts.jobs import GpuRequest
from services.placement.core.cluster import gangs
from services.placement.core.cluster.nodes import Node
from services.placement.core.cluster.servers import Free, Listed, Servers


class Locality(IntEnum):
    """What a gang accepts, the strictest first; each step relaxes the one before."""

    FEWEST_SERVERS = 0
    """As few servers as possible, in one rack."""
    ONE_SERVER_MORE = 1
    """One server more than needed, in one rack."""
    ONE_RACK = 2
    """Any number of servers of one rack."""
    ANYWHERE = 3

    @property
    def words(self) -> str:
        """For people."""
        return ("the fewest servers of a rack", "one server more than needed", "any servers of a rack", "any servers")[
            self
        ]


def fit_within(request: GpuRequest, servers: Servers, locality: Locality, *, packed: bool = True) -> gangs.Fit | None:
    """The best place among the free GPUs that the gang accepts, or None.

    A gang that needs several servers goes to the rack with most free GPUs of those where it needs the fewest servers,
    and there to the servers with most free GPUs.

    Args:
        packed: a job that needs a part of a server goes to the fullest that has room, so that small jobs are packed
            onto few servers; else it goes to the one with most free GPUs, as the study ranks servers for any job that
            is not small.
    """
    if locality is Locality.ANYWHERE or no_rack_holds(request, servers):
        return gangs.best_fit(request, servers)
    fewest = gangs.fewest_servers(request, servers)
    if fewest is None:
        return None
    most = {Locality.FEWEST_SERVERS: fewest, Locality.ONE_SERVER_MORE: fewest + 1}.get(locality)
    fits: list[gangs.Fit] = []
    for gpu_type in gangs.accepted_types(request, servers):
        single = servers.fullest(gpu_type, request.count) if packed else _emptiest(gpu_type, request.count, servers)
        if single is not None:
            fits.append(gangs.on_one(request, gpu_type, single))
        elif servers.free(gpu_type) >= request.count:
            racks = _ranked(servers.with_free(gpu_type))
            found = (gangs.over_servers(request, gpu_type, rack) for rack in racks)
            fits += [fit for fit in found if fit is not None and (most is None or fit.nodes <= most)]
    return min(fits, key=lambda fit: (fit.nodes, fit.guests), default=None)


def _emptiest(gpu_type: str, count: int, servers: Servers) -> Free | None:
    """The server with most free GPUs, if it has so many."""
    node = servers.emptiest(gpu_type, count)
    free = node.free(gpu_type) if node is not None else []
    return (node, free) if node is not None and len(free) >= count else None


def collect_within(request: GpuRequest, servers: Servers, locality: Locality) -> gangs.Collection | None:
    """Where the gang's GPUs are to be acquired as they become free: in the rack where most of them are free already.

    None where it does not fit, were the servers empty.
    """
    anywhere = gangs.to_collect(request, servers)
    if anywhere is None or len(anywhere.parts) == 1 or locality is Locality.ANYWHERE:
        return anywhere
    racks = [gangs.to_collect(request, Listed(nodes)) for nodes in _by_rack(servers.nodes()).values()]
    found = [collection for collection in racks if collection is not None]
    if not found:
        return anywhere
    return min(found, key=lambda each: (len(each.parts), -sum(len(part.kept) for part in each.parts)))


def no_rack_holds(request: GpuRequest, servers: Servers) -> bool:
    """Whether the gang is larger than every rack, so that it cannot wait for one."""
    if gangs.fewest_servers(request, servers) in (None, 1):
        return False
    return not any(gangs.can_hold(request, Listed(nodes)) for nodes in _by_rack(servers.nodes()).values())


def _by_rack(nodes: Iterable[Node]) -> dict[str, list[Node]]:
    found: dict[str, list[Node]] = {}
    for node in sorted(nodes, key=lambda node: (node.rack, node.node_id)):
        found.setdefault(node.rack, []).append(node)
    return found


def _ranked(free: list[Free]) -> list[list[Free]]:
    """Racks, the one with most free GPUs first."""
    racks: dict[str, list[Free]] = {}
    for pair in sorted(free, key=lambda pair: (pair[0].rack, pair[0].node_id)):
        racks.setdefault(pair[0].rack, []).append(pair)
    return sorted(racks.values(), key=lambda rack: -sum(len(indices) for _, indices in rack))
