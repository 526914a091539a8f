"""Virtual ranks: a job is divided among them once and for all, and they among its processes."""

from __future__ import annotations

import os
from dataclasses import dataclass

VIRTUAL_RANKS = "SANJAYA_VIRTUAL_RANKS"
"""Environment variable: how many a job has that declares an elastic range."""


@dataclass(frozen=True)
class VirtualRanks:
    """Of one process. Its own ones are consecutive."""

    total: int
    """Of the job, for its whole life."""
    rank: int
    world: int
    """Processes: `total`, or half, a quarter and so on."""

    def __post_init__(self) -> None:
        each = self.total // self.world
        if each * self.world != self.total or each & (each - 1):
            raise ValueError(f"sanjaya: {self.total} virtual ranks cannot be halved until there are {self.world}")

    @property
    def each(self) -> int:
        """Virtual ranks of one process, a power of two."""
        return self.total // self.world

    @property
    def mine(self) -> range:
        """This process's."""
        return range(self.rank * self.each, (self.rank + 1) * self.each)

    @property
    def paired(self) -> int:
        """Processes with virtual ranks that can be summed up in pairs of equal size, a power of two."""
        largest_power = self.total & -self.total
        return largest_power // self.each


def virtual_ranks(rank: int, world: int) -> VirtualRanks:
    """As the environment says; where it does not, every process is one.

    Raises:
        ValueError: they cannot be divided so.
    """
    return VirtualRanks(int(os.environ.get(VIRTUAL_RANKS) or world), rank, world)
