"""The state of placement: what it knows of its cell, and what each mechanism remembers beside that."""

from __future__ import annotations

import msgspec

from services.placement.core.cell import Cell
from services.placement.core.mechanisms.rounds import memory as rounds
from services.placement.core.mechanisms.slicing import memory as slicing


class State(Cell, kw_only=True, dict=True):
    """Initially empty. Only a mechanism itself sees its part."""

    rounds: rounds.Memory = msgspec.field(default_factory=rounds.Memory)
    slicing: slicing.Memory = msgspec.field(default_factory=slicing.Memory)
