"""The ranks of a job: which one this process is, and whether they have met."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

MEETING_LOOK_S = 0.01
"""How often a rank looks whether the others have come."""


def group() -> Any:
    """torch.distributed when this process is one of several ranks that have met, else None."""
    distributed = _initialised()
    return distributed if distributed is not None and distributed.get_world_size() > 1 else None


def place() -> tuple[int, int]:
    """Rank and world size: torch.distributed knows best, else the environment says; a process alone has no RANK."""
    distributed = _initialised()
    if distributed is not None:
        return distributed.get_rank(), distributed.get_world_size()
    return int(os.environ.get("RANK") or os.environ.get("SANJAYA_RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def local_place() -> int | None:
    """Of this process's GPU among those of its task on the node; None: there is one, or what started it says none."""
    local_rank = os.environ.get("LOCAL_RANK", "")
    return int(local_rank) if local_rank.isdecimal() else None


def group_size() -> int:
    """Ranks that have met, this one among them; 1 where there is no process group."""
    distributed = _initialised()
    return int(distributed.get_world_size()) if distributed is not None else 1


def barrier() -> None:
    """Wait for all ranks that have met."""
    distributed = group()
    if distributed is not None:
        distributed.barrier()


def store(distributed: Any) -> Any:
    """Where the ranks have met: they can tell each other numbers there without a device.

    It is private to torch; the harness has been tried with torch 2.15.
    """
    return distributed.distributed_c10d._get_default_store()


def meet_in_the_store(name: str) -> None:
    """Wait for all ranks that have met, without a device; `name` is used once.

    A rank for which the store is gone has been waited for: the first one, which keeps it, ends when all are there.
    """
    distributed = group()
    if distributed is None:
        return
    place, key = store(distributed), f"sanjaya/meet/{name}"
    try:
        there = place.add(key, 1)
        while there < distributed.get_world_size():
            time.sleep(MEETING_LOOK_S)
            there = place.add(key, 0)
    except RuntimeError:  # torch's DistNetworkError and DistStoreError are such
        if distributed.get_rank() == 0:
            raise


def agreed_in_the_store(name: str, text: str) -> str:
    """The text of the first of all ranks that have met, without a device; `name` is used once."""
    distributed = group()
    if distributed is None:
        return text
    place, key = store(distributed), f"sanjaya/agreed/{name}"
    if distributed.get_rank() == 0:
        place.set(key, text)
    return str(place.get(key).decode())


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
