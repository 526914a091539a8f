"""Which job within a guarantee is next.

While what can be used of a GPU type is enough for all guarantees, each is met in the end, and the order is that of
arrival. Nodes that are lost or drained, and GPUs that are cordoned, may leave too little for all: then the next is
of the guarantee of which least is in use for its tenant's weight, as it is with what is borrowed, so that the GPUs that
there are go to the guarantees by weight, and to none more than it is. Nothing is taken back for that: a guarantee that
has more than its part keeps it until its jobs end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from services.quota.core.shares import Backing
from services.quota.core.state import State


class Place(NamedTuple):
    """A waiting job that a guarantee backs."""

    latest: int
    """The order of arrival of the last of those of its tenant that go before it, or its own if that is later."""
    job_id: str
    backing: Backing


def in_order(state: State, lines: Sequence[Sequence[Place]], total: Mapping[str, int]) -> list[Place]:
    """All jobs within guarantees, the next one first.

    Args:
        lines: of each tenant, in its own order.
        total: {GPU type: GPUs that can be used}.
    """
    places = sorted(place for line in lines for place in line)
    scarce = _scarce(state, total) if len(places) > 1 else []
    if not scarce:
        return places
    found = [place for place in places if place.backing.gpu_type not in scarce]
    for gpu_type in scarce:
        of_type = ([place for place in line if place.backing.gpu_type == gpu_type] for line in lines)
        found += _by_weight(state, [line for line in of_type if line], gpu_type)
    return found


def _scarce(state: State, total: Mapping[str, int]) -> list[str]:
    """The GPU types of which there is less than is guaranteed; all, where that is so of all types together."""
    guaranteed: dict[str, int] = {}
    for name in state.tenants:
        for key, gpus in state.tree.net(name).items():
            guaranteed[key] = guaranteed.get(key, 0) + gpus
    if sum(guaranteed.values()) > sum(total.values()):
        return list(total)
    return [gpu_type for gpu_type, gpus in total.items() if guaranteed.get(gpu_type, 0) > gpus]


def _by_weight(state: State, lines: Sequence[Sequence[Place]], gpu_type: str) -> list[Place]:
    used = _in_use(state, gpu_type)
    rest, found = [iter(line) for line in lines], list[Place]()
    heads = {number: next(line) for number, line in enumerate(rest)}

    def urgency(number: int) -> tuple[float, Place]:
        place = heads[number]
        return used.get(place.backing.tenant, 0) / state.tenant(place.backing.tenant).weight, place

    while heads:
        number = min(heads, key=urgency)
        place = heads.pop(number)
        found.append(place)
        tenant = place.backing.tenant
        used[tenant] = used.get(tenant, 0) + state.claims[place.job_id].gpus
        following = next(rest[number], None)
        if following is not None:
            heads[number] = following
    return found


def _in_use(state: State, gpu_type: str) -> dict[str, int]:
    """{tenant: GPUs of this type that jobs have of its guarantee}."""
    used: dict[str, int] = {}
    for claim in (state.claims[job_id] for tenant in state.tenants.values() for job_id in tenant.granted):
        if claim.guarantee_of and claim.gpu_type == gpu_type:
            used[claim.guarantee_of] = used.get(claim.guarantee_of, 0) + claim.gpus
    return used
