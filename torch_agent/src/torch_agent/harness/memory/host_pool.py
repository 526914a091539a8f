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
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from operator import itemgetter
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

SEGMENT_BYTES = 1 << 29
"""The largest tensor that fits, unless larger ones have been seen."""
SMALL_BYTES, SMALL_TENSOR_BYTES = 64 << 20, 1 << 20
"""torch keeps tensors up to 1 MB apart from all others; so much for them."""
GRAIN_BYTES = 2 << 20
"""torch takes memory in multiples of this."""
LONG_S = 1e6
MAPPED = 0x1 | 0x2
"""cudaHostAllocPortable and cudaHostAllocMapped."""
LOOK_S = 0.02
PART_OF_HOST = 0.125
"""At most this part of the memory that the host has left at the beginning, here and for activations each."""


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
        self._changed = threading.Condition()
        """Of the next three."""
        self._wanted: list[int] = []
        self._held_up = self._is_awaited = False
        self._thread: threading.Thread | None = None
        """None where there is nothing to lock."""

    def want(self, sizes: list[int]) -> None:
        """These pieces, and none besides of what was wanted before and is not there yet."""
        with self._changed:
            self._wanted = sizes
            self._changed.notify()
            if sizes and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="sanjaya-locking", daemon=True)
                self._thread.start()

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """No piece is begun meanwhile, so that other calls of CUDA wait for one at most; none may be waited for."""
        with self._changed:
            self._held_up = True
        try:
            yield
        finally:
            with self._changed:
                self._held_up = False
                self._changed.notify()

    def taken(self, *, wait: bool) -> Piece | None:
        """A piece that is there; None: there is none yet, or, after waiting, none will be."""
        self._await(wait)
        try:
            while True:
                with self._changed:
                    works = self._thread is not None
                try:
                    return self._done.get(timeout=LOOK_S) if wait and works else self._done.get_nowait()
                except Empty:
                    if not (wait and works):
                        return None
        finally:
            self._await(False)

    def _await(self, is_awaited: bool) -> None:
        with self._changed:
            self._is_awaited = is_awaited
            self._changed.notify()

    def release(self, piece: Piece) -> None:
        """It is not needed any more."""
        self._runtime.cudaFreeHost(ctypes.c_void_p(piece.at))

    def _run(self) -> None:
        self._runtime.cudaSetDevice(self._device)
        while size := self._next():
            at, began_s = ctypes.c_void_p(), time.monotonic()
            error = self._runtime.cudaHostAlloc(ctypes.byref(at), ctypes.c_size_t(size), MAPPED)
            if error or at.value is None:
                self._runtime.cudaGetLastError()
                self.want([])
                print(f"sanjaya: the host gives no more memory beyond a limit: CUDA error {error}", file=sys.stderr)
            else:
                self._done.put(Piece(at.value, size))
                self._rest(time.monotonic() - began_s)

    def _rest(self, seconds: float) -> None:
        """Others may call CUDA for as long as they had to wait; a training process may want all of its memory anew."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_awaited or not self._wanted, seconds)

    def _next(self) -> int:
        with self._changed:
            self._changed.wait_for(lambda: not (self._held_up and self._wanted))
            if self._wanted:
                return self._wanted.pop(0)
            self._thread = None
            return 0


class Segment:
    """A piece of the host's memory as a pool of torch, which has all of it free at first.

    torch calls Python while it holds a lock of its allocator, which other threads take while they have the interpreter:
    so nothing is done in those calls that lets go of the interpreter, and what leads to them keeps it, too (resizing a
    storage does, making a tensor does not).
    """

    def __init__(self, torch: Any, piece: Piece, block: int) -> None:
        """Make the pool and fill it.

        Args:
            torch: the module.
            piece: locked memory.
            block: sizes in which tensors take it.

        Raises:
            torch.OutOfMemoryError: torch takes in no more memory.
        """
        self._torch, self.piece = torch, piece
        self._given = 0

        def allocate(size: int, device: int, stream: int) -> int:
            if self._given + size > piece.size:
                return 0
            self._given += size
            return piece.at + self._given - size

        def free(at: int, size: int, device: int, stream: int) -> None:
            self._given -= size

        number, pointer = ctypes.c_size_t, ctypes.c_void_p
        self._calls = (
            ctypes.CFUNCTYPE(pointer, number, ctypes.c_int, pointer)(allocate),
            ctypes.CFUNCTYPE(None, pointer, number, ctypes.c_int, pointer)(free),
        )
        self._allocator = torch._C._cuda_customAllocator(*(ctypes.cast(call, pointer).value for call in self._calls))
        self._pool = torch.cuda.MemPool(self._allocator, use_on_oom=True)
        with self.use(), _without_other_threads():
            taken = [
                torch.empty(0, dtype=torch.uint8, device="cuda").untyped_storage() for _ in range(piece.size // block)
            ]
            for storage in taken:
                storage.resize_(block)
            taken.clear()
        # Tensors may lie here until the process ends, and a pool that is destroyed then calls Python, which has ended.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))

    def use(self) -> AbstractContextManager[Any]:
        """What this thread allocates meanwhile lies here, or fails."""
        found: AbstractContextManager[Any] = self._torch.cuda.use_mem_pool(self._pool)
        return found

    def holds(self, at: int) -> bool:
        """Whether this address is here."""
        return self.piece.at <= at < self.piece.at + self.piece.size

    def let_go(self) -> bool:
        """End the pool, in which no tensor is any more. Returns whether torch has given all of the piece back."""
        with _without_other_threads():
            self._pool = None
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(self))
        return self._given == 0


@contextmanager
def _without_other_threads() -> Iterator[None]:
    """No other thread of Python gets the interpreter meanwhile, unless it is let go of."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(LONG_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before_s)


