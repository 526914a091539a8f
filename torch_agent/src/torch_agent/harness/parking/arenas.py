"""Where a device's memory lies while its owner is suspended."""

from __future__ import annotations

import mmap
import os
from typing import Any, Protocol

from ..memory.preloaded import trim

ALIGNMENT = 512
"""Of every piece, bytes: what CUDA's allocator uses."""


def aligned(size: int) -> int:
    """Rounded up, so that the next piece begins well."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class Arena(Protocol):
    """Host memory for the pieces of one suspension, one after the other."""

    def open(self, size: int) -> Any:
        """A byte tensor in host memory of at least this size."""

    def close(self) -> None:
        """What lies in it is not needed any more; called after everything was brought back."""

    def settle(self) -> None:
        """All pieces are in: let go of what is not needed to keep them."""


class FileArena:
    """A file in memory, for devices that are the host itself (virtual GPUs).

    It has no name and belongs to the process alone: when that dies, however, the kernel takes the memory back.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._file = -1
        self._size = 0
        self._map: mmap.mmap | None = None

    def open(self, size: int) -> Any:
        """See `Arena`."""
        if self._file < 0:
            self._file = os.memfd_create("sanjaya-parked", os.MFD_CLOEXEC)
        if self._map is None:
            self._size = max(size, self._size)
            os.ftruncate(self._file, self._size)
            self._map = mmap.mmap(self._file, self._size)
        return self._torch.frombuffer(self._map, dtype=self._torch.uint8)

    def settle(self) -> None:
        """Unmap the file and give freed memory back: the process's own memory is what the device has."""
        self._unmap()
        trim()

    def close(self) -> None:
        """See `Arena`."""
        self._unmap()
        os.ftruncate(self._file, 0)
        self._size = 0

    def _unmap(self) -> None:
        """The map goes when the last tensor on it does."""
        self._map = None


class PinnedArena:
    """Page-locked memory, for real GPUs. It is kept for the next time: locking pages is slow (a few GB/s)."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._memory: Any = None

    def open(self, size: int) -> Any:
        """See `Arena`."""
        if self._memory is None or self._memory.numel() < size:
            self._memory = None
            self._memory = self._torch.empty(size, dtype=self._torch.uint8, pin_memory=True)
        return self._memory

    def settle(self) -> None:
        """See `Arena`; the memory is the copy itself."""

    def close(self) -> None:
        """See `Arena`; kept."""
