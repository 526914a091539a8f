"""Where a gang fits: on GPUs of one type, on the fewest servers, close together.

Consolidation and its relaxation over time follow the Philly study (Jeon et al., ATC'19, section 2.3);
taking the fullest server that still fits keeps large holes open for large gangs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from libs.contracts.cluster import TaskPlacement
from libs.contracts.jobs import GpuRequest
from services.placement.core.cluster.nodes import Node


@dataclass(frozen=True)
class Fit:
    """A place for a whole gang."""

    gpu_type: str
    gang: list[TaskPlacement]
    racks: int

    @property
    def nodes(self) -> int:
        """Servers used."""
        return len(self.gang)


def accepted_types(request: GpuRequest, nodes: Sequence[Node]) -> list[str]:
    """GPU types of these nodes that the job accepts: in the order the job names them, else sorted."""
    present = sorted({gpu.gpu_type for node in nodes for gpu in node.gpus})
    wanted = request.types or present
    return [t for t in wanted if t in present and t not in request.excluded_types]


def best_fit(request: GpuRequest, nodes: Sequence[Node]) -> Fit | None:
    """The best place among the free GPUs of these nodes, or None.

    Best: fewest servers, then fewest racks, then the type named first.
    """
    fits = [
        fit
        for gpu_type in accepted_types(request, nodes)
        for fit in _fits_of_type(request, gpu_type, _with_free(nodes, gpu_type))
    ]
    return _best(fits)


def fewest_servers(request: GpuRequest, nodes: Sequence[Node]) -> int | None:
    """On how few of these servers the gang would fit were they empty; None when not at all."""
    counts = [
        _servers_needed(request.count, [node.capacity(gpu_type) for node in nodes])
        for gpu_type in accepted_types(request, nodes)
    ]
    return min((n for n in counts if n is not None), default=None)


def free_gpus(request: GpuRequest, nodes: Sequence[Node]) -> int:
    """Most free GPUs of one accepted type."""
    return max((sum(len(n.free(t)) for n in nodes) for t in accepted_types(request, nodes)), default=0)


def capacity(request: GpuRequest, nodes: Sequence[Node]) -> int:
    """Most healthy GPUs of one accepted type, held or free."""
    return max((sum(n.capacity(t) for n in nodes) for t in accepted_types(request, nodes)), default=0)


def nodes_to_reserve(request: GpuRequest, nodes: Sequence[Node]) -> list[Node]:
    """The servers on which the gang is likely to fit soonest: as few as possible, with most GPUs free already.

    Returns an empty list when the gang does not fit on these servers at all.
    """
    best: list[Node] = []
    best_rank: tuple[int, int] | None = None
    for gpu_type in accepted_types(request, nodes):
        chosen = _reservable(request.count, gpu_type, nodes)
        if chosen:
            rank = (len(chosen), -sum(len(node.free(gpu_type)) for node in chosen))
            if best_rank is None or rank < best_rank:
                best, best_rank = chosen, rank
    return best


def _reservable(count: int, gpu_type: str, nodes: Sequence[Node]) -> list[Node]:
    """Greedy: the servers with most GPUs of the type, among equals those with most of them free."""
    ranked = sorted(nodes, key=lambda n: (-n.capacity(gpu_type), -len(n.free(gpu_type)), n.node_id))
    needed = _servers_needed(count, [n.capacity(gpu_type) for n in ranked])
    if needed is None:
        return []
    if needed == 1:
        fitting = [n for n in ranked if n.capacity(gpu_type) >= count]
        return [min(fitting, key=lambda n: (-len(n.free(gpu_type)), n.node_id))]
    return ranked[:needed]


def _servers_needed(count: int, capacities: Sequence[int]) -> int | None:
    total = 0
    for used, gpus in enumerate(sorted(capacities, reverse=True), start=1):
        total += gpus
        if total >= count:
            return used
    return None


def _fits_of_type(request: GpuRequest, gpu_type: str, free: list[tuple[Node, list[int]]]) -> list[Fit]:
    """One candidate within each rack, and one over all racks; `free`: servers with the GPUs that may be given."""
    single = _on_one_server(request.count, gpu_type, free)
    if single is not None:
        return [single]
    racks = sorted({node.rack for node, _ in free})
    groups = [[(n, i) for n, i in free if n.rack == rack] for rack in racks]
    if len(racks) > 1:
        groups.append(free)
    fits = [_over_servers(request, gpu_type, group) for group in groups]
    return [fit for fit in fits if fit is not None]


def best_of_type(request: GpuRequest, gpu_type: str, free: list[tuple[Node, list[int]]]) -> Fit | None:
    """The candidate on the fewest servers, then in the fewest racks."""
    return _best(_fits_of_type(request, gpu_type, free))


def _best(fits: Iterable[Fit]) -> Fit | None:
    return min(fits, key=lambda fit: (fit.nodes, fit.racks), default=None)


def _with_free(nodes: Sequence[Node], gpu_type: str) -> list[tuple[Node, list[int]]]:
    return [(node, indices) for node in nodes if (indices := node.free(gpu_type))]


def _on_one_server(count: int, gpu_type: str, free: list[tuple[Node, list[int]]]) -> Fit | None:
    fitting = [(node, indices) for node, indices in free if len(indices) >= count]
    if not fitting:
        return None
    node, indices = min(fitting, key=_fullest)
    task = TaskPlacement(node_id=node.node_id, gpu_indices=indices[:count], first_rank=0)
    return Fit(gpu_type=gpu_type, gang=[task], racks=1)


def _fullest(pair: tuple[Node, list[int]]) -> tuple[int, str]:
    """Orders servers by free GPUs, then by name."""
    node, indices = pair
    return len(indices), node.node_id


def _over_servers(request: GpuRequest, gpu_type: str, free: list[tuple[Node, list[int]]]) -> Fit | None:
    """Fewest servers: the emptiest first; the last part goes to the fullest server that can take it."""
    left = sorted(free, key=lambda pair: (-len(pair[1]), pair[0].node_id))
    gang: list[TaskPlacement] = []
    racks: list[str] = []
    rank = 0
    while left and rank < request.count:
        missing = request.count - rank
        enough = [pair for pair in left if len(pair[1]) >= missing]
        node, indices = min(enough, key=_fullest) if enough else left[0]
        left = [pair for pair in left if pair[0] is not node]
        gang.append(TaskPlacement(node_id=node.node_id, gpu_indices=indices[:missing], first_rank=rank))
        racks.append(node.rack)
        rank += len(indices[:missing])
    if rank < request.count or (request.max_nodes is not None and len(gang) > request.max_nodes):
        return None
    return Fit(gpu_type=gpu_type, gang=gang, racks=len(dict.fromkeys(racks)))
