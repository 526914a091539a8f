"""Page-locked memory of the host from which torch allocates for a GPU when that may have no more.

    a thread locks pieces ──> each becomes a segment, a MemPool of its own with `use_on_oom` ──> all of it is free there

torch takes free blocks of such pools where an allocation would fail otherwise; it makes no new ones, so that they are
there beforehand. Each segment is a pool by itself, because a pool gives its memory back as a whole.
"""

from __future__ import annotations

import ctypes
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

SEGMENT_BYTES = 1 << 29
"""The largest tensor that fits, unless larger ones have been seen."""
SMALL_BYTES, SMALL_COUNT = 2 << 20, 32
"""torch takes tensors up to 1 MB from blocks of this size, which are apart from all others; so many of these."""
MAPPED = 0x1 | 0x2
"""cudaHostAllocPortable and cudaHostAllocMapped."""
LOOK_S = 0.02
PART_OF_HOST = 0.25
"""At most this part of the memory that the host has left at the beginning."""


class Piece(NamedTuple):
    """Page-locked memory of the host, which a GPU reaches at the same addresses."""

    at: int
    size: int


class Locking:
    """Locks memory in a thread of its own: CUDA gives 1 to 3 GB/s, and holds up its other calls for a piece at a time.

    Memory that was touched by several threads in huge pages and locked then was there at 15 GB/s; it is not used,
    because one operation of fifteen computed something else on it, for a reason that was not found.
    """

    def __init__(self, runtime: ctypes.CDLL, device: int) -> None:
        """For a GPU.

        Args:
            runtime: of CUDA, as torch has loaded it.
            device: number of the GPU; the thread must not begin to use another one.
        """
        self._runtime, self._device = runtime, device
        self._done: SimpleQueue[Piece] = SimpleQueue()
        self._lock = threading.Lock()
        self._wanted: list[int] = []
        self._thread: threading.Thread | None = None
        """None where there is nothing to lock."""

    def want(self, sizes: list[int]) -> None:
        """These pieces, and none besides of what was wanted before and is not there yet."""
        with self._lock:
            self._wanted = sizes
            if sizes and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="sanjaya-locking", daemon=True)
                self._thread.start()

    def taken(self, *, wait: bool) -> Piece | None:
        """A piece that is there; None: there is none yet, or, after waiting, none will be."""
        while True:
            with self._lock:
                works = self._thread is not None
            try:
                return self._done.get(timeout=LOOK_S) if wait and works else self._done.get_nowait()
            except Empty:
                if not (wait and works):
                    return None

    def release(self, piece: Piece) -> None:
        """It is not needed any more."""
        self._runtime.cudaFreeHost(ctypes.c_void_p(piece.at))

    def _run(self) -> None:
        self._runtime.cudaSetDevice(self._device)
        while size := self._next():
            at = ctypes.c_void_p()
            error = self._runtime.cudaHostAlloc(ctypes.byref(at), ctypes.c_size_t(size), MAPPED)
            if error or at.value is None:
                self._runtime.cudaGetLastError()
                self.want([])
                print(f"sanjaya: the host gives no more memory beyond a limit: CUDA error {error}", file=sys.stderr)
            else:
                self._done.put(Piece(at.value, size))

    def _next(self) -> int:
        with self._lock:
            if self._wanted:
                return self._wanted.pop(0)
            self._thread = None
            return 0


