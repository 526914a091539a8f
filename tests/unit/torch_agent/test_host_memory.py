"""Limits of a real GPU's memory, with a stand-in for CUDA: what torch is told, and when."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
from torch_agent.harness.memory import cuda as cuda_module
from torch_agent.harness.memory import host_pool
from torch_agent.harness.memory.cuda import KEPT_FOR, SPARE, CudaMemory
from torch_agent.harness.memory.host_pool import SMALL_BYTES, Locking
from torch_agent.harness.parking.storages import live_storages

GIB, SEGMENT = 1 << 30, 2 << 20
WHOLE = 100 * GIB


class Runtime:
    """Locks memory at once, until it has none left."""

    def __init__(self, most: int) -> None:
        self.left, self.at, self.freed = most, 0, 0

    def cudaSetDevice(self, device: int) -> int:  # noqa: N802
        return 0

    def cudaGetLastError(self) -> int:  # noqa: N802
        return 0

    def cudaHostAlloc(self, out: Any, size: Any, flags: int) -> int:  # noqa: N802
        if size.value > self.left:
            return 2
        self.left -= size.value
        self.at += WHOLE
        out._obj.value = self.at
        return 0

    def cudaFreeHost(self, at: Any) -> int:  # noqa: N802
        self.freed += 1
        return 0


class Pool:
    """A MemPool: it takes segments of its allocator, of 2 MiB for two tensors of 1 MiB, and returns them at its end."""

    def __init__(self, allocator: tuple[int, int], *, use_on_oom: bool) -> None:
        assert use_on_oom
        number, pointer = ctypes.c_size_t, ctypes.c_void_p
        self._allocate = ctypes.CFUNCTYPE(pointer, number, ctypes.c_int, pointer)(allocator[0])
        self._free = ctypes.CFUNCTYPE(None, pointer, number, ctypes.c_int, pointer)(allocator[1])
        self._segments: list[tuple[int, int]] = []
        self._room = 0

    def take(self, size: int) -> int:
        """Returns what is new of it."""
        if self._room:
            self._room = 0
            return 0
        taken, self._room = max(size, SEGMENT), size % SEGMENT
        at = self._allocate(taken, 0, None)
        if not at:
            raise OutOfMemory
        self._segments.append((at, taken))
        return taken

    def __del__(self) -> None:
        for at, size in self._segments:
            self._free(at, size, 0, None)


class OutOfMemory(RuntimeError):
    """As torch's."""


class Storage:
    """In the pool that is in use."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda

    def untyped_storage(self) -> Storage:
        return self

    def resize_(self, size: int) -> None:
        assert self._cuda.pool is not None
        self._cuda.reserved += self._cuda.pool.take(size)


class Cuda:
    """torch.cuda, as far as it is asked."""

    MemPool = Pool
    Stream = SimpleNamespace
    CUDAGraph = type("CUDAGraph", (), {})

    def __init__(self) -> None:
        self.initialized, self.in_use, self.peak, self.reserved = True, 0, 0, 0
        self.fraction, self.emptied, self.streams, self.largest = 1.0, 0, [0], 0
        self.pool: Pool | None = None

    def is_initialized(self) -> bool:
        return self.initialized

    def memory_reserved(self) -> int:
        return self.reserved

    def current_stream(self) -> Any:
        return SimpleNamespace(cuda_stream=0)

    def current_device(self) -> int:
        return 0

    def get_device_properties(self, device: int) -> Any:
        return SimpleNamespace(total_memory=WHOLE)

    def set_per_process_memory_fraction(self, fraction: float) -> None:
        self.fraction = fraction

    def empty_cache(self) -> None:
        self.emptied += 1

    def synchronize(self) -> None:
        pass

    def reset_peak_memory_stats(self) -> None:
        self.peak = self.in_use

    def memory_snapshot(self) -> list[Any]:
        return [{"stream": each, "device": 0, "address": 1, "total_size": self.largest} for each in self.streams]

    def memory_stats_as_nested_dict(self) -> dict[str, Any]:
        return {
            "reserved_bytes": {"all": {"current": self.reserved}},
            "allocated_bytes": {"all": {"current": self.in_use, "peak": self.peak}},
        }

    @contextmanager
    def use_mem_pool(self, pool: Pool) -> Iterator[None]:
        self.pool = pool
        yield
        self.pool = None


@pytest.fixture
def cuda() -> Cuda:
    return Cuda()


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    found = Runtime(1000 * GIB)
    monkeypatch.setattr(host_pool, "_runtime", lambda: found)
    return found


class Hooks:
    """What is called for the tensors that forward saves."""

    def __init__(self) -> None:
        self.said: list[str] = []

    @contextmanager
    def saved_tensors_hooks(self, pack: Any, unpack: Any) -> Iterator[None]:
        self.said.append("begin")
        yield
        self.said.append("end")


@pytest.fixture
def hooks() -> Hooks:
    return Hooks()


@pytest.fixture
def memory(cuda: Cuda, runtime: Runtime, hooks: Hooks) -> CudaMemory:
    torch = SimpleNamespace(
        cuda=cuda,
        autograd=SimpleNamespace(graph=hooks),
        Tensor=type("Tensor", (), {}),
        uint8=None,
        OutOfMemoryError=OutOfMemory,
        empty=lambda size, dtype, device: Storage(cuda),
        _C=SimpleNamespace(
            _cuda_customAllocator=lambda allocate, free: (allocate, free),
            _host_emptyCache=lambda: None,
            _autograd=SimpleNamespace(_saved_tensors_hooks_disable=None),
        ),
    )
    return CudaMemory(torch, 30 * GIB)


def all_locked(memory: CudaMemory) -> int:
    """Wait for the host's memory. Returns how much there is."""
    assert memory._pool is not None
    memory._pool.admit(wait=True)
    return memory._pool.size


