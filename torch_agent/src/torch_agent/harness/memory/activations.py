"""Activations that do not fit are on the host between forward and backward, copied there and back beside computing.

    forward    the first that are saved go, which backward needs last; where the device is full, forward waits for them
    backward   each comes before it is needed, as far as there is room
    boundary   as many go in the next mini-batch as would have made this one fit

Kernels read and write the memory of their device alone, so that results are those of a process without a limit to the
bit. AntMan (OSDI'20, section 3.1.1) leaves the tensors beyond a limit to memory of the host that kernels reach over the
bus, which is what still happens here to what is no saved activation (host_pool.py).
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from typing import Any, NamedTuple, Protocol
from weakref import WeakValueDictionary, ref

from ..parking.storages import live_storages

SMALLEST_BYTES = 1 << 20
"""A copy of less is not worth its launch."""
MARGIN = 0.05
"""Of the limit: so much more goes than would be enough, and it stays so until twice as much is left over."""
AHEAD = 4
"""Activations that are fetched before they are needed."""
NOTHING = -1
"""Bytes that a device may have allocated, where all that leaves it is to be gone."""
ROOM = 3
"""Room is kept for so many tensors of the largest size, for what operations take besides what they save: with room for
two of those that were saved last, ResNet-50 with nine tenths of its memory was four times as slow on an H100, with this
1.35 times (tests/bench/results/gpu.md), as what did not fit lay in the host's pools."""


class Copies(Protocol):
    """Copies from a device and to it, in the background, in the order of what the device computes."""

    def out(self, tensor: Any) -> tuple[Any, Any]:
        """Returns the copy on the host, and an event that is over when it is whole."""

    def back(self, host: Any, like: Any, gone: Any) -> tuple[Any, Any]:
        """After the event `gone`. Returns the tensor on the device, laid out as on the host, and an event likewise."""

    def wait(self, event: Any) -> None:
        """What the device computes from now on comes after the event."""

    def allocated(self) -> int:
        """Bytes of the device that tensors have."""

    def are_recorded(self) -> bool:
        """Whether what the device is told now becomes part of a graph."""


class Saved:
    """One activation, for as long as anything that backward needs it for is alive."""

    def __init__(self, tensor: Any, owner: Activations, storage: Any) -> None:
        """The tensor begins to leave.

        Args:
            tensor: on the device.
            owner: counts what is on the host.
            storage: a weak reference to that of the tensor.

        Raises:
            RuntimeError: the host has no memory for it.
        """
        self._host, self.gone = owner.copies.out(tensor)
        self.size = tensor.nbytes
        self._owner, self._storage = owner, storage
        self._device: Any = tensor.device
        self._tensor: Any = tensor.detach()
        """On the device: until the copy is whole, and again from when it is fetched."""
        self._came: Any = None
        owner.on_host(self.size)

    def leave(self) -> None:
        """The copy is whole."""
        self._tensor = None

    @property
    def is_on_device(self) -> bool:
        """Also while it comes or goes."""
        return self._tensor is not None

    def fetch(self) -> None:
        """Begin to bring it back, unless it is there."""
        if self._tensor is None:
            self._tensor, self._came = self._owner.copies.back(self._host, self._device, self.gone)

    def value(self) -> Any:
        """For what is computed from now on."""
        self.fetch()
        self._arrive()
        return self._tensor

    def _arrive(self) -> None:
        if self._came is not None:
            self._owner.copies.wait(self._came)
            self._came = None

    def __del__(self) -> None:
        """Other tensors get its memory of the device now, which a copy that is under way must not overwrite."""
        with suppress(Exception):  # the interpreter may be ending
            self._arrive()
            self._owner.on_host(-self.size)


class Key(NamedTuple):
    """What makes two saved tensors one; a storage keeps its number as long as a weak reference to it is there."""

    storage: int
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    kind: Any
    version: int


