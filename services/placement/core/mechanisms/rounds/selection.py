"""Which rows get a round on which GPU type: Gavel's Algorithm 1, with credit in the place of X_opt / f."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter

import msgspec

Room = tuple[str, str | int]
"""What jobs that cannot go everywhere compete for, beside GPUs of a type: GPUs of a (server, type), a single GPU
(server, index), or memory of the hosts of a type ("", type)."""
Rooms = dict[Room, int]
"""{room: GPUs}."""
NOTHING: Mapping[Room, int] = {}


class Assignment(msgspec.Struct, frozen=True, gc=False):
    """A row that runs on a GPU type."""

    jobs: tuple[str, ...]
    gpu_type: str
    width: int
    """GPUs that it needs."""
    needs: Mapping[Room, int]
    """Rooms that it must have, whatever else is free."""


class Claim(Assignment, frozen=True):
    """A assignment that a row wants in the coming round."""

    priority: float
    """Its deficit at the end of the round, in units of its lag, and one more where it runs."""
    order: int
    """Decides between equals: order of arrival."""


class Backfill(msgspec.Struct, frozen=True, gc=False):
    """A backfill request: a job that takes what no row claims."""

    job_id: str
    width: int
    rates: Mapping[str, float]
    """{GPU type: steps per second}."""
    running_on: str
    """The GPU type that it holds; empty: it waits."""
    needs: Mapping[str, Mapping[Room, int]] = {}
    """{GPU type: rooms that it must have there}, where it must have any."""


def select(claims: Iterable[Claim], free: dict[str, int], rooms: Rooms) -> list[Claim]:
    """The rows of this round; what is given is subtracted from `free` and `rooms`.

    Highest priority first; a row is passed over when one of its jobs has a place already or too few GPUs are left.
    """
    assignments: list[Claim] = []
    taken: set[str] = set()
    by_arrival = sorted(claims, key=attrgetter("order"))
    for claim in sorted(by_arrival, key=attrgetter("priority"), reverse=True):
        if claim.width <= free.get(claim.gpu_type, 0) and taken.isdisjoint(claim.jobs):
            if claim.needs and not _take(rooms, claim.needs):
                continue
            free[claim.gpu_type] -= claim.width
            taken.update(claim.jobs)
            assignments.append(claim)
            if free[claim.gpu_type] == 0 and not any(free.values()):
                break
    return assignments


def fill(requests: Iterable[Backfill], free: dict[str, int], rooms: Rooms) -> list[Assignment]:
    """The jobs that use what is left; subtracts from `free` and `rooms`.

    A job that runs already goes on where it is; then the others, in the order given, each on its fastest type; among
    equals on the type of which most is left.
    """
    listed = list(requests)
    chosen: dict[str, Assignment] = {}
    for request in listed:
        if request.running_on and request.rates.get(request.running_on, 0.0) > 0:
            _fill_one(request, [request.running_on], free, rooms, chosen)
    for request in listed:
        if request.job_id not in chosen:
            possible = [t for t, rate in request.rates.items() if rate > 0 and request.width <= free.get(t, 0)]
            by_choice = sorted(possible, key=lambda t: (request.rates[t], free[t], t), reverse=True)
            _fill_one(request, by_choice, free, rooms, chosen)
    return list(chosen.values())


def _fill_one(
    request: Backfill, types: list[str], free: dict[str, int], rooms: Rooms, chosen: dict[str, Assignment]
) -> None:
    """On the first of these types that has room for it."""
    for gpu_type in types:
        needs = request.needs.get(gpu_type, NOTHING)
        if request.width <= free.get(gpu_type, 0) and _take(rooms, needs):
            chosen[request.job_id] = Assignment((request.job_id,), gpu_type, request.width, needs)
            free[gpu_type] -= request.width
            return


def _take(rooms: Rooms, needs: Mapping[Room, int]) -> bool:
    """Subtract what is needed, if there is as much of each room."""
    for room, gpus in needs.items():
        if rooms.get(room, 0) < gpus:
            return False
    for room, gpus in needs.items():
        rooms[room] -= gpus
    return True