def test_what_the_host_cannot_take_yet_may_stay_on_the_gpu(memory: CudaMemory, cuda: Cuda, monkeypatch: Any):
    cuda.peak = 50 * GIB
    monkeypatch.setattr(Locking, "want", lambda self, sizes: None)  # the host gives nothing
    memory.boundary(40 * GIB)
    assert cuda.fraction * WHOLE == pytest.approx(40 * GIB + SPARE * 10 * GIB)


def test_a_limit_and_the_memory_of_the_host_are_allowed_together(memory: CudaMemory, cuda: Cuda):
    cuda.peak = 50 * GIB
    memory.boundary(40 * GIB)
    size = all_locked(memory)
    memory.boundary(40 * GIB)
    assert 29 * GIB < size <= 30 * GIB
    assert cuda.fraction * WHOLE == pytest.approx(40 * GIB + size)


def test_a_limit_and_the_memory_of_the_host_are_never_more_than_the_gpu(memory: CudaMemory, cuda: Cuda):
    memory.boundary(95 * GIB)
    assert 4 * GIB < all_locked(memory) <= 5 * GIB


def test_a_lower_limit_releases_what_is_cached_and_a_higher_one_does_not(memory: CudaMemory, cuda: Cuda):
    memory.boundary(50 * GIB)
    emptied = cuda.emptied
    assert emptied
    memory.boundary(60 * GIB)
    assert cuda.emptied == emptied
    memory.boundary(40 * GIB)
    assert cuda.emptied > emptied


def test_what_is_cached_goes_before_the_host_s_memory_is_locked_which_holds_that_up(
    memory: CudaMemory, cuda: Cuda, monkeypatch: pytest.MonkeyPatch
):
    emptied: list[int] = []
    monkeypatch.setattr(Locking, "want", lambda self, sizes: emptied.append(cuda.emptied))
    cuda.largest = GIB + 1
    monkeypatch.setattr(cuda, "empty_cache", lambda: (setattr(cuda, "largest", 0), Cuda.empty_cache(cuda)))
    memory.boundary(40 * GIB)
    assert emptied == [1]
    assert memory._pool is not None and memory._pool.largest > GIB, "of what was cached"


def test_without_a_limit_all_of_the_gpu_is_allowed_and_the_host_gets_its_memory_back_later(
    memory: CudaMemory, cuda: Cuda
):
    memory.boundary(50 * GIB)
    all_locked(memory)
    for _ in range(KEPT_FOR - 1):
        memory.boundary(None)
    assert cuda.fraction == 1.0 and memory._pool is not None and memory._pool.size
    memory.boundary(None)
    assert not memory._pool.size


