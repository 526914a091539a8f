"""Saves a state with tensors that have no memory at the moment, because it is parked on the host."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, BinaryIO

import torch

TENSOR: Any = torch.Tensor
TYPED: Any = torch.storage.TypedStorage
UNTYPED: Any = torch.storage.UntypedStorage


def save(state: Any, file: BinaryIO, parked: Mapping[int, torch.UntypedStorage]) -> None:
    """Like `torch.save`; tensors that share memory share it afterwards, too.

    Args:
        parked: {identity of a storage that is empty now: its bytes, on the host}.
    """

    class Pickler(pickle.Pickler):
        def reducer_override(self, thing: Any) -> Any:
            if not isinstance(thing, TENSOR):
                return NotImplemented
            return _from_host(thing.__reduce_ex__(torch.serialization.DEFAULT_PROTOCOL), parked)

    module: Any = SimpleNamespace(__name__=__name__, Pickler=Pickler)
    torch.save(state, file, pickle_module=module)


def _from_host(part: Any, parked: Mapping[int, torch.UntypedStorage]) -> Any:
    """What a tensor is made of, with its storage on the host; other tensors in there have their own turn."""
    if type(part) is tuple:
        return tuple(_from_host(each, parked) for each in part)
    if isinstance(part, TYPED):
        host = _from_host(part._untyped_storage, parked)
        return TYPED(wrap_storage=host, dtype=part.dtype, _internal=True)
    return parked.get(part._cdata, part) if isinstance(part, UNTYPED) else part
