"""Where a gang fits: on GPUs of one type, on the fewest servers, close together.

Consolidation and its relaxation over time follow the Philly study (Jeon et al., ATC'19, section 2.3);
taking the fullest server that still fits keeps large holes open for large gangs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import nsmallest

from libs.contracts.cluster import TaskPlacement
from libs.contracts.jobs import GpuRequest
from libs.contracts.placement import ReservedPart
from services.placement.core.cluster.nodes import Node
from services.placement.core.cluster.servers import Free, Servers, fullest_of


@dataclass(frozen=True)
class Fit:
    """A place for a whole gang."""

    gpu_type: str
    gang: list[TaskPlacement]
    racks: int
    guests: int = 0
    """Seats of guests on its GPUs."""

    @property
    def nodes(self) -> int:
        """Servers used."""
        return len(self.gang)


@dataclass(frozen=True)
class Collection:
    """Servers on which a gang's GPUs are to be collected as they become free."""

    gpu_type: str
    parts: list[ReservedPart]
    """Together as many GPUs as the gang needs; those that are free already are kept."""


def accepted_types(request: GpuRequest, servers: Servers) -> list[str]:
    """GPU types of these servers that the job accepts: in the order the job names them, else sorted."""
    present = servers.types()
    wanted = request.types or present
    return [t for t in wanted if t in present and t not in request.excluded_types]


def best_fit(request: GpuRequest, servers: Servers) -> Fit | None:
    """The best place among the free GPUs of these servers, or None.

    Best: fewest servers, then fewest racks, then fewest guests disturbed, then the type named first.
    """
    fits: list[Fit] = []
    for gpu_type in accepted_types(request, servers):
        single = servers.fullest(gpu_type, request.count)
        if single is not None:
            fits.append(on_one(request, gpu_type, single))
        elif servers.free(gpu_type) >= request.count:
            fits += _over_several(request, gpu_type, servers.with_free(gpu_type))
    return _best(fits)


def fewest_servers(request: GpuRequest, servers: Servers) -> int | None:
    """On how few of these servers the gang would fit were they empty; None when not at all."""
    counts = [
        _servers_needed(request.count, servers.capacities(gpu_type)) for gpu_type in accepted_types(request, servers)
    ]
    return min((n for n in counts if n is not None), default=None)


def can_hold(request: GpuRequest, servers: Servers) -> bool:
    """Whether the gang would fit on these servers, and on as few as it accepts, were they empty."""
    fewest = fewest_servers(request, servers)
    return fewest is not None and (request.max_nodes is None or fewest <= request.max_nodes)


def free_gpus(request: GpuRequest, servers: Servers) -> int:
    """Most free GPUs of one accepted type."""
    return max((servers.free(t) for t in accepted_types(request, servers)), default=0)


def capacity(request: GpuRequest, servers: Servers) -> int:
    """Most healthy GPUs of one accepted type, held or free."""
    types = accepted_types(request, servers)
    return max((sum(gpus * n for gpus, n in servers.capacities(t).items()) for t in types), default=0)


def to_collect(request: GpuRequest, servers: Servers) -> Collection | None:
    """Where the gang is likely to fit soonest: on as few servers as possible, with most GPUs free already.

    Returns None when the gang does not fit on these servers, or not on as few as it accepts, were they empty.
    """
    best: Collection | None = None
    best_rank: tuple[int, int] | None = None
    for gpu_type in accepted_types(request, servers):
        chosen = _reservable(request.count, gpu_type, servers)
        if chosen and (request.max_nodes is None or len(chosen) <= request.max_nodes):
            rank = (len(chosen), -sum(len(node.free(gpu_type)) for node in chosen))
            if best_rank is None or rank < best_rank:
                rooms = [(node, node.capacity(gpu_type)) for node in chosen]
                best, best_rank = Collection(gpu_type, parts(request.count, gpu_type, rooms)), rank
    return best