def test_before_cuda_begins_it_is_not_touched(memory: CudaMemory, cuda: Cuda):
    cuda.initialized = False
    assert memory.boundary(50 * GIB).device == 0
    assert memory._pool is None and cuda.fraction == 1.0


def test_the_host_gets_back_all_that_was_locked(memory: CudaMemory, cuda: Cuda, runtime: Runtime):
    for _ in range(3):
        memory.boundary(50 * GIB)
        assert all_locked(memory) == 29 * GIB + GIB // 2 + (64 << 20)
        assert memory._pool is not None
        memory._pool.want(0)
        assert not memory._pool.size
        memory.boundary(None)
    assert runtime.freed == 3 * 60


def test_a_limit_that_rises_again_and_again_keeps_memory_for_small_tensors(memory: CudaMemory, cuda: Cuda):
    for limit in (40, 90, 98, 99):
        memory.boundary(limit * GIB)
        all_locked(memory)
        assert memory._pool is not None
        assert SMALL_BYTES in [segment.piece.size for segment in memory._pool._segments]


def test_when_a_limit_changes_the_largest_block_so_far_fits_on_the_host(memory: CudaMemory, cuda: Cuda):
    memory.boundary(95 * GIB)
    all_locked(memory)
    cuda.largest = GIB + 1
    memory.boundary(80 * GIB)
    all_locked(memory)
    assert memory._pool is not None
    assert max(segment.piece.size for segment in memory._pool._segments) == GIB + (2 << 20)


def test_where_several_streams_have_memory_nothing_has_to_lie_on_the_host(memory: CudaMemory, cuda: Cuda):
    cuda.streams, cuda.peak = [0, 7], 50 * GIB
    memory.boundary(40 * GIB)
    size = all_locked(memory)
    memory.boundary(40 * GIB)
    assert cuda.fraction * WHOLE == pytest.approx(40 * GIB + size + SPARE * 10 * GIB)


def test_what_torch_has_no_room_for_beside_what_it_counts_stays_with_the_host(memory: CudaMemory, cuda: Cuda):
    cuda.reserved = 90 * GIB
    memory.boundary(40 * GIB)
    assert all_locked(memory) <= 10 * GIB


@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
def test_an_allocator_that_is_set_otherwise_has_no_such_pools(
    memory: CudaMemory, monkeypatch: pytest.MonkeyPatch, name: str
):
    assert memory._has_pools
    monkeypatch.setenv(name, "garbage_collection_threshold:0.8,max_split_size_mb:128")
    assert not CudaMemory(memory._torch)._has_pools


def test_with_nothing_to_be_moved_it_is_looked_for_once(
    memory: CudaMemory, cuda: Cuda, monkeypatch: pytest.MonkeyPatch
):
    looked: list[str] = []
    monkeypatch.setattr(cuda_module, "live_storages", lambda torch, kind: looked.append(kind) or [])
    monkeypatch.setattr(Locking, "want", lambda self, sizes: None)
    cuda.reserved = cuda.in_use = 50 * GIB
    for _ in range(5):
        memory.boundary(40 * GIB)
    assert len(looked) == 1
    cuda.in_use += 1
    memory.boundary(40 * GIB)
    assert len(looked) == 2


def test_what_exceeded_the_limit_in_a_minibatch_is_told_of(memory: CudaMemory, cuda: Cuda):
    memory.boundary(40 * GIB)
    all_locked(memory)
    cuda.peak = 45 * GIB
    assert memory.boundary(40 * GIB).most_on_host == 5 * GIB
    assert memory.boundary(40 * GIB).most_on_host == 0


def test_a_host_without_memory_is_no_error(
    memory: CudaMemory, cuda: Cuda, runtime: Runtime, capsys: pytest.CaptureFixture[str]
):
    runtime.left = GIB
    cuda.peak = 45 * GIB
    memory.boundary(40 * GIB)
    assert all_locked(memory) <= GIB
    memory.boundary(40 * GIB)
    assert "the host gives no more memory beyond a limit: CUDA error 2" in capsys.readouterr().err
    assert cuda.fraction * WHOLE == pytest.approx(40 * GIB + SPARE * 5 * GIB)


