"""Out and in: a device's live memory goes to the host, and comes back to where every tensor expects it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .arenas import Arena, FileArena, PinnedArena, aligned
from .storages import live_storages

ROOM_WITHIN_S, ROOM_LOOK_S = 30.0, 0.02
"""How long an emptied storage waits for room on the device."""


@dataclass(frozen=True)
class Parked:
    """What a parking has done."""

    bytes_parked: int
    bytes_left: int
    """Still on the device: what could not be moved."""
    took_s: float


class CannotPark(Exception):
    """The memory must stay where it is; the message says why."""


class Parker:
    """Of one process. Not thread-safe: call it where no kernel is being launched (a mini-batch boundary)."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._cuda = bool(torch.cuda.is_available() and torch.cuda.is_initialized())
        self._arena: Arena = PinnedArena(torch) if self._cuda else FileArena(torch)
        self._pieces: list[tuple[Any, int]] = []
        """Storages that are empty now, with the sizes they had."""

    def park(self) -> Parked:
        """Copy every live storage to the host and free it on the device.

        Raises:
            CannotPark: a captured CUDA graph is alive (it remembers addresses), or the host has no room.
        """
        began = time.perf_counter()
        self._wait()
        found = live_storages(self._torch, "cuda" if self._cuda else "cpu")
        if found is None:
            raise CannotPark("a captured CUDA graph is alive, and remembers where its memory was")
        movable = [storage for storage in found if _movable(storage)]
        self._pieces = [(storage, storage.nbytes()) for storage in movable]
        try:
            arena = self._arena.open(self._total())
        except (MemoryError, OSError, RuntimeError) as error:
            total, self._pieces = self._total(), []
            raise CannotPark(f"the host has no room for {total} bytes: {error}") from error
        for storage, size, at in self._placed():
            arena[at : at + size].copy_(as_bytes(self._torch, storage), non_blocking=True)
        self._wait()
        del arena
        for storage in movable:
            storage.resize_(0)
        self._arena.settle()
        if self._cuda:
            self._torch.cuda.empty_cache()
        return Parked(sum(size for _, size in self._pieces), self._left(found), time.perf_counter() - began)

    def unpark(self) -> float:
        """Bring everything back. Returns how long it took, in seconds."""
        began = time.perf_counter()
        arena = self._arena.open(self._total())
        for storage, size, at in self._placed():
            refill(storage, size)
            as_bytes(self._torch, storage).copy_(arena[at : at + size], non_blocking=True)
        self._wait()
        del arena
        self._pieces = []
        self._arena.close()
        return time.perf_counter() - began

    @contextmanager
    def on_host(self) -> Iterator[dict[int, Any]]:
        """{identity of a parked storage: its bytes, as a storage in host memory}, to be read in the meantime."""
        arena = self._arena.open(self._total()).untyped_storage()
        found = {storage._cdata: arena[at : at + size] for storage, size, at in self._placed()}
        del arena
        try:
            yield found
        finally:
            found.clear()
            self._arena.settle()

    def _total(self) -> int:
        return sum(aligned(size) for _, size in self._pieces)

    def _placed(self) -> Iterator[tuple[Any, int, int]]:
        """Each storage with its size, and where it lies in the arena."""
        at = 0
        for storage, size in self._pieces:
            yield storage, size, at
            at += aligned(size)

    def _wait(self) -> None:
        """Until every device has done what it was told, on all of its streams."""
        if self._cuda:
            for index in range(self._torch.cuda.device_count()):
                self._torch.cuda.synchronize(index)

    def _left(self, found: list[Any]) -> int:
        if self._cuda:
            devices = range(self._torch.cuda.device_count())
            return sum(int(self._torch.cuda.memory_reserved(index)) for index in devices)
        return sum(storage.nbytes() for storage in found)


def refill(storage: Any, size: int) -> None:
    """Give a storage that was emptied its memory again; another process may be about to leave the device."""
    deadline = time.monotonic() + ROOM_WITHIN_S
    while True:
        try:
            storage.resize_(size)
            return
        except RuntimeError as error:  # CUDA's "out of memory" is one, and a virtual GPU's, too
            if time.monotonic() > deadline:
                # No ordinary exception: the script must not go on with tensors that have no memory.
                raise SystemExit(f"sanjaya: the memory of this process cannot be brought back: {error}") from error
            time.sleep(ROOM_LOOK_S)


def _movable(storage: Any) -> bool:
    """Memory that torch itself has allocated for one process; not that of NumPy, of a file or of other processes."""
    return bool(storage.resizable()) and not storage.is_shared() if storage.device.type == "cpu" else True


def as_bytes(torch: Any, storage: Any) -> Any:
    """All of a storage as one tensor."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
