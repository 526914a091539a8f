"""What processes do with memory while the allocator of virtual GPUs is preloaded; one per name, silent if all is well.

Those with `_limited` in their names have a limit far below what they hold, set as often as they ask for it.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import resource
import subprocess
import sys
import threading

import numpy

MB = 1 << 20
HUGE_PAGE = 2 * MB
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


class Large:
    """A block of random bytes, larger than a huge page."""

    def __init__(self, size: int) -> None:
        self.at, self.kept = block(size), os.urandom(size)
        ctypes.memmove(self.at, self.kept, size)

    def is_the_same(self) -> bool:
        return ctypes.string_at(self.at, len(self.kept)) == self.kept


def in_file() -> int:
    """Bytes of memory that the file of what lies on the host has."""
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        if os.path.exists(path) and os.readlink(path).startswith("/memfd:sanjaya-host"):
            return os.stat(path).st_blocks * 512
    return 0


def private() -> int:
    """Bytes of memory of its own that the process has."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon:")) * 1024


def large_blocks_move_limited() -> None:
    begin()
    sizes = (HUGE_PAGE, HUGE_PAGE + 16384, 5 * MB + 70_000, 16 * MB, 4 * MB - 16384, 7 * MB, MB)
    held = [Large(size) for size in sizes]
    whole = boundary().device
    for _ in range(3):
        before = private()
        found = boundary(0)
        assert (found.device, found.host, in_file()) == (0, whole, whole)
        assert before - private() > 0.9 * whole, "what has left the device has left the process"
        assert all(each.is_the_same() for each in held)
        found = boundary(whole // 2)
        assert found.device <= whole // 2 and in_file() == found.host == whole - found.device
        boundary(0)
        before = private()
        found = boundary()
        assert (found.device, found.host, in_file()) == (whole, 0, 0), "nothing of the host is kept"
        assert private() - before > 0.9 * whole
        assert all(each.is_the_same() for each in held)
    boundary(0)
    for each in held:
        libc.free(each.at)
    assert boundary(0).host == in_file() == 0


def large_blocks_move_without_huge_pages_limited() -> None:
    assert libc.prctl(41, 1, 0, 0, 0) == 0, "PR_SET_THP_DISABLE"
    large_blocks_move_limited()


def what_does_not_fit_onto_the_host_stays_whole_limited() -> None:
    """The file ends before a block, at a page of it, and in its last page, which is no huge one."""
    begin()
    size = 8 * MB + MB // 2
    first, second = Large(MB), Large(size)
    whole = boundary().device
    boundary(0), boundary()  # there is a file
    base = second.at - HUGE_PAGE
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    for part in (0, 3 * MB, 8 * MB + MB // 4):
        resource.setrlimit(resource.RLIMIT_FSIZE, (second.at - base + part, most))
        found = boundary(0)
        assert (found.device, found.host, in_file()) == (size, MB, MB)
        assert first.is_the_same() and second.is_the_same()
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        assert boundary().device == whole
    assert boundary(0).host == whole and second.is_the_same()


def what_another_thread_reads_while_it_moves_is_right_limited() -> None:
    begin()
    held = Large(12 * MB)
    boundary()
    reads: list[bool] = []
    ends = threading.Event()

    def reader() -> None:
        while not ends.is_set():
            reads.append(held.is_the_same())

    thread = threading.Thread(target=reader)
    thread.start()
    while len(reads) < 60:
        boundary(0), boundary()
    ends.set()
    thread.join()
    assert all(reads)


def a_fork_has_its_own_limited() -> None:
    begin()
    sizes = [5 * MB if number % 4 == 0 else MB for number in range(20)]
    held = [filled(size, number) for number, size in enumerate(sizes)]
    boundary(), boundary(2 * MB)
    child = os.fork()
    if child == 0:
        same = all(holds(at, size, number) for number, (at, size) in enumerate(zip(held, sizes, strict=True)))
        for at, size in zip(held, sizes, strict=True):
            ctypes.memset(at, 99, size)
        more = filled(MB, 5)
        os._exit(0 if same and holds(more, MB, 5) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    same = all(holds(at, size, number) for number, (at, size) in enumerate(zip(held, sizes, strict=True)))
    assert same, "a child writes to its own"
    assert boundary(2 * MB).device <= 3 * MB, "and the parent keeps to its limit again"


def what_another_thread_writes_at_a_fork_is_kept_limited() -> None:
    """It writes to blocks one after another, as they become private one after another."""
    begin()
    size = 24 * HUGE_PAGE
    held = [filled(HUGE_PAGE, 0) for _ in range(24)]
    assert held == list(range(held[0], held[0] + size, HUGE_PAGE))
    boundary()
    turn_begins, turn_ends = threading.Barrier(2), threading.Barrier(2)
    wrong: list[int] = []

    def writer() -> None:
        for turn in range(1, 21):
            turn_begins.wait()
            ctypes.memset(held[0], turn, size)
            if not holds(held[0], size, turn):
                wrong.append(turn)
            turn_ends.wait()

    thread = threading.Thread(target=writer)
    thread.start()
    for turn in range(1, 21):
        assert boundary(0).host == size
        turn_begins.wait()
        while not holds(held[0], 1, turn):
            pass  # it is about to write
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        turn_ends.wait()
    thread.join()
    assert not wrong, wrong


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
    own = [filled(3 * MB, 50 + number) for number in range(10)]
    for turn in range(turns):
        turn_begins.wait()
        boundary((UNLIMITED, 4 * MB, 0, 20 * MB)[turn % 4])
        wrong += [f"block {number}" for number, at in enumerate(own) if not holds(at, 3 * MB, 50 + number)]
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:5]
    assert boundary(0).host >= 30 * MB


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
