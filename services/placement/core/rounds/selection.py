"""Which rows get a round on which GPU type: Gavel's Algorithm 1, with credit in the place of X_opt / f."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter

import msgspec


class Claim(msgspec.Struct, frozen=True):
    """A row that is to run on a GPU type."""

    jobs: tuple[str, ...]
    gpu_type: str
    width: int
    """GPUs that it needs."""
    priority: float
    """What it will be owed, in units of its lag, and one more where it runs."""
    order: int
    """Breaks ties: order of arrival."""


class Wish(msgspec.Struct, frozen=True):
    """A job that takes what nobody claims."""

    job_id: str
    width: int
    rates: Mapping[str, float]
    """{GPU type: steps per second}."""
    running_on: str
    """The GPU type that it holds; empty: it waits."""


class Seat(msgspec.Struct, frozen=True):
    """A row that runs in the coming round."""

    jobs: tuple[str, ...]
    gpu_type: str
    width: int


def select(claims: Iterable[Claim], free: dict[str, int]) -> list[Seat]:
    """The rows of this round; what is given is subtracted from `free`.

    Highest priority first; a row is passed over when one of its jobs has a place already or too few GPUs are left.
    """
    seats: list[Seat] = []
    taken: set[str] = set()
    by_arrival = sorted(claims, key=attrgetter("order"))
    for claim in sorted(by_arrival, key=attrgetter("priority"), reverse=True):
        if claim.width <= free.get(claim.gpu_type, 0) and taken.isdisjoint(claim.jobs):
            free[claim.gpu_type] -= claim.width
            taken.update(claim.jobs)
            seats.append(Seat(claim.jobs, claim.gpu_type, claim.width))
    return seats


def fill(wishes: Iterable[Wish], free: dict[str, int]) -> list[Seat]:
    """The jobs that use what is left; subtracts from `free`.

    Who runs already goes on where it is; then the others, in the order given, each on its fastest type; among equals
    on the type of which most is left.
    """
    listed = list(wishes)
    chosen: dict[str, Seat] = {}
    for wish in listed:
        if wish.running_on and wish.width <= free.get(wish.running_on, 0) and wish.rates.get(wish.running_on, 0.0) > 0:
            chosen[wish.job_id] = Seat((wish.job_id,), wish.running_on, wish.width)
            free[wish.running_on] -= wish.width
    for wish in listed:
        if wish.job_id not in chosen:
            possible = [t for t, rate in wish.rates.items() if rate > 0 and wish.width <= free.get(t, 0)]
            if possible:
                best = max(possible, key=lambda t: (wish.rates[t], free[t], t))
                chosen[wish.job_id] = Seat((wish.job_id,), best, wish.width)
                free[best] -= wish.width
    return list(chosen.values())
