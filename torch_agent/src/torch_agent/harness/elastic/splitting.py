"""Batches are split along their first dimension."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def samples_in(batch: Any) -> int:
    """Samples of a batch: the first dimension of all tensors in it.

    Raises:
        ValueError: they do not agree, or there are none.
    """
    sizes = {len(tensor) for tensor in _tensors_in(batch)}
    if len(sizes) != 1:
        raise ValueError(f"sanjaya: a batch with tensors of {sorted(sizes) or 'no'} samples cannot be split")
    return sizes.pop()


def part_of(batch: Any, begin: int, end: int) -> Any:
    """The same thing with fewer samples; what is no tensor, and has none in it, stays whole."""
    if isinstance(batch, torch.Tensor):
        return batch[begin:end] if batch.dim() else batch
    if isinstance(batch, Mapping):
        return {key: part_of(value, begin, end) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(part_of(value, begin, end) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(part_of(value, begin, end) for value in batch)
    return batch


def _tensors_in(batch: Any) -> list[torch.Tensor]:
    if isinstance(batch, torch.Tensor):
        return [batch] if batch.dim() else []
    values = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ()
    return [tensor for value in values for tensor in _tensors_in(value)]
