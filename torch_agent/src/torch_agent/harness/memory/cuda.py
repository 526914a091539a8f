"""The memory of a real GPU, limited through torch's own allocator, with locked memory of the host beyond the limit.

    limit   `set_per_process_memory_fraction`; what is cached goes by `empty_cache` when the limit falls
    beyond  pools of host memory (host_pool.py; torch 2.8 and later) that the GPU reads and writes over the bus
    both    storages move by being emptied and filled again, as when a process is suspended (parking/)

torch counts the pools against the fraction, too: limit and pools together are at most the whole GPU, which is as much
as a process that fits onto it can need. Without such pools no limit is set: saved activations go to the host instead.

Seen on an H200 with torch 2.11 (tests/bench/results/gpu.md): pools are used before cached blocks are given back, small
tensors lie there, too, and losses under random limits are those without limits to the bit. What lies on the host for
long is slow, because kernels read it over the bus again and again: a model with nine tenths of its memory there took
127 times as long, where the paper's took 1.25 times (AntMan, OSDI'20, figure 10).
"""

from __future__ import annotations

import inspect
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, NamedTuple

from ..parking.parking import as_bytes
from ..parking.storages import live_storages
from .device import Usage
from .host_pool import HostPool

GRAIN_BYTES = 2 << 20
"""torch takes memory in multiples of this. A tensor that is smaller may lie in a block with others."""
SPARE = 1.25
"""The host has to have more than what is beyond the limit: tensors do not fill its segments."""
KEPT_FOR = 100
"""Boundaries without a limit, after which the host's memory is given back."""
ROUNDS = 4
"""Moving a storage out does not free its block where others lie in it, so that more have to go."""


class Counts(NamedTuple):
    """What the allocator counts, in bytes, with the pools of the host."""

    reserved: int
    in_use: int
    most_in_use: int
    """Since the last boundary."""