class Activations:
    """Of the training thread of one process."""

    def __init__(self, torch: Any, copies: Copies, device_type: str, most_bytes: int) -> None:
        """None go yet.

        Args:
            torch: the module.
            copies: of the device.
            device_type: of the tensors that may go.
            most_bytes: of the host that they may have at a time.
        """
        self._torch, self.copies, self._device_type, self._most_bytes = torch, copies, device_type, most_bytes
        self._hooks: Any = None
        self._thread = get_ident()
        """They are those of a thread."""
        self._refused = False
        """The script does what forbids hooks."""
        _let_through(torch, self._refuse)
        self._wanted = 0
        """Bytes that are to be on the host at a time."""
        self._limit = 0
        self._now = self._most = 0
        """Bytes on the host: at present, and the most since the last boundary."""
        self._largest = 0
        """Of the tensors that have been saved since what is wanted has changed."""
        self._staying: dict[int, Any] | None = None
        """Storages that are there between mini-batches: to copy them frees nothing. By their numbers, with weak
        references, so that no later storage gets the number of one that has ended. None: not yet known."""
        self._known: WeakValueDictionary[Key, Saved] = WeakValueDictionary()
        self._leaving: deque[Saved] = deque()
        self._order: list[ref[Saved]] = []
        """As forward saved them; backward takes them from the end."""

    def on_host(self, size: int) -> None:
        """So many bytes more are there, or fewer."""
        self._now += size
        self._most = max(self._most, self._now)

    def ended(self) -> int:
        """A mini-batch is over. Returns the bytes that had gone at most."""
        self._drain(NOTHING)
        gone, self._most = self._most, self._now
        self._order.clear()
        return gone

    def want(self, limit_bytes: int | None, gone: int, most_in_use: int) -> None:
        """The next mini-batch is to keep to this limit.

        Args:
            limit_bytes: None: there is none, and nothing goes.
            gone: in the last one.
            most_in_use: bytes of tensors at any moment of that one, without those that had gone.
        """
        wanted = 0
        if limit_bytes is not None and not self._refused:
            margin = int(MARGIN * limit_bytes)
            least = max(0, gone + most_in_use - limit_bytes)
            enough = bool(least) and least <= self._wanted <= least + 2 * margin
            wanted = self._wanted if enough else least and least + margin
        wanted = min(wanted, self._most_bytes)
        self._limit = limit_bytes or 0
        if wanted == self._wanted:
            return
        if wanted and not self._knows_what_stays():
            wanted = 0
        self._wanted, self._largest = wanted, 0
        self._install() if wanted else self._remove()

    def _knows_what_stays(self) -> bool:
        """Whether it is known what is there between mini-batches; False for good: a graph that was captured is alive.

        It is looked for once, in tens of milliseconds. What comes later, as other data, is copied in vain.
        """
        if self._staying is None:
            storages = live_storages(self._torch, self._device_type)
            if storages is None:  # no hook is called for what a graph computes
                self._refused = True
                return False
            self._staying = {storage._cdata: self._weakly(storage) for storage in storages}
        return True

    def _weakly(self, storage: Any) -> Any:
        """A reference that does not keep it alive; meanwhile no other storage has its number."""
        return self._torch.multiprocessing.reductions.StorageWeakRef(storage)

    def _install(self) -> None:
        if self._hooks is None:
            self._hooks = self._torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
            self._hooks.__enter__()

    def _remove(self) -> None:
        if self._hooks is not None:
            self._hooks.__exit__(None, None, None)
            self._hooks = None

    def _refuse(self) -> None:
        """The script does what no hooks may be there for: none from now on."""
        if get_ident() == self._thread:
            self._refused, self._wanted = True, 0
            self._remove()

    def _pack(self, tensor: Any) -> Any:
        if not self._may_go(tensor):
            return tensor.detach()  # itself would be a cycle: what an operation saves of its own result
        self._largest = max(self._largest, tensor.nbytes)
        storage = self._weakly(tensor.untyped_storage())
        view = tensor.storage_offset(), tensor.size(), tensor.stride(), tensor.dtype
        key = Key(storage.cdata, *view, tensor._version)
        saved = self._known.get(key)
        if saved is None and self._now + tensor.nbytes <= self._wanted:
            saved = self._begin(tensor, key, storage)
        self._drain(self._full)
        return tensor.detach() if saved is None else saved

    def _begin(self, tensor: Any, key: Key, storage: Any) -> Saved | None:
        """A tensor begins to leave; None: the host has no memory for it, and none is asked for any more."""
        try:
            saved = self._known[key] = Saved(tensor, self, storage)
        except RuntimeError as error:
            print(f"sanjaya: the host gives no more memory for activations: {error}", file=sys.stderr)
            self._wanted = self._most_bytes = self._now
            return None
        self._leaving.append(saved)
        self._order.append(ref(saved))
        return saved

    def _may_go(self, tensor: Any) -> bool:
        return (
            tensor.device.type == self._device_type
            and tensor.layout is self._torch.strided
            and type(tensor) is self._torch.Tensor
            and tensor.nbytes >= SMALLEST_BYTES
            and tensor.untyped_storage()._cdata not in (self._staying or ())
            and _is_dense(tensor)
            and not self.copies.are_recorded()
        )

    def _drain(self, most: int) -> None:
        """Let go of what has left; wait for it, in this order, while the device has more than this allocated."""
        while self._leaving and (self._leaving[0].gone.query() or self.copies.allocated() > most):
            saved = self._leaving.popleft()
            saved.gone.synchronize()
            saved.leave()

    @property
    def _full(self) -> int:
        """Bytes allocated with which the device is full."""
        return self._limit - ROOM * self._largest

    def _unpack(self, saved: Any) -> Any:
        if not isinstance(saved, Saved):
            return saved
        self._drain(self._limit)
        value = saved.value()
        while self._order and self._order[-1]() in (None, saved):
            self._order.pop()
        self._fetch_ahead()
        return value

    def _fetch_ahead(self) -> None:
        """The next ones that backward will need, from the end of the order, as far as there is room."""
        found = (each() for each in self._order[: -AHEAD - 1 : -1])
        gone = [each for each in found if each is not None and not each.is_on_device]
        room = self._full - self.copies.allocated() if gone else 0
        for each in gone:
            room -= each.size
            if room < 0:
                break
            each.fetch()