class HostPool:
    """All segments of one process."""

    def __init__(self, torch: Any, most_bytes: int) -> None:
        """None yet; see `want`. There will be at most so many bytes."""
        self._torch = torch
        self.device = torch.cuda.current_device()
        self.whole = int(torch.cuda.get_device_properties(self.device).total_memory)
        """Memory of the GPU."""
        self._locking = Locking(_runtime(), self.device)
        self._segments: list[Segment] = []
        self._most = most_bytes
        self._segment_bytes = SEGMENT_BYTES
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

    def streams(self) -> set[int]:
        """Those on which the process has memory of the GPU."""
        segments = self._torch.cuda.memory_snapshot()
        here = (each for each in segments if each["device"] == self.device and not self.holds(each["address"]))
        return {int(each["stream"]) for each in here}

    def free(self) -> list[tuple[int, Segment]]:
        """(size, its segment) of each free block, the smallest first."""
        blocks = [
            (int(block["size"]), segment)
            for segment, found in self._found()
            for block in found["blocks"]
            if block["state"] == "inactive"
        ]
        return sorted(blocks, key=itemgetter(0))

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

    def learn(self) -> None:
        """New pieces are as large as the largest block that the process has or caches on the GPU at this moment."""
        largest = max((int(each["total_size"]) for each in self._torch.cuda.memory_snapshot()), default=0)
        self._segment_bytes = max(self._segment_bytes, -(-largest // GRAIN_BYTES) * GRAIN_BYTES)

    def want(self, size: int) -> None:
        """Have at most so many bytes from now on, and as many of them as the host can give, by and by."""
        self._wanted = size = min(size, self._most)
        if self.size > size:
            in_use = {id(segment) for segment, found in self._found() if found["allocated_size"]}
            free = [segment for segment in self._segments if id(segment) not in in_use]
            for segment in sorted(free, key=lambda segment: -segment.piece.size):
                if self.size > size:
                    self._segments.remove(segment)
                    if segment.let_go():
                        self._locking.release(segment.piece)
        lacking = max(0, size - self.size)
        pieces = []
        if lacking >= SMALL_BYTES and not any(segment.piece.size == SMALL_BYTES for segment in self._segments):
            pieces = [SMALL_BYTES]
        pieces += [self._segment_bytes] * ((lacking - sum(pieces)) // self._segment_bytes)
        self._locking.want(pieces)

    def admit(self, *, wait: bool = False) -> None:
        """Take in what has been locked; `wait`: until all that is wanted has been."""
        while (piece := self._locking.taken(wait=wait)) is not None:
            self._take_in(piece)

    def grow(self, size: int) -> None:
        """Wait until there are so many bytes, or no more can be had."""
        while self.size < size and (piece := self._locking.taken(wait=True)) is not None:
            if not self._take_in(piece):
                break

    def _take_in(self, piece: Piece) -> bool:
        """Make a segment of it; what torch has no room for, beside what it counts already, goes back to the host.

        A segment counts against the limit, which is lifted until the caller sets it again.
        """
        cuda = self._torch.cuda
        if self.size + piece.size <= self._wanted and cuda.memory_reserved() + piece.size <= self.whole:
            cuda.set_per_process_memory_fraction(1.0)
            try:
                block = SMALL_TENSOR_BYTES if piece.size == SMALL_BYTES else piece.size
                self._segments.append(Segment(self._torch, piece, block))
                return True
            except self._torch.OutOfMemoryError:
                pass
        self._locking.release(piece)
        return False

    def quiet(self) -> AbstractContextManager[None]:
        """No more memory is locked meanwhile; see `Locking.held_up`."""
        return self._locking.held_up()

    def staging(self, size: int) -> Any:
        """Locked memory besides, for the way of one storage."""
        if self._staging is None or self._staging.numel() < size:
            self._staging = self._torch.empty(size, dtype=self._torch.uint8, pin_memory=True)
        return self._staging[:size]


def available() -> int:
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
