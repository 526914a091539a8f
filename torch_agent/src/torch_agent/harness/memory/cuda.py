"""The memory of a real GPU, limited through torch's own allocator, with locked memory of the host beyond the limit.

    limit        `set_per_process_memory_fraction`; what is cached goes by `empty_cache` when the limit falls
    activations  those that did not fit go to the host by copies, and come back for backward (activations.py)
    else         pools of host memory (host_pool.py; torch 2.8 and later) that the GPU reads and writes over the bus
    between      storages move by being emptied and filled again, as when a process is suspended (parking/)

torch counts the pools against the fraction, too: limit and pools together are at most the whole GPU, which is as much
as a process that fits onto it can need. Without such pools no limit is set, and only activations go.

An owner is not held to its limit, which is what its guests leave to it: a burst takes what the GPU has, and the pools
only where that has no more. Held to the limit, an owner failed as soon as a burst was larger than the host's memory,
beside a GPU that was half empty. What it has cached goes when its limit falls.

Seen with torch 2.11 (tests/bench/results/gpu.md): pools are used before cached blocks are given back, small tensors lie
there, too, and losses under random limits are those without limits to the bit. What lies in a pool is slow, because
kernels read it over the bus again and again: with a tenth of its memory a model of large tensors was 118 times as slow
where AntMan (OSDI'20, figure 10) found a quarter.
"""

from __future__ import annotations

import inspect
import os
import sys
from bisect import insort
from contextlib import AbstractContextManager, nullcontext, suppress
from operator import itemgetter
from typing import Any, NamedTuple

from ..parking.parking import as_bytes, refill
from ..parking.storages import live_storages
from .activations import Activations, CudaCopies
from .device import Usage
from .host_pool import GRAIN_BYTES, PART_OF_HOST, HostPool, available

SPARE = 1.25
"""The host has to have more than what is beyond the limit: tensors do not fill its segments."""
KEPT_FOR = 100
"""Boundaries without a limit, after which the host's memory is given back."""
ROUNDS = 4
"""Moving a storage out does not free its block where others lie in it, so that more have to go."""
CONFIGURATION = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
WITHOUT_POOLS = ("max_split_size_mb", "roundup_power2_divisions", "expandable_segments", "cudaMallocAsync")
"""Settings of torch's allocator with which it takes no blocks of pools like these, or not all."""


class Counts(NamedTuple):
    """What the allocator counts, in bytes, with the pools of the host."""

    reserved: int
    in_use: int
    most_in_use: int
    """Since the last boundary, or without a limit since the process began."""


