"""The GPUs of a node behind one small interface: real ones through NVML, or virtual ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from libs.contracts.cluster import GpuInfo

Others = Mapping[tuple[int, str], float]
"""{(GPU index, task): CPU time that the task has used for this GPU so far}."""
NO_OTHERS: Others = {}


class GpuReading(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU at one moment."""

    index: int
    utilisation_ratio: float
    memory_used_bytes: int
    temperature_c: float | None = None
    fault: str = ""
    """Why the GPU must not get new work; empty while it is healthy."""


class GpuFacts(Protocol):
    """What the agent asks of its GPUs."""

    virtual: bool

    def inventory(self) -> list[GpuInfo]:
        """The node's GPUs, by index."""

    def read(self, holders: Mapping[int, Sequence[int]], others: Others = NO_OTHERS) -> Sequence[GpuReading]:
        """Look at every GPU.

        Args:
            holders: {GPU index: pids of the processes that use it, as they say themselves}.
            others: the tasks of which no process says so.
        """
