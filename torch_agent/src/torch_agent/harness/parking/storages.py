"""Finds the memory that is alive on a device: each storage once, however many tensors look at it.

The unit is the storage, not the tensor: views, aliases, optimizer states and local variables of the script all keep
pointing at the same storage, so that emptying and refilling it is invisible to them (FSDP does the same to its shards).
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from itertools import compress
from typing import Any

SPARSE_PARTS = (
    ("indices", "values"),
    ("crow_indices", "col_indices", "values"),
    ("ccol_indices", "row_indices", "values"),
)


_frozen = 0
"""Objects that `skip_what_is_there` has put aside."""


def skip_what_is_there() -> None:
    """Never look at the objects that exist now, the modules of torch for the most part: no tensors are among them.

    They are put where the garbage collector does not look either: searches take milliseconds instead of tens of them.
    """
    global _frozen
    gc.freeze()
    _frozen = gc.get_freeze_count()


def objects_of(kinds: frozenset[type]) -> Iterable[Any]:
    """Every object of exactly these types; also those that the script itself has frozen.

    By their true types: asking `isinstance` would wake proxies that only pretend to be something. There are 100,000s
    of objects in a training process, so that no line of Python looks at each of them.
    """
    refreeze = gc.get_freeze_count() > _frozen
    if refreeze:
        gc.unfreeze()
    things = gc.get_objects()
    if refreeze:
        gc.freeze()
    return compress(things, map(kinds.__contains__, map(type, things)))


def _with_derived(kind: type) -> frozenset[type]:
    derived: list[type] = kind.__subclasses__()
    return frozenset({kind}).union(*map(_with_derived, derived))


def live_storages(torch: Any, device_type: str) -> list[Any] | None:
    """All storages on devices of this type, in the order of their addresses.

    Found by asking the garbage collector for every tensor, and from those on to their gradients and parts. What only
    C++ holds (buckets of a gradient reducer, pools of CUDA graphs) cannot be seen from here.

    Returns:
        None where nothing may move, because a captured CUDA graph is alive: it remembers addresses.
    """
    graphs = _with_derived(torch.cuda.CUDAGraph) if device_type == "cuda" else frozenset()
    found: dict[int, Any] = {}
    for known in objects_of(_with_derived(torch.Tensor) | graphs):
        if type(known) in graphs:
            return None
        for tensor in _parts(torch, known):
            _note(tensor, device_type, found)
    return sorted(found.values(), key=lambda storage: storage.data_ptr())


def _note(tensor: Any, device_type: str, found: dict[int, Any]) -> None:
    try:
        if tensor.device.type != device_type:
            return
        storage = tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return  # a tensor without memory of its own (fake, functional, a wrapper): its parts are tensors, too
    if storage.nbytes():
        found[storage._cdata] = storage


def _parts(torch: Any, tensor: Any) -> Iterator[Any]:
    """The tensor, its gradient, and the dense parts of both."""
    yield from _dense(torch, tensor)
    if tensor.is_leaf and tensor.requires_grad and tensor.grad is not None:
        yield from _dense(torch, tensor.grad)


def _dense(torch: Any, tensor: Any) -> Iterable[Any]:
    if tensor.layout is torch.strided:
        return (tensor,)
    for names in SPARSE_PARTS:
        if all(hasattr(tensor, f"_{name}") or hasattr(tensor, name) for name in names):
            try:
                return [_part(tensor, name) for name in names]
            except RuntimeError:
                continue
    return ()


def _part(tensor: Any, name: str) -> Any:
    """A sparse tensor's part itself: the public accessor of an uncoalesced tensor refuses."""
    private = getattr(tensor, f"_{name}", None)
    return private() if private is not None else getattr(tensor, name)()