class CudaMemory:
    """See `DeviceMemory`. The memory of the device that was current at the first limit, and of its training thread."""

    def __init__(self, torch: Any, most_on_host: int | None = None) -> None:
        """Without a limit.

        Args:
            torch: the module.
            most_on_host: bytes of the host for what is beyond a limit, and as many for activations; None: a part of
                what the host has left at the first limit.
        """
        self._torch, self._most_on_host = torch, most_on_host
        self._device = -1
        self._activations: Activations | None = None
        self._pool: HostPool | None = None
        """These three are there from the first limit on; the pool only where torch has such."""
        self._has_pools = _has_pools(torch)
        self._limit: int | None = None
        """That this process is held to."""
        self._left: int | None = None
        """What others leave to it: its limit, also where it is not held to that."""
        self._needs = 0
        """The most that it had in use at any time."""
        self._unlimited = 0
        """Boundaries without a limit since the last one with a limit."""
        self._host = 0
        """Bytes there, as far as known."""
        self._tried: tuple[int | None, int, int] | None = None
        """The limit, and the bytes in use and of the pools, with which nothing could be moved."""
        self._one_stream = True

    def boundary(self, limit_bytes: int | None, *, is_owner: bool = False) -> Usage:
        """See `DeviceMemory`. While CUDA graphs are alive, which remember addresses, nothing moves."""
        cuda = self._torch.cuda
        if not cuda.is_initialized():
            return Usage(0, 0, 0, 0, 0)
        most_in_use = self._counts().most_in_use
        if limit_bytes is not None and self._activations is None:
            self._begin()
        if self._activations is None or self._device != cuda.current_device():
            return self._usage(most_in_use, 0)
        gone = self._activations.ended()
        self._needs = max(self._needs, most_in_use + gone)
        limit = None if is_owner else limit_bytes
        if self._pool is not None:
            self._keep_to(self._pool, limit, limit_bytes)
        self._activations.want(limit, gone, most_in_use)  # after what is cached has gone: it may look for a while
        cuda.reset_peak_memory_stats()
        return self._usage(most_in_use, gone)

    def _begin(self) -> None:
        """A limit is set for the first time."""
        self._device = self._torch.cuda.current_device()
        most = int(available() * PART_OF_HOST) if self._most_on_host is None else self._most_on_host
        self._activations = Activations(self._torch, CudaCopies(self._torch), "cuda", most)
        if self._has_pools:
            self._pool = HostPool(self._torch, most)

    def _keep_to(self, pool: HostPool, limit: int | None, left: int | None) -> None:
        """Set both limits and bring everything to where it belongs."""
        if left != self._left:
            self._changes(pool, left)
        self._limit = limit
        if left is None:
            self._unlimited += 1
            if self._unlimited % KEPT_FOR == 0 and pool.size:
                pool.want(0)
                self._torch._C._host_emptyCache()
        self._look(pool)
        try:
            pool.admit()
            self._move(pool)
        finally:
            self._set_fraction(pool)

    def _changes(self, pool: HostPool, left: int | None) -> None:
        """What others leave to this process changes."""
        falls = left is not None and (self._left is None or left < self._left)
        self._left, self._unlimited = left, 0
        if left is None:
            return
        # In this order: cached blocks tell of the largest tensors and of streams; locking holds up the calls that free.
        pool.learn()
        # What lies in a pool serves the stream on which that was filled alone.
        self._one_stream = len(pool.streams() | {int(self._torch.cuda.current_stream().cuda_stream)}) == 1
        if falls:
            self._release(pool)
        pool.want(max(0, pool.whole - left))

    def _set_fraction(self, pool: HostPool) -> None:
        """What the host cannot take stays on the GPU, whatever the limit: else an allocation would fail."""
        allowed = pool.whole
        if self._limit is not None:
            beyond = int(SPARE * max(0, self._needs - self._limit))
            allowed = self._limit + (max(pool.size, beyond) if self._one_stream else pool.size + beyond)
        self._torch.cuda.set_per_process_memory_fraction(min(1.0, allowed / pool.whole))

    def _move(self, pool: HostPool) -> None:
        """Out what is too much, largest first; or home what fits."""
        if (over := self._over(pool)) > 0:
            self._release(pool)
            over = self._over(pool)
        counts = self._counts()
        room = sys.maxsize if self._limit is None else self._limit - (counts.in_use - self._host)
        state = self._limit, counts.in_use, pool.size
        if (over <= 0 and not (self._host and room > 0)) or state == self._tried:
            return
        self._tried = state
        if (storages := self._storages()) is None:
            return
        moved = self._out(pool, storages) if over > 0 else self._home(pool, storages, room)
        if moved:
            self._host, self._tried = pool.used(), None
            self._torch.cuda.synchronize()  # streams of the script may read at once what this one has brought

    def _release(self, pool: HostPool) -> None:
        """Give back what is cached, while no memory of the host is locked."""
        with pool.quiet():
            self._torch.cuda.empty_cache()

    def _over(self, pool: HostPool) -> int:
        """Bytes on the GPU beyond the limit, with those that are cached."""
        return 0 if self._limit is None else self._counts().reserved - pool.size - self._limit

    def _look(self, pool: HostPool) -> None:
        """How much lies on the host: only where the limit may have been reached since the last boundary is it asked."""
        reserved = self._counts().reserved - pool.size
        if self._host or (self._limit is not None and reserved > self._limit - pool.largest):
            self._host = pool.used()

    def _out(self, pool: HostPool, storages: list[Any]) -> int:
        """Returns how many bytes have gone."""
        gone = 0
        for _ in range(ROUNDS):
            over = self._over(pool)
            if over <= 0:
                break
            there = [each for each in storages if not pool.holds(each.data_ptr())]
            pool.grow(pool.used() + min(over, sum(each.nbytes() for each in there)) + GRAIN_BYTES)
            with pool.quiet():
                moved = self._out_at_most(pool, there, over)
                self._torch.cuda.empty_cache()
            gone += moved
            if not moved:
                break
        return gone

    def _out_at_most(self, pool: HostPool, storages: list[Any], over: int) -> int:
        """These, as far as there is room for them, until so many bytes have gone; returns how many have."""
        moved, free = 0, pool.free()
        for storage in storages:
            if moved >= over:
                break
            place = next((at for at, (size, _) in enumerate(free) if size >= storage.nbytes()), None)
            if place is not None:
                size, segment = free.pop(place)
                insort(free, (size - storage.nbytes(), segment), key=itemgetter(0))
                self._refill(pool, storage, segment.use())
                moved += storage.nbytes()
        return moved

    def _home(self, pool: HostPool, storages: list[Any], room: int) -> int:
        """Returns how many bytes have come."""
        came = 0
        with pool.quiet():
            for storage in storages:
                if pool.holds(storage.data_ptr()) and storage.nbytes() <= room - came:
                    came += storage.nbytes()
                    self._refill(pool, storage, nullcontext())
        return came

    def _storages(self) -> list[Any] | None:
        """Of the device, the largest first; a search of some milliseconds. None: nothing may move."""
        found = live_storages(self._torch, "cuda")
        if found is None:
            return None
        here = self._torch.cuda.current_device()
        movable = (each for each in found if each.device.index == here and each.resizable())
        return sorted(movable, key=lambda storage: -storage.nbytes())

    def _refill(self, pool: HostPool, storage: Any, where: AbstractContextManager[Any]) -> None:
        """Give the storage other memory, taken within this context; anywhere where that fails.

        The GPU stands still before: another stream may use the storage, and may get what it had.
        """
        size = storage.nbytes()
        kept = pool.staging(size)
        self._torch.cuda.synchronize()
        kept.copy_(as_bytes(self._torch, storage))
        storage.resize_(0)
        with where, suppress(self._torch.OutOfMemoryError):
            storage.resize_(size)
        if not storage.nbytes():
            self._torch.cuda.set_per_process_memory_fraction(1.0)
            refill(storage, size)
        as_bytes(self._torch, storage).copy_(kept)

    def _counts(self) -> Counts:
        found = self._torch.cuda.memory_stats_as_nested_dict()
        if not found:
            return Counts(0, 0, 0)
        in_use = found["allocated_bytes"]["all"]
        return Counts(found["reserved_bytes"]["all"]["current"], in_use["current"], in_use["peak"])

    def _usage(self, most_in_use: int, gone: int) -> Usage:
        """Of a mini-batch for which so much had gone to the host, besides what was in use."""
        counts, pool = self._counts(), self._pool
        size, host = pool.size if pool is not None else 0, self._host
        device = max(0, counts.reserved - size)
        # The allocator does not say how much lay on the host at a time; what was beyond the limit did.
        beyond = min(size, max(0, most_in_use - self._limit)) if self._limit is not None else 0
        cached = max(0, device - (counts.in_use - host))
        return Usage(device, cached, host, max(host, beyond) + gone, most_in_use + gone)


def _has_pools(torch: Any) -> bool:
    """Whether this torch takes blocks of a pool where an allocation would fail otherwise, as it is set."""
    pool = getattr(torch.cuda, "MemPool", None)
    set_so = " ".join(os.environ.get(name, "") for name in CONFIGURATION)
    return (
        pool is not None
        and "use_on_oom" in inspect.signature(pool).parameters
        and not any(setting in set_so for setting in WITHOUT_POOLS)
    )
