"""What processes do with memory while the allocator of virtual GPUs is preloaded; one per name, silent if all is well.

Those with `_limited` in their names have a limit far below what they hold, set as often as they ask for it.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import subprocess
import sys
import threading

import numpy

MB = 1 << 20
UNLIMITED = 2**64 - 1
DEVICE = 256 * MB
libc = ctypes.CDLL(None)
for name, arguments, result in (
    ("aligned_alloc", [ctypes.c_size_t] * 2, ctypes.c_void_p),
    ("calloc", [ctypes.c_size_t] * 2, ctypes.c_void_p),
    ("malloc", [ctypes.c_size_t], ctypes.c_void_p),
    ("realloc", [ctypes.c_void_p, ctypes.c_size_t], ctypes.c_void_p),
    ("malloc_usable_size", [ctypes.c_void_p], ctypes.c_size_t),
    ("free", [ctypes.c_void_p], None),
    ("posix_memalign", [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_size_t], ctypes.c_int),
):
    function = getattr(libc, name)
    function.argtypes, function.restype = arguments, result


class Usage(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("device", "cached", "host", "most_on_host", "most_in_use")]


def begin() -> None:
    assert libc.sanjaya_memory_begin(ctypes.c_uint64(8 * DEVICE), ctypes.c_uint64(DEVICE)) == 0


def boundary(limit: int = UNLIMITED) -> Usage:
    found = Usage()
    libc.sanjaya_memory_boundary(ctypes.c_uint64(limit), ctypes.byref(found))
    return found


def block(size: int, alignment: int = 64) -> int:
    at = ctypes.c_void_p()
    assert libc.posix_memalign(ctypes.byref(at), alignment, size) == 0 and at.value is not None
    assert at.value % alignment == 0
    return at.value


def filled(size: int, value: int) -> int:
    at = block(size)
    ctypes.memset(at, value, size)
    return at


def holds(at: int, size: int, value: int) -> bool:
    return ctypes.string_at(at, size) == bytes([value]) * size


def numpy_as_ever() -> None:
    begin()
    grown = numpy.arange(1000)
    for size in (10_000, 1_000_000, 5_000_000, 100):  # realloc of libc's memory
        grown.resize(size, refcheck=False)
        boundary(0)
    assert (grown == numpy.arange(100)).all()
    assert not numpy.zeros(3_000_000).any()
    square = numpy.random.default_rng(0).random((300, 300))
    assert numpy.allclose(square @ numpy.linalg.inv(square), numpy.eye(300))
    assert boundary().device == 0, "what is NumPy's is no GPU's"


def every_way_to_allocate_limited() -> None:
    begin()
    for alignment in (8, 64, 4096, 16384, 65536, 2 * MB):  # beyond its units libc's
        libc.free(block(3 * MB, alignment))
    for at in (libc.aligned_alloc(4096, 8 * MB), libc.calloc(3, MB), libc.malloc(5 * MB)):
        assert holds(libc.calloc(1, 4 * MB), 4 * MB, 0) and libc.malloc_usable_size(at) >= 3 * MB
        libc.free(at)
    at = filled(MB, 7)
    assert MB <= libc.malloc_usable_size(at) < MB + 16384 + MB // 8
    boundary(), boundary(0)  # on the host
    at = libc.realloc(at, 3 * MB)
    assert holds(at, MB, 7)
    at = libc.realloc(at, MB // 2)
    assert holds(at, MB // 2, 7)
    libc.free(at), libc.free(None)
    assert libc.realloc(block(MB), 0) is None
    huge = ctypes.c_void_p()
    assert libc.posix_memalign(ctypes.byref(huge), 64, 1 << 60) != 0, "what no machine has is refused"
    assert boundary(0).host == 0


def more_than_the_range_is_libcs() -> None:
    begin()
    held = [block(600 * MB) for _ in range(5)]  # never touched; three fit into the range
    used = boundary()
    assert 600 * MB <= used.device <= 8 * DEVICE
    for at in held:
        libc.free(at)
    assert boundary(0).device == 0


def moved_bytes_are_the_same_limited() -> None:
    begin()
    sizes = [(1 + number % 40) * 70_000 for number in range(120)]
    held = [filled(size, number) for number, size in enumerate(sizes)]
    whole = boundary()
    assert whole.host == 0 and whole.device - whole.cached >= sum(sizes)
    for part in (0.5, 0.1, 0.0, 0.7, 0.02, 1.0):
        limit = int(part * whole.device)
        found = boundary(limit)
        assert found.device <= limit + max(sizes) + 16384, (part, found.device)
        assert found.device + found.host >= sum(sizes)
        assert all(holds(at, size, number) for number, (at, size) in enumerate(zip(held, sizes, strict=True)))
    home = boundary()
    assert home.host == 0 and home.device - home.cached >= sum(sizes)
    for at in held:
        libc.free(at)
    assert boundary(0).device == 0, "what is free does not stay cached"


def a_fork_has_its_own_limited() -> None:
    begin()
    held = [filled(MB, number) for number in range(20)]
    boundary(), boundary(2 * MB)
    child = os.fork()
    if child == 0:
        same = all(holds(at, MB, number) for number, at in enumerate(held))
        for at in held:
            ctypes.memset(at, 99, MB)
        more = filled(MB, 5)
        os._exit(0 if same and holds(more, MB, 5) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert all(holds(at, MB, number) for number, at in enumerate(held)), "a child writes to its own"
    assert boundary(2 * MB).device <= 3 * MB, "and the parent keeps to its limit again"


def children_that_are_other_programs_limited() -> None:
    begin()
    held = [filled(MB, number) for number in range(8)]
    boundary(), boundary(0)
    assert subprocess.run(["bash", "-c", "echo $((6 * 7)) | cat"], capture_output=True, check=True).stdout == b"42\n"
    again = [sys.executable, "-c", "import numpy; print(numpy.ones(1_000_000).sum())"]
    assert subprocess.run(again, capture_output=True, check=True).stdout == b"1000000.0\n"
    assert all(holds(at, MB, number) for number, at in enumerate(held))


def threads_limited() -> None:
    """Blocks come and go in four threads while the training thread has mini-batches with limits up and down.

    In each turn all of them do something at the same time: they fill a block, it is at its boundary.
    """
    begin()
    wrong: list[str] = []
    turns = 300
    turn_begins = threading.Barrier(5)

    def allocates(number: int) -> None:
        mine: list[tuple[int, int]] = []
        for turn in range(turns):
            turn_begins.wait()
            size = (1 + (turn * 7 + number) % 30) * 40_000
            mine.append((filled(size, number + 1), size))
            if len(mine) > 12:
                at, size = mine.pop(turn % 12)
                if not holds(at, size, number + 1):
                    wrong.append(f"thread {number}, turn {turn}")
                libc.free(at)
        for at, size in mine:
            if not holds(at, size, number + 1):
                wrong.append(f"thread {number}, at its end")
            libc.free(at)

    threads = [threading.Thread(target=allocates, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    own = [filled(MB, 50 + number) for number in range(10)]
    for turn in range(turns):
        turn_begins.wait()
        boundary((UNLIMITED, 4 * MB, 0, 20 * MB)[turn % 4])
        wrong += [f"block {number}" for number, at in enumerate(own) if not holds(at, MB, 50 + number)]
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:5]
    assert boundary(0).host >= 10 * MB


def what_another_thread_has_made_moves_when_it_is_settled() -> None:
    begin()
    made: list[int] = []
    maker = threading.Thread(target=lambda: made.append(filled(MB, 9)))
    maker.start()
    maker.join()
    own = filled(MB, 8)
    boundary()
    assert (boundary(0).host, boundary(0).device) == (MB, MB), "the training thread's alone"
    for _ in range(32):
        found = boundary(0)
    assert (found.host, found.device) == (2 * MB, 0)
    assert holds(own, MB, 8) and holds(made[0], MB, 9)


def sizes_that_do_not_come_back_are_let_go() -> None:
    begin()
    for number in range(64):
        libc.free(filled((1 + number) * MB, 1))
        used = boundary()
        assert used.device <= DEVICE, "no more is cached than the device has"
    kept = filled(MB, 3)
    for _ in range(32):
        libc.free(filled(2 * MB, 1))
        boundary()
    used = boundary()
    assert used.device <= 6 * MB, f"{used.device} bytes, and 3 MB are used in each mini-batch"
    assert holds(kept, MB, 3)


def ends_with_memory_on_the_host_limited() -> None:
    begin()
    for number in range(8):
        filled(MB, number)
    boundary()
    assert boundary(0).host >= 8 * MB


if __name__ == "__main__":
    globals()[sys.argv[1]]()