def _is_dense(tensor: Any) -> bool:
    """Whether its elements are one next to the other in memory, in any order of its dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.size(), strict=True)):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


def _let_through(torch: Any, refuse: Callable[[], None]) -> None:
    """Transforms of functions (`torch.func`) do not run where there are hooks: these go when the first one comes."""
    functions = torch._C._autograd
    disable: Callable[..., None] = functions._saved_tensors_hooks_disable

    def disabling(error_message: str, fail_if_non_empty: bool = True) -> None:
        if fail_if_non_empty:
            refuse()
        disable(error_message, fail_if_non_empty)

    functions._saved_tensors_hooks_disable = disabling


class CudaCopies:
    """See `Copies`. Of the device that is current, by a stream for each way."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._out, self._back = torch.cuda.Stream(), torch.cuda.Stream()

    def out(self, tensor: Any) -> tuple[Any, Any]:
        """See `Copies`."""
        host = self._torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, pin_memory=True)
        self._out.wait_stream(self._torch.cuda.current_stream())
        with self._torch.cuda.stream(self._out):
            host.copy_(tensor, non_blocking=True)
        return host, self._out.record_event()

    def back(self, host: Any, like: Any, gone: Any) -> tuple[Any, Any]:
        """See `Copies`. The memory may be that of a tensor which is computed with until now.

        Where there is none within the limit, that does not count until the next boundary: else the script would fail.
        """
        try:
            tensor = self._torch.empty_strided(host.size(), host.stride(), dtype=host.dtype, device=like)
        except self._torch.OutOfMemoryError:
            self._torch.cuda.set_per_process_memory_fraction(1.0)
            tensor = self._torch.empty_strided(host.size(), host.stride(), dtype=host.dtype, device=like)
        self._back.wait_event(gone)
        self._back.wait_stream(self._torch.cuda.current_stream())
        with self._torch.cuda.stream(self._back):
            tensor.copy_(host, non_blocking=True)
        return tensor, self._back.record_event()

    def wait(self, event: Any) -> None:
        """See `Copies`."""
        self._torch.cuda.current_stream().wait_event(event)

    def allocated(self) -> int:
        """See `Copies`."""
        found = self._torch.cuda.memory_stats_as_nested_dict()
        return int(found["allocated_bytes"]["all"]["current"])

    def are_recorded(self) -> bool:
        """See `Copies`."""
        return bool(self._torch.cuda.is_current_stream_capturing())
