"""What a task may have of its GPUs, and how that lies in its control file (control.py)."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable
from dataclasses import dataclass

NUMBER = struct.Struct("<Q")
RATIO = struct.Struct("<d")
UNLIMITED = 2**64 - 1
"""Stands for a memory without a limit."""
PLACES = 16
"""Of so many GPUs of the task the file has a limit of its own; processes on further ones keep to the smallest."""
OWNER, GUEST = "owner", "guest"
ROLES = (OWNER, GUEST)
"""By their numbers in the file."""
Limits = tuple[int | None, ...]
"""Bytes of a task's process on each of its GPUs, in their order; None: without a limit. Empty: all are."""
Content = bytes | bytearray | mmap.mmap
_ROLE, _LIMIT, _SHARE = 8, 16, 24
"""Where they are behind the number of the change."""


@dataclass(frozen=True)
class Allowance:
    """What a task may have of each of its GPUs (AntMan, OSDI'20, section 3.1)."""

    role: str = OWNER
    """`owner`, or `guest`."""
    memory_limits: Limits = ()
    share_ratio: float = 1.0
    """Of the GPU's time, from 0 to 1, beside the gaps that the owner leaves."""

    def limit_at(self, place: int) -> int | None:
        """Of its process on the GPU with this place; the smallest where that has no limit of its own."""
        return self.memory_limits[place] if place < len(self.memory_limits) else smallest(self.memory_limits)


def smallest(limits: Iterable[int | None]) -> int | None:
    """Of several limits; None: there is none."""
    return min((limit for limit in limits if limit is not None), default=None)


@dataclass(frozen=True)
class AllowanceAt:
    """Where a version of the file has it: number of the change, role, smallest limit and share, eight bytes each."""

    at: int
    places_at: int | None = None
    """Of how many GPUs limits follow, and these. None: in that version all processes keep to the smallest."""

    def change(self, data: Content) -> int:
        """Number of the last change."""
        return number(data, self.at)

    def share(self, data: Content) -> float:
        """Of the GPU's time."""
        return float(RATIO.unpack_from(data, self.at + _SHARE)[0])

    def limit(self, data: Content, place: int | None) -> int | None:
        """Of the process on the GPU with this place among the task's; None: there is none.

        Args:
            data: of the file.
            place: None: it is not known, or the process uses several.
        """
        if place is not None and place < self._places(data):
            return _limit(data, self._place_at(place))
        return _limit(data, self.at + _LIMIT)

    def read(self, data: Content) -> Allowance:
        """All of it, in reach of a task, which may have written any numbers."""
        role = ROLES[min(number(data, self.at + _ROLE), len(ROLES) - 1)]
        limits = tuple(self.limit(data, place) for place in range(self._places(data)))
        least = self.limit(data, None)
        return Allowance(role, limits or (() if least is None else (least,)), self.share(data))

    def write(self, content: bytearray, what: Allowance) -> None:
        """All of it but the number of the change."""
        least = smallest(what.memory_limits)
        NUMBER.pack_into(content, self.at + _ROLE, ROLES.index(what.role))
        _put(content, self.at + _LIMIT, least)
        RATIO.pack_into(content, self.at + _SHARE, what.share_ratio)
        if self.places_at is None:
            return
        limits = () if least is None else what.memory_limits[:PLACES]
        NUMBER.pack_into(content, self.places_at, len(limits))
        for place, limit in enumerate(limits):
            _put(content, self._place_at(place), limit)

    def _places(self, data: Content) -> int:
        """Of so many GPUs there are limits in the file."""
        return 0 if self.places_at is None else min(number(data, self.places_at), PLACES)

    def _place_at(self, place: int) -> int:
        assert self.places_at is not None
        return self.places_at + NUMBER.size * (1 + place)


def number(data: Content, at: int) -> int:
    """The eight bytes there."""
    return int(NUMBER.unpack_from(data, at)[0])


def _limit(data: Content, at: int) -> int | None:
    found = number(data, at)
    return None if found == UNLIMITED else found


def _put(content: bytearray, at: int, limit: int | None) -> None:
    NUMBER.pack_into(content, at, UNLIMITED if limit is None else limit)
