"""The ranks of a job: which one this process is, and whether they have met."""

from __future__ import annotations

import os
import sys
from typing import Any


def group() -> Any:
    """torch.distributed when this process is one of several ranks that have met, else None."""
    distributed = _initialised()
    return distributed if distributed is not None and distributed.get_world_size() > 1 else None


def place() -> tuple[int, int]:
    """Rank and world size: torch.distributed knows best, else the environment says."""
    distributed = _initialised()
    if distributed is not None:
        return distributed.get_rank(), distributed.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def barrier() -> None:
    """Wait for all ranks that have met."""
    distributed = group()
    if distributed is not None:
        distributed.barrier()


def from_the_first(thing: Any) -> Any:
    """What the first of all ranks that have met was given here; the very same thing on that one."""
    distributed = group()
    if distributed is None:
        return thing
    things = [thing if distributed.get_rank() == 0 else None]
    distributed.broadcast_object_list(things)
    return thing if distributed.get_rank() == 0 else things[0]


def _initialised() -> Any:
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed
