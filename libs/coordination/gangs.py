"""A task with several GPUs of a node: each GPU has its own coordination, its processes hear of one change at a time.

Each process has the limit of its GPU. One share for all of them, the smallest, because ranks wait for each other; so is
pacing, and never is one rank stopped alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """Which changes of its GPUs the processes have applied once they say that they have applied this number."""

    number: int
    changes: dict[int, int]


class Gang(msgspec.Struct, kw_only=True):
    """What the processes of one task were told."""

    gpus: list[int]
    paced: bool = False
    written: list[Written] = []
    """Oldest first; the first one is applied, or was in force before."""


def wrote(gang: Gang, number: int, changes: Mapping[int, int]) -> bool:
    """The processes can read these changes under this number: {GPU: number of its newest change}.

    Returns:
        Whether that is news: the next reading may say that more is applied.
    """
    latest = Written(number=number, changes=dict(changes))
    if gang.written and gang.written[-1] == latest:
        return False
    if gang.written and gang.written[-1].number == number:
        gang.written.pop()  # what was written then says the newest changes as well
    gang.written.append(latest)
    return True


def applied(gang: Gang, gpu: int, number: int) -> int:
    """The newest change of a GPU that processes have applied which say this number; older numbers are forgotten."""
    while len(gang.written) > 1 and gang.written[1].number <= number:
        gang.written.pop(0)
    known = gang.written[0] if gang.written and gang.written[0].number <= number else None
    return known.changes.get(gpu, 0) if known is not None else 0
