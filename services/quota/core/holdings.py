"""What the cell has of each GPU type, and what granted jobs hold of it: kept, so that a look walks over neither."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from services.quota.core.nouns import Claim, Node


@dataclass
class Held:
    """What the granted jobs of one GPU type hold together."""

    jobs: int = 0
    gpus: int = 0
    """That they have, or may have (`held`)."""
    guaranteed_gpus: int = 0
    """Of jobs within guarantees."""
    placed_gpus: int = 0
    """Of jobs that have their GPUs."""
    victims: int = 0
    """Jobs that were told to give back what they had borrowed, and have not yet."""
    victims_gpus: int = 0

    def add(self, part: _Part, sign: int) -> None:
        """A job is one of them from now on (1) or not any more (-1)."""
        gpus = sign * part.gpus
        self.jobs += sign
        self.gpus += gpus
        self.guaranteed_gpus += gpus * part.guaranteed
        self.placed_gpus += gpus * part.placed
        self.victims += sign * part.victim
        self.victims_gpus += gpus * part.victim


class _Part(NamedTuple):
    """What one granted job counts with."""

    gpu_type: str
    gpus: int
    guaranteed: bool
    placed: bool
    victim: bool


NOTHING = Held()


@dataclass
class Holdings:
    """Sums over all nodes and all granted claims.

    Derived of both, and in no snapshot. Its answers are those of a new one as long as `changed` is told of each claim
    that is granted, ends or changes; when a node changes, another one is made.
    """

    nodes: Mapping[str, Node]
    claims: Mapping[str, Claim]
    capacity: dict[str, int] = field(init=False)
    """{GPU type: GPUs that jobs may have}: healthy and not cordoned, on nodes that are there and take new jobs. In
    order of first sight, also types of nodes that are away."""

    def __post_init__(self) -> None:
        self.capacity = _capacity(self.nodes)
        self._parts: dict[int, _Part] = {}
        """{order of arrival: what the job counts with}, of granted ones."""
        self._of_type: dict[str, Held] = {}
        self._resting: dict[int, Claim] = {}
        """{order of arrival: borrower that was a victim before}."""
        self._stale = {claim.seq: claim for claim in self.claims.values() if claim.granted}

    def changed(self, claim: Claim) -> None:
        """What the job holds, or may hold, is other than before. It is looked at when a sum is asked for next."""
        if claim.granted or claim.seq in self._parts:
            self._stale[claim.seq] = claim
        else:
            self._stale.pop(claim.seq, None)

    def by_type(self) -> Mapping[str, Held]:
        """{GPU type: what is held of it}, of the types that granted jobs count for."""
        self._look()
        return self._of_type

    def were_victims(self) -> Collection[Claim]:
        """Granted jobs that have borrowed, and were told before to give back what they had then; in any order."""
        self._look()
        return self._resting.values()

    def placed_gpus(self, gpu_type: str) -> int:
        """GPUs of this type that jobs have, not those that were granted and not placed yet."""
        return self.by_type().get(gpu_type, NOTHING).placed_gpus

    def _look(self) -> None:
        for claim in self._stale.values():
            self._look_at(claim)
        self._stale.clear()

    def _look_at(self, claim: Claim) -> None:
        before = self._parts.pop(claim.seq, None)
        self._resting.pop(claim.seq, None)
        if before is not None:
            of_type = self._of_type[before.gpu_type]
            of_type.add(before, -1)
            if not of_type.jobs:
                del self._of_type[before.gpu_type]
        if claim.granted:
            gpus = held(self.nodes, claim)
            part = _Part(claim.gpu_type, gpus, bool(claim.guarantee_of), bool(claim.gang), claim.is_victim)
            self._parts[claim.seq] = part
            self._of_type.setdefault(part.gpu_type, Held()).add(part, 1)
            if not part.guaranteed and claim.victim_s is not None:
                self._resting[claim.seq] = claim

    def agrees(self) -> bool:
        """Whether it is what a new one would be."""
        fresh = Holdings(self.nodes, self.claims)
        known, found = ((each.capacity, each.by_type(), each._resting) for each in (self, fresh))
        return known == found


def held(nodes: Mapping[str, Node], claim: Claim) -> int:
    """How many of the GPUs that `Holdings.capacity` counts the granted job has, or may have.

    GPUs that a job still has on a node which has gone or is drained are none of them, nor are those that are not
    healthy or cordoned: a cordon takes as much from what there is as from what is granted, and so nothing from any
    other job. The same of a node that was set apart for the pool since; but a trial there counts with its whole grant,
    because its gang comes after it.
    An elastic job that has shrunk, or grown, counts with what it was granted: it may have that back, and keeps no more
    when others need it.
    """
    in_trial = sum(map(len, claim.gang.values())) < claim.gpus
    lost = (_is_lost(nodes.get(node_id), i, in_trial) for node_id, indices in claim.gang.items() for i in indices)
    return max(0, claim.gpus - sum(lost))


def _is_lost(node: Node | None, index: int, in_trial: bool) -> bool:
    return node is None or not (node.can_use(index) or (in_trial and node.in_pool))


def _capacity(nodes: Mapping[str, Node]) -> dict[str, int]:
    found = {gpu_type: 0 for node in nodes.values() for gpu_type in node.gpu_types}
    for node in nodes.values():
        for index, gpu_type in enumerate(node.gpu_types if node.takes_jobs else ()):
            found[gpu_type] += node.can_use(index)
    return found