class CudaMemory:
    """See `DeviceMemory`. The memory of the device that is current, and of its training thread."""

    def __init__(self, torch: Any, most_on_host: int | None = None) -> None:
        """Without a limit. `most_on_host`: bytes of the host for what is beyond one; None: a part of what is left."""
        self._torch, self._most_on_host = torch, most_on_host
        self._pool: HostPool | None = None
        """Made when a limit is set for the first time."""
        pool = getattr(torch.cuda, "MemPool", None)
        self._has_pools = pool is not None and "use_on_oom" in inspect.signature(pool).parameters
        self._limit: int | None = None
        self._at_start: int | None = None
        self._waits_for_cuda = False
        self._needs = 0
        """The most that it had in use at any time."""
        self._unlimited = 0
        """Boundaries without a limit since the last one with a limit."""
        self._host = 0
        """Bytes there, as far as known."""
        self._least_on_host = 0
        """The smallest storage there, as far as known: with less room nothing is looked for that could come home."""
        self._offloading: AbstractContextManager[Any] | None = None

    def boundary(self, limit_bytes: int | None) -> Usage:
        """See `DeviceMemory`. While CUDA graphs are alive, which remember addresses, nothing moves."""
        cuda = self._torch.cuda
        if not cuda.is_initialized():
            self._keep_to_from_start(limit_bytes)
            return Usage(0, 0, 0, 0, 0)
        before = self._counts()
        self._needs = max(self._needs, before.most_in_use)
        if not self._has_pools:
            self._offload(limit_bytes is not None)
        else:
            self._keep_to(limit_bytes)
        usage = self._usage(before.most_in_use)
        cuda.reset_peak_memory_stats()
        return usage

    def _keep_to_from_start(self, limit_bytes: int | None) -> None:
        """CUDA begins when the script first uses it: then, and not before, as processes may be forked until then."""
        self._at_start = limit_bytes
        if limit_bytes is not None and not self._waits_for_cuda:
            self._waits_for_cuda = True
            self._torch.cuda._lazy_call(self._begin)

    def _begin(self) -> None:
        if self._has_pools and self._at_start is not None:
            self._keep_to(self._at_start, at_once=True)

    def _keep_to(self, limit_bytes: int | None, *, at_once: bool = False) -> None:
        """Set the limit and bring everything to where it belongs.

        Args:
            at_once: nothing has been measured of what the process needs: have all memory of the host that it may need.
        """
        cuda, pool = self._torch.cuda, self._pool
        if pool is None and limit_bytes is None:
            return
        if pool is None:
            pool = self._pool = HostPool(self._torch, self._most_on_host)
        if limit_bytes != self._limit:
            falls = limit_bytes is not None and (self._limit is None or limit_bytes < self._limit)
            self._limit, self._unlimited = limit_bytes, 0
            if limit_bytes is not None:
                pool.want(max(0, _total(cuda) - limit_bytes))
            if falls:
                cuda.empty_cache()
        if limit_bytes is None:
            self._unlimited += 1
            if self._unlimited == KEPT_FOR:
                pool.want(0)
        self._look(pool)
        pool.admit(wait=at_once)
        self._set_fraction(pool)
        self._move(pool)

    def _set_fraction(self, pool: HostPool) -> None:
        """What the host cannot take yet stays on the GPU, whatever the limit: else an allocation would fail."""
        cuda, whole = self._torch.cuda, _total(self._torch.cuda)
        allowed = whole
        if self._limit is not None:
            beyond = int(SPARE * max(0, self._needs - self._limit))
            allowed = min(whole, self._limit + max(pool.size, beyond))
        cuda.set_per_process_memory_fraction(allowed / whole)

    def _move(self, pool: HostPool) -> None:
        """Out what is too much, largest first; or home what fits."""
        if (over := self._over(pool)) > 0:
            self._torch.cuda.empty_cache()
            over = self._over(pool)
        room = sys.maxsize if self._limit is None else self._limit - (self._counts().in_use - self._host)
        comes_home = self._host > 0 and room >= max(GRAIN_BYTES, self._least_on_host)
        if (over <= 0 and not comes_home) or (storages := self._storages()) is None:
            return
        self._torch.cuda.synchronize()
        if over > 0:
            self._out(pool, storages)
        else:
            self._home(pool, storages, room)
        self._host = pool.used()

    def _over(self, pool: HostPool) -> int:
        """Bytes on the GPU beyond the limit, with those that are cached."""
        return 0 if self._limit is None else self._counts().reserved - pool.size - self._limit

    def _look(self, pool: HostPool) -> None:
        """How much lies on the host: only where the limit may have been reached since the last boundary is it asked."""
        reserved = self._counts().reserved - pool.size
        if self._host or (self._limit is not None and reserved > self._limit - pool.largest):
            self._host = pool.used()

    def _out(self, pool: HostPool, storages: list[Any]) -> None:
        for _ in range(ROUNDS):
            over = self._over(pool)
            if over <= 0:
                break
            there = [each for each in storages if not pool.holds(each.data_ptr())]
            pool.grow(pool.used() + min(over + GRAIN_BYTES, sum(each.nbytes() for each in there)))
            self._set_fraction(pool)
            moved = 0
            for storage in there:
                if moved >= over:
                    break
                segment = pool.with_room_for(storage.nbytes())
                if segment is not None:
                    self._refill(pool, storage, segment.use())
                    moved += storage.nbytes()
            self._torch.cuda.empty_cache()
            if not moved:
                break
        self._least_on_host = 0

    def _home(self, pool: HostPool, storages: list[Any], room: int) -> None:
        self._torch.cuda.empty_cache()
        stay = []
        for storage in storages:
            if not pool.holds(storage.data_ptr()):
                continue
            if storage.nbytes() <= room:
                room -= storage.nbytes()
                self._refill(pool, storage, nullcontext())
            else:
                stay.append(storage.nbytes())
        self._least_on_host = min(stay, default=0)

    def _storages(self) -> list[Any] | None:
        """Of the device that is current, the largest first; a search of some milliseconds. None: nothing may move."""
        found = live_storages(self._torch, "cuda")
        if found is None:
            return None
        here = self._torch.cuda.current_device()
        return sorted((each for each in found if each.device.index == here), key=lambda storage: -storage.nbytes())

    def _refill(self, pool: HostPool, storage: Any, where: AbstractContextManager[Any]) -> None:
        """Give the storage other memory, taken within this context; the same again where that fails.

        Everything is in the order of one stream: what the storage had may be used again as soon as it has been read.
        """
        size = storage.nbytes()
        kept = pool.staging(size)
        kept.copy_(as_bytes(self._torch, storage), non_blocking=True)
        storage.resize_(0)
        with where, suppress(self._torch.OutOfMemoryError):
            storage.resize_(size)
        if not storage.nbytes():
            storage.resize_(size)
        as_bytes(self._torch, storage).copy_(kept, non_blocking=True)

    def _offload(self, wanted: bool) -> None:
        if wanted and self._offloading is None:
            offloading: AbstractContextManager[Any] = self._torch.autograd.graph.save_on_cpu(pin_memory=True)
            offloading.__enter__()
            self._offloading = offloading
        elif not wanted and self._offloading is not None:
            self._offloading.__exit__(None, None, None)
            self._offloading = None

    def _counts(self) -> Counts:
        found = self._torch.cuda.memory_stats_as_nested_dict()
        if not found:
            return Counts(0, 0, 0)
        in_use = found["allocated_bytes"]["all"]
        return Counts(found["reserved_bytes"]["all"]["current"], in_use["current"], in_use["peak"])

    def _usage(self, most_in_use: int) -> Usage:
        counts, pool = self._counts(), self._pool
        size, host = pool.size if pool is not None else 0, self._host
        device = max(0, counts.reserved - size)
        # The allocator does not say how much lay on the host at a time; what was beyond the limit did.
        beyond = min(size, max(0, most_in_use - self._limit)) if self._limit is not None else 0
        return Usage(device, max(0, device - (counts.in_use - host)), host, max(host, beyond), most_in_use)


def _total(cuda: Any) -> int:
    return int(cuda.get_device_properties(cuda.current_device()).total_memory)
