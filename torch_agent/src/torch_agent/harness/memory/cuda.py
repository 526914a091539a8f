"""The memory of a real GPU, limited through torch's own allocator, with pinned memory of the host beyond the limit.

    limit   `set_per_process_memory_fraction`; cached blocks go by `empty_cache`
    beyond  a `MemPool(use_on_oom=True)` (torch 2.8 and later) of host memory that the GPU reads over the bus
    both    storages move by being emptied and filled again, as when a process is suspended (parking/)

**None of this has run on a GPU.** Tests cover which calls are made in which order, with a stand-in for `torch.cuda`.
What only a GPU can show: whether the pool is used before or after cached blocks are given back (it has changed between
versions of torch; here nothing is cached while a limit is in force), whether the pool's bytes count against the
fraction (assumed), and which kernels work on such memory. Agents therefore use it only where they are told to
(`--scale-memory`). Without such pools no limit is set: saved activations go to the host instead.
"""

from __future__ import annotations

import ctypes
import inspect
import re
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from ..parking.parking import as_bytes
from ..parking.storages import live_storages, objects_of
from .device import Usage

SEGMENT_BYTES = 1 << 30
"""Of pinned memory, at a time; the largest tensor that can lie there."""
MAPPED = 0x1 | 0x2
"""cudaHostAllocPortable and cudaHostAllocMapped."""


class CudaMemory:
    """See `DeviceMemory`. The memory of the device that is current, and of its training thread."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._pool: HostPool | None = None
        """Made when a limit is set for the first time."""
        self._has_pools = "use_on_oom" in inspect.signature(torch.cuda.MemPool).parameters
        self._limit: int | None = None
        self._offloading: AbstractContextManager[Any] | None = None

    def boundary(self, limit_bytes: int | None) -> Usage:
        """See `DeviceMemory`. While CUDA graphs are alive, which remember addresses, nothing moves."""
        cuda = self._torch.cuda
        if not cuda.is_initialized():
            return Usage(0, 0, 0, 0, 0)
        if not self._has_pools:
            self._offload(limit_bytes is not None)
            return self._usage()
        changed, self._limit = limit_bytes != self._limit, limit_bytes
        if limit_bytes is not None and self._pool is None:
            self._pool = HostPool(self._torch, _total(cuda))
        pool = self._pool
        if pool is None:
            return self._usage()
        if changed:
            whole = _total(cuda)
            allowed = whole if limit_bytes is None else min(whole, limit_bytes + pool.size)
            cuda.set_per_process_memory_fraction(allowed / whole)
        if limit_bytes is not None:
            cuda.empty_cache()
        if not any(objects_of(cuda.CUDAGraph)):
            self._move(pool, limit_bytes)
        return self._usage()

    def _move(self, pool: HostPool, limit_bytes: int | None) -> None:
        """Out what is too much, largest first; or home what fits."""
        usage = self._usage()
        room = sys.maxsize if limit_bytes is None else limit_bytes - usage.device
        if room >= 0 and not usage.host:
            return
        self._torch.cuda.synchronize()
        for storage in sorted(live_storages(self._torch, "cuda"), key=lambda storage: -storage.nbytes()):
            size, there = storage.nbytes(), pool.holds(storage.data_ptr())
            if room < 0 and not there and pool.fits(size):
                with pool.use():
                    self._refill(storage)
                room += size
            elif there and size <= room:
                self._refill(storage)
                room -= size
        self._torch.cuda.empty_cache()

    def _refill(self, storage: Any) -> None:
        """Give the storage other memory, wherever the allocator takes it from now."""
        size = storage.nbytes()
        kept = as_bytes(self._torch, storage).cpu()
        storage.resize_(0)
        storage.resize_(size)
        as_bytes(self._torch, storage).copy_(kept)

    def _offload(self, wanted: bool) -> None:
        if wanted and self._offloading is None:
            offloading: AbstractContextManager[Any] = self._torch.autograd.graph.save_on_cpu(pin_memory=True)
            offloading.__enter__()
            self._offloading = offloading
        elif not wanted and self._offloading is not None:
            self._offloading.__exit__(None, None, None)
            self._offloading = None

    def _usage(self) -> Usage:
        cuda, pool = self._torch.cuda, self._pool
        reserved, allocated, peak = cuda.memory_reserved(), cuda.memory_allocated(), cuda.max_memory_allocated()
        size = pool.size if pool is not None else 0
        host = pool.used(live_storages(self._torch, "cuda")) if pool is not None and size else 0
        device = max(0, reserved - size)
        return Usage(device, max(0, device - (allocated - host)), host, host, peak)


class HostPool:
    """Pinned memory of the host from which torch allocates when the limit is reached."""

    def __init__(self, torch: Any, most_bytes: int) -> None:
        """Take segments until there are so many bytes, or the host has no more; each is free in the pool afterwards."""
        self._torch = torch
        self._segments: dict[int, int] = {}
        runtime = ctypes.CDLL(_runtime())

        def allocate(size: int, device: int, stream: int) -> int:
            at = ctypes.c_void_p()
            if runtime.cudaHostAlloc(ctypes.byref(at), ctypes.c_size_t(size), MAPPED) or at.value is None:
                return 0
            self._segments[at.value] = size
            return at.value

        def free(at: int, size: int, device: int, stream: int) -> None:
            self._segments.pop(at, None)
            runtime.cudaFreeHost(ctypes.c_void_p(at))

        number, pointer = ctypes.c_size_t, ctypes.c_void_p
        self._calls = (
            ctypes.CFUNCTYPE(pointer, number, ctypes.c_int, pointer)(allocate),
            ctypes.CFUNCTYPE(None, pointer, number, ctypes.c_int, pointer)(free),
        )
        allocator = torch._C._cuda_customAllocator(*(ctypes.cast(call, pointer).value for call in self._calls))
        self._pool = torch.cuda.MemPool(allocator, use_on_oom=True)
        self._fill(most_bytes)

    def _fill(self, most_bytes: int) -> None:
        taken: list[Any] = []
        with self.use():
            try:
                # What was had before one fails stays in the list.
                taken.extend(
                    self._torch.empty(SEGMENT_BYTES, dtype=self._torch.uint8, device="cuda")
                    for _ in range(max(1, most_bytes // SEGMENT_BYTES))
                )
            except RuntimeError as error:  # torch.OutOfMemoryError is one
                print(f"sanjaya: {len(taken)} GiB of the host can take what exceeds a limit: {error}", file=sys.stderr)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(self._segments.values())

    def use(self) -> AbstractContextManager[Any]:
        """What this thread allocates meanwhile lies here."""
        found: AbstractContextManager[Any] = self._torch.cuda.use_mem_pool(self._pool)
        return found

    def holds(self, at: int) -> bool:
        """Whether this address is in one of the segments."""
        return any(begin <= at < begin + size for begin, size in self._segments.items())

    def fits(self, size: int) -> bool:
        """Whether a tensor of this size can lie here at all."""
        return size <= SEGMENT_BYTES

    def used(self, storages: Iterable[Any]) -> int:
        """Bytes of those storages that lie here."""
        return sum(storage.nbytes() for storage in storages if self.holds(storage.data_ptr()))


def _total(cuda: Any) -> int:
    return int(cuda.get_device_properties(cuda.current_device()).total_memory)


def _runtime() -> str:
    """The CUDA runtime that torch has loaded."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        found = re.search(r"\S*/libcudart[^/\s]*\.so\S*", file.read())
    if found is None:
        raise RuntimeError("no CUDA runtime is loaded as a library of its own")
    return found.group()
