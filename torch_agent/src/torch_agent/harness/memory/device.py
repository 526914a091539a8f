"""What a limit asks of a device's memory, whichever device it is."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Usage(NamedTuple):
    """Where the memory of a process is, in bytes."""

    device: int
    """On the device, cached blocks included."""
    cached: int
    """Of these, in blocks that are free."""
    host: int
    """On the host, because it does not fit."""
    most_on_host: int
    """At any moment of the mini-batch that has just ended."""
    most_in_use: int
    """At any moment of that mini-batch, wherever it lay."""


class DeviceMemory(Protocol):
    """The memory that one process has on its device."""

    def boundary(self, limit_bytes: int | None, *, is_owner: bool = False) -> Usage:
        """A mini-batch is over: have no more than this on the device from now on.

        What is cached goes first, then what is in use moves to the host. What lies there and fits comes back. A tensor
        that is younger than the mini-batch stays where it is until the next boundary.

        Args:
            limit_bytes: None: there is no limit.
            is_owner: the limit is what guests leave to this process, which is not to fail for want of it.
        """
