"""Loads what was saved."""

from __future__ import annotations

from typing import Any

import torch


def load(path: str) -> Any:
    """The state, on the host.

    In memory that torch itself has allocated, a storage at a time: what is mapped from the file cannot be parked
    later, and optimizers on the host keep the very tensors that they are given.
    """
    return torch.load(path, map_location=_own, weights_only=False)


def _own(storage: Any, location: str) -> Any:
    return storage.clone()
