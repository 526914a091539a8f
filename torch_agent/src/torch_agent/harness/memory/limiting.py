"""At each mini-batch boundary: how much may this process have on its device, and how much has it?

agent writes a limit and the number of the change ──> at the next boundary: what does not fit goes to the host
                                                 ──> page: the change is applied, what is where
"""

from __future__ import annotations

import os
from typing import Any

from ..allowance import OWNER
from ..control import ControlReader
from ..page import Memory, PageWriter
from .cuda import CudaMemory
from .device import DeviceMemory
from .preloaded import PreloadedMemory

SCALES = "SANJAYA_SCALES_MEMORY"
"""`1` where the agent limits memory; it sets this for every process of a task, and the other as well."""
DEVICE_BYTES = "SANJAYA_GPU_MEMORY_LIMIT_BYTES"
"""Memory of one GPU."""


class Limiter:
    """Of one training process; made anew after a fork."""

    def __init__(self, control: ControlReader, memory: DeviceMemory) -> None:
        self._control, self._memory = control, memory
        self._learn(control.change)

    def begin(self) -> None:
        """Keep to the limit that the task has been started with."""
        if self._limit_bytes is not None:
            self._memory.boundary(self._limit_bytes, is_owner=self._is_owner)

    def _learn(self, change: int) -> None:
        """What is in force since this change."""
        self._change = change
        self._limit_bytes, self._is_owner = self._control.limit_bytes, self._control.allowance.role == OWNER

    def boundary(self, page: PageWriter) -> int:
        """A mini-batch is over: keep to the limit that is in force now. Returns the bytes in use at most."""
        change = self._control.change  # before the limit, which is then this change's or a later one's
        if change != self._change:
            self._learn(change)
        usage = self._memory.boundary(self._limit_bytes, is_owner=self._is_owner)
        page.memory(Memory(change, *usage))
        return usage.most_in_use


def device_memory(torch: Any) -> DeviceMemory | None:
    """The memory that this process has on its device; None: it cannot be limited."""
    if os.environ.get(SCALES) != "1":
        return None
    if torch.cuda.is_available():
        return CudaMemory(torch)
    return PreloadedMemory.begin(torch, int(os.environ[DEVICE_BYTES]))
