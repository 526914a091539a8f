"""The memory of a virtual GPU, which allocator.c keeps: the agent preloads it into the processes of its tasks."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

from .device import Usage

UNLIMITED = 2**64 - 1
RANGE_PER_DEVICE = 8
"""Addresses by memory of the device: freed blocks of different sizes keep theirs."""
TRIAL_BYTES = 1 << 20


class _Usage(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in Usage._fields]


class PreloadedMemory:
    """See `DeviceMemory`. Sizes are those of blocks, multiples of 16 KB; tensors below 64 KB are not among them."""

    def __init__(self, library: Any) -> None:
        self._boundary = library.sanjaya_memory_boundary
        self._boundary.argtypes, self._boundary.restype = [ctypes.c_uint64, ctypes.POINTER(_Usage)], None
        self._usage = _Usage()
        self._at = ctypes.byref(self._usage)

    @classmethod
    def begin(cls, torch: Any, device_bytes: int) -> PreloadedMemory | None:
        """Keep the tensors that torch allocates from now on.

        Args:
            torch: the module.
            device_bytes: memory of the virtual GPU.

        Returns:
            None where no limit can be set; stderr has the reason.
        """
        library = ctypes.CDLL(None)
        if not hasattr(library, "sanjaya_memory_begin"):
            _say("the agent's library was not loaded (LD_PRELOAD was changed)")
            return None
        error = library.sanjaya_memory_begin(
            ctypes.c_uint64(device_bytes * RANGE_PER_DEVICE), ctypes.c_uint64(device_bytes)
        )
        if error:
            _say(os.strerror(error))
            return None
        memory = cls(library)
        tensor = torch.empty(TRIAL_BYTES, dtype=torch.uint8)
        in_use = memory.boundary(None).device
        del tensor
        trim()
        if in_use < TRIAL_BYTES:
            _say("its torch does not allocate by posix_memalign")
            return None
        return memory

    def boundary(self, limit_bytes: int | None, *, is_owner: bool = False) -> Usage:
        """See `DeviceMemory`. The host takes all that is beyond a limit, so that no process fails for want of it."""
        self._boundary(UNLIMITED if limit_bytes is None else limit_bytes, self._at)
        found = self._usage
        return Usage(found.device, found.cached, found.host, found.most_on_host, found.most_in_use)


def _say(why: str) -> None:
    print(f"sanjaya: no limit can be set to the memory of this process: {why}", file=sys.stderr)


def trim() -> None:
    """Let go of blocks that are cached, here and in libc: this process's own memory is what the device has."""
    library = ctypes.CDLL(None)
    if hasattr(library, "sanjaya_memory_trim"):
        library.sanjaya_memory_trim()
    library.malloc_trim(0)
