"""Where the fold stands while it takes one event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class At(msgspec.Struct, frozen=True, kw_only=True):
    """The moment of an event, what is known of the cell then, and a list for what comes to its end."""

    time_s: float
    number: int = 0
    """Of the change to a life, counted over the log."""
    gpu_types: Mapping[str, Mapping[int, str]] = {}
    """{node id: {index: type of the GPU}} of the nodes that have joined."""
    closed: list[Any] = []
    """Attempts and holdings that end with the event, in order."""