def parts(count: int, gpu_type: str, rooms: Iterable[tuple[Node, int]]) -> list[ReservedPart]:
    """What a gang is to have of each server, in this order and at most as many as are named, until it is complete."""
    found: list[ReservedPart] = []
    missing = count
    for node, most in rooms:
        gpus = min(most, missing)
        found.append(ReservedPart(node_id=node.node_id, gpus=gpus, kept=node.free(gpu_type)[:gpus]))
        missing -= gpus
    return found


def _reservable(count: int, gpu_type: str, servers: Servers) -> list[Node]:
    """Greedy: the servers with most GPUs of the type, among equals those with most of them free."""
    needed = _servers_needed(count, servers.capacities(gpu_type))
    if needed is None:
        return []
    if needed == 1:
        emptiest = servers.emptiest(gpu_type, count)
        return [emptiest] if emptiest is not None else []
    return nsmallest(needed, servers.nodes(), key=lambda n: (-n.capacity(gpu_type), -len(n.free(gpu_type)), n.node_id))


def _servers_needed(count: int, capacities: Mapping[int, int]) -> int | None:
    """How many servers, the largest first, have so many GPUs; `capacities` as `Servers` says."""
    used, missing = 0, count
    for gpus, servers in sorted(capacities.items(), reverse=True):
        if gpus * servers >= missing > 0:
            return used + -(-missing // gpus)
        used, missing = used + servers, missing - gpus * servers
    return None


def _over_several(request: GpuRequest, gpu_type: str, free: list[Free]) -> list[Fit]:
    """One candidate within each rack, and one over all racks; `free`: servers with the GPUs that may be given."""
    racks = sorted({node.rack for node, _ in free})
    groups = [[(n, i) for n, i in free if n.rack == rack] for rack in racks]
    if len(racks) > 1:
        groups.append(free)
    fits = [over_servers(request, gpu_type, group) for group in groups]
    return [fit for fit in fits if fit is not None]


def best_of_type(request: GpuRequest, gpu_type: str, free: list[Free]) -> Fit | None:
    """The candidate on the fewest servers, then in the fewest racks; `free`: GPUs that may be given away."""
    single = fullest_of(free, request.count)
    if single is not None:
        return on_one(request, gpu_type, single)
    return over_several(request, gpu_type, free)


def over_several(request: GpuRequest, gpu_type: str, free: list[Free]) -> Fit | None:
    """The same where no server alone has so many."""
    return _best(_over_several(request, gpu_type, free))


def _best(fits: Iterable[Fit]) -> Fit | None:
    return min(fits, key=lambda fit: (fit.nodes, fit.racks, fit.guests), default=None)


def on_one(request: GpuRequest, gpu_type: str, free: Free) -> Fit:
    """The place on a server that has so many GPUs."""
    node, indices = free
    taken = node.least_shared(indices, request.count)
    task = TaskPlacement(node_id=node.node_id, gpu_indices=taken, first_rank=0)
    return Fit(gpu_type=gpu_type, gang=[task], racks=1, guests=node.guests_on(taken))


def over_servers(request: GpuRequest, gpu_type: str, free: list[Free]) -> Fit | None:
    """Fewest servers: the emptiest first; the last part goes to the fullest server that can take it."""
    left = sorted(free, key=lambda pair: (-len(pair[1]), pair[0].node_id))
    gang: list[TaskPlacement] = []
    racks: list[str] = []
    rank = guests = 0
    while left and rank < request.count:
        missing = request.count - rank
        node, indices = fullest_of(left, missing) or left[0]
        left = [pair for pair in left if pair[0] is not node]
        taken = node.least_shared(indices, missing)
        gang.append(TaskPlacement(node_id=node.node_id, gpu_indices=taken, first_rank=rank))
        racks.append(node.rack)
        rank += len(taken)
        guests += node.guests_on(taken)
    if rank < request.count or (request.max_nodes is not None and len(gang) > request.max_nodes):
        return None
    return Fit(gpu_type=gpu_type, gang=gang, racks=len(dict.fromkeys(racks)), guests=guests)