class Segment:
    """A piece of the host's memory as a pool of torch, which has all of it free at first."""

    def __init__(self, torch: Any, piece: Piece, block: int, release: Callable[[Piece], None]) -> None:
        """Make the pool and fill it.

        Args:
            torch: the module.
            piece: locked memory.
            block: sizes in which torch takes it.
            release: gives it back.
        """
        self._torch, self.piece = torch, piece
        self._given = self._returned = 0

        def allocate(size: int, device: int, stream: int) -> int:
            if self._given + size > piece.size:
                return 0
            self._given += size
            return piece.at + self._given - size

        def free(at: int, size: int, device: int, stream: int) -> None:
            self._returned += size
            if self._returned == piece.size:
                release(piece)

        number, pointer = ctypes.c_size_t, ctypes.c_void_p
        self._calls = (
            ctypes.CFUNCTYPE(pointer, number, ctypes.c_int, pointer)(allocate),
            ctypes.CFUNCTYPE(None, pointer, number, ctypes.c_int, pointer)(free),
        )
        self._allocator = torch._C._cuda_customAllocator(*(ctypes.cast(call, pointer).value for call in self._calls))
        self._pool = torch.cuda.MemPool(self._allocator, use_on_oom=True)
        # Whatever becomes of those who know it: tensors may lie here until the process ends, and when that destroys the
        # pool, which calls Python, there may be none left.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        with self.use():
            tensor = 1 << 20 if block == SMALL_BYTES else block
            taken = [torch.empty(tensor, dtype=torch.uint8, device="cuda") for _ in range(piece.size // block)]
        del taken

    def use(self) -> AbstractContextManager[Any]:
        """What this thread allocates meanwhile lies here, or fails."""
        found: AbstractContextManager[Any] = self._torch.cuda.use_mem_pool(self._pool)
        return found

    def holds(self, at: int) -> bool:
        """Whether this address is here."""
        return self.piece.at <= at < self.piece.at + self.piece.size

    def let_go(self) -> None:
        """Give the memory back, when no tensor is here any more."""
        self._pool = None
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(self))


class HostPool:
    """All segments of one process."""

    def __init__(self, torch: Any, most_bytes: int | None = None) -> None:
        """None yet; see `want`. There will be at most so many bytes, or a part of what the host has left."""
        self._torch = torch
        self._locking = Locking(_runtime(), torch.cuda.current_device())
        self._segments: list[Segment] = []
        self._most = int(_available() * PART_OF_HOST) if most_bytes is None else most_bytes
        largest = max((int(each["total_size"]) for each in torch.cuda.memory_snapshot()), default=0)
        self._segment_bytes = max(SEGMENT_BYTES, -(-largest // SMALL_BYTES) * SMALL_BYTES)
        self._wanted = 0
        self._staging: Any = None

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.piece.size for segment in self._segments)

    @property
    def largest(self) -> int:
        """The largest tensor that can lie here."""
        return self._segment_bytes

    def used(self) -> int:
        """Bytes that tensors have here; a reading of all blocks, which takes milliseconds where they are many."""
        return sum(int(found["allocated_size"]) for _, found in self._found())

    def _found(self) -> Iterator[tuple[Segment, dict[str, Any]]]:
        """Each segment with what torch says of its blocks."""
        if self._segments:
            for found in self._torch.cuda.memory_snapshot():
                for segment in self._segments:
                    if segment.holds(found["address"]):
                        yield segment, found

    def holds(self, at: int) -> bool:
        """Whether this address is in one of the segments."""
        return any(segment.holds(at) for segment in self._segments)

    def want(self, size: int) -> None:
        """Have at most so many bytes from now on, and as many of them as the host can give, by and by."""
        self._wanted = size = min(size, self._most)
        if self.size > size:
            in_use = {id(segment) for segment, found in self._found() if found["allocated_size"]}
            for segment in [each for each in self._segments if id(each) not in in_use]:
                if self.size > size:
                    self._segments.remove(segment)
                    segment.let_go()
        lacking = max(0, size - self.size)
        small = SMALL_BYTES * SMALL_COUNT
        pieces = [self._segment_bytes] * (max(0, lacking - small) // self._segment_bytes)
        if lacking >= small and not any(segment.piece.size == small for segment in self._segments):
            pieces.insert(0, small)
        self._locking.want(pieces)

    def admit(self, *, wait: bool = False) -> None:
        """Take in what has been locked; `wait`: until all that is wanted has been."""
        while (piece := self._locking.taken(wait=wait)) is not None:
            self._take_in(piece)

    def grow(self, size: int) -> None:
        """Wait until there are so many bytes, or the host gives no more."""
        while self.size < size and (piece := self._locking.taken(wait=True)) is not None:
            self._take_in(piece)

    def _take_in(self, piece: Piece) -> None:
        if self.size + piece.size > self._wanted:
            self._locking.release(piece)
            return
        # What is taken in counts against the limit while it is taken in; whoever has called sets that again.
        self._torch.cuda.set_per_process_memory_fraction(1.0)
        block = SMALL_BYTES if piece.size == SMALL_BYTES * SMALL_COUNT else piece.size
        self._segments.append(Segment(self._torch, piece, block, self._locking.release))

    def with_room_for(self, size: int) -> Segment | None:
        """One that has a free block of this size."""
        for segment, found in self._found():
            if any(block["state"] == "inactive" and block["size"] >= size for block in found["blocks"]):
                return segment
        return None

    def staging(self, size: int) -> Any:
        """Locked memory besides, for the way of one storage."""
        if self._staging is None or self._staging.numel() < size:
            self._staging = self._torch.empty(size, dtype=self._torch.uint8, pin_memory=True)
        return self._staging[:size]


def _available() -> int:
    """Bytes that the host has left."""
    with open("/proc/meminfo", encoding="ascii") as file:
        found = re.search(r"^MemAvailable:\s+(\d+) kB$", file.read(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _runtime() -> ctypes.CDLL:
    """The CUDA runtime that torch has loaded."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        found = re.search(r"\S*/libcudart[^/\s]*\.so\S*", file.read())
    if found is None:
        raise RuntimeError("no CUDA runtime is loaded as a library of its own")
    return ctypes.CDLL(found.group())
