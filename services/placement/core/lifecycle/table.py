"""The table of what each event does, filled by the subjects; and reactions, after which the cluster is looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from libs.contracts.base import Event
from libs.contracts.placement import OWNER
from libs.kernel.machine import Machine, Turn
from services.placement.core.cell import Cell

machine: Machine[Cell] = Machine(OWNER)


class Look(msgspec.Struct, frozen=True):
    """Something has changed that decides where jobs may be: the mechanism in force is to look at the cluster."""

    gpus_kept: bool = False
    """A job was paused and has its GPUs still: nothing has changed unless others may have them already."""
    guests_alone: bool = False
    """Nothing has changed but where guests may be."""


Reaction = Callable[[Cell, Any, Turn[Cell]], Look | None]
R = TypeVar("R", bound=Reaction)

reactions: dict[type[Event], Reaction] = {}
"""{event type: what a job's life decides about it}; None: nothing else follows."""


def reacts(*types: type[Event]) -> Callable[[R], R]:
    """Register a reaction. The scheduler decides with it, and looks at the cluster afterwards if it says so.

    Raises:
        ValueError: a type has a reaction already.
    """

    def register(reaction: R) -> R:
        for cls in types:
            if cls in reactions:
                raise ValueError(f"{cls.__name__} has two reactions ({reactions[cls]}, {reaction})")
            reactions[cls] = reaction
        return reaction

    return register