def test_an_owner_is_not_held_to_its_limit_and_gives_back_what_it_caches_when_that_falls(
    memory: CudaMemory, cuda: Cuda, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cuda_module, "live_storages", lambda torch, kind: pytest.fail("nothing moves"))
    memory.boundary(80 * GIB, is_owner=True)
    all_locked(memory)
    cuda.reserved += 70 * GIB
    cuda.in_use = cuda.peak = 70 * GIB  # a burst, larger than limit and host
    emptied = cuda.emptied
    usage = memory.boundary(30 * GIB, is_owner=True)
    assert cuda.fraction == 1.0 and not hooks.said and cuda.emptied == emptied + 1
    assert (usage.most_on_host, usage.most_in_use) == (0, 70 * GIB)
    memory.boundary(30 * GIB, is_owner=True)
    assert cuda.emptied == emptied + 1, "not in each mini-batch"


def test_a_guest_that_becomes_an_owner_is_held_to_its_limit_no_more(memory: CudaMemory, cuda: Cuda):
    cuda.peak = 50 * GIB
    memory.boundary(40 * GIB)
    all_locked(memory)
    memory.boundary(40 * GIB)
    assert cuda.fraction < 1.0
    memory.boundary(40 * GIB, is_owner=True)
    assert cuda.fraction == 1.0


class Slow(Runtime):
    """Each piece is locked when it may be."""

    def __init__(self) -> None:
        super().__init__(1000 * GIB)
        self.begun, self.may = SimpleQueue[int](), SimpleQueue[None]()

    def cudaHostAlloc(self, out: Any, size: Any, flags: int) -> int:  # noqa: N802
        self.begun.put(size.value)
        self.may.get()
        return super().cudaHostAlloc(out, size, flags)


def test_while_locking_is_held_up_no_piece_is_begun():
    runtime = Slow()
    locking = Locking(runtime, 0)  # type: ignore[arg-type]
    locking.want([1, 2, 3])
    assert runtime.begun.get() == 1
    with locking.held_up():
        runtime.may.put(None)
        while locking.taken(wait=False) is None:
            pass
        with pytest.raises(Empty):
            runtime.begun.get(timeout=0.05)
    assert runtime.begun.get() == 2
    runtime.may.put(None)
    assert locking.taken(wait=True) is not None
    assert runtime.begun.get() == 3
    runtime.may.put(None)
    assert locking.taken(wait=True) is not None and locking.taken(wait=True) is None


def test_pieces_that_are_not_wanted_any_more_are_not_begun_after_it_was_held_up():
    runtime = Slow()
    locking = Locking(runtime, 0)  # type: ignore[arg-type]
    locking.want([1, 2])
    assert runtime.begun.get() == 1
    with locking.held_up():
        locking.want([])
        runtime.may.put(None)
    assert locking.taken(wait=True) is not None and locking.taken(wait=True) is None
    assert runtime.begun.empty()


def test_after_each_piece_others_have_as_long_as_it_took(monkeypatch: pytest.MonkeyPatch):
    rests: list[float] = []
    now = iter(range(0, 100, 7))
    monkeypatch.setattr(host_pool, "time", SimpleNamespace(monotonic=lambda: next(now)))
    monkeypatch.setattr(Locking, "_rest", lambda self, seconds: rests.append(seconds))
    locking = Locking(Runtime(1000 * GIB), 0)  # type: ignore[arg-type]
    locking.want([1, 2])
    while locking.taken(wait=True) is not None:
        pass
    assert rests == [7, 7]


def test_a_torch_without_such_pools_has_no_limit_and_only_saved_activations_leave_it(
    cuda: Cuda, memory: CudaMemory, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delattr(Cuda, "MemPool")
    older, cuda.peak = CudaMemory(memory._torch), 50 * GIB
    for limit in (40 * GIB, 30 * GIB, None):
        older.boundary(limit)
    assert hooks.said == ["begin", "end"] and cuda.fraction == 1.0


def test_while_a_cuda_graph_is_alive_nothing_is_looked_for_that_could_move():
    graph = type("CUDAGraph", (), {})
    torch = SimpleNamespace(cuda=SimpleNamespace(CUDAGraph=graph), Tensor=type("Tensor", (), {}))
    assert live_storages(torch, "cuda") == []
    alive = [graph()]
    gc.collect()
    assert live_storages(torch, "cuda") is None
    assert live_storages(torch, "cpu") == []
    alive.clear()
    assert live_storages(torch, "cuda") == []
