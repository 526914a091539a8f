"""A task with several GPUs of a node: each GPU has its own coordination, its processes hear of one change at a time.

Each process has the limit of its GPU. One share for all of them, the smallest, because ranks wait for each other; so is
pacing, and never is one rank stopped alone.
"""

from __future__ import annotations

import msgspec

from libs.coordination.actions import AnyAction, Pace, SetLimit, SetShare


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """Which changes of its GPUs the processes have applied once they say that they have applied this number."""

    number: int
    changes: dict[int, int]


class Gang(msgspec.Struct, kw_only=True):
    """What the GPUs of one task want of it."""

    gpus: list[int]
    limits: dict[int, int | None] = {}
    changes: dict[int, int] = {}
    """{GPU: number of its newest change}."""
    shares: dict[int, float] = {}
    paced: bool = False
    written: list[Written] = []
    """Oldest first; the first one is applied, or was in force before."""

    @property
    def limits_in_order(self) -> tuple[int | None, ...]:
        """Of its process on each of its GPUs; None: unlimited."""
        return tuple(self.limits.get(gpu) for gpu in self.gpus)

    @property
    def share_ratio(self) -> float:
        """For all of its processes."""
        return min(self.shares.values(), default=1.0)


def take(gang: Gang, gpu: int, action: AnyAction) -> None:
    """Note what one of the GPUs wants."""
    if isinstance(action, SetLimit):
        gang.limits[gpu], gang.changes[gpu] = action.limit_bytes, action.change
    elif isinstance(action, SetShare):
        gang.shares[gpu] = action.share_ratio
    elif isinstance(action, Pace):
        gang.paced = gang.paced or action.paced


def wrote(gang: Gang, number: int) -> None:
    """The processes can read the newest changes under this number."""
    if not gang.written or gang.written[-1].number != number:
        gang.written.append(Written(number=number, changes=dict(gang.changes)))


def applied(gang: Gang, gpu: int, number: int) -> int:
    """The newest change of a GPU that processes have applied which say this number; older numbers are forgotten."""
    while len(gang.written) > 1 and gang.written[1].number <= number:
        gang.written.pop(0)
    known = gang.written[0] if gang.written and gang.written[0].number <= number else None
    return known.changes.get(gpu, 0) if known is not None else 0
