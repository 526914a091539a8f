"""The GPUs of a server as guests see them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Seat(NamedTuple):
    """A GPU, by which the least loaded is the first."""

    load: float
    gpu: int
    """Its index."""


@dataclass
class Seating:
    """What was found of a server when it was last looked at: true until the server or a job there changes."""

    ranked: list[Seat]
    """Its GPUs, the least loaded first."""
    spills: dict[str, int]
    """{guest there: bytes that it has on the server's GPUs at its peak}."""
    spilled_bytes: int
    """By all guests there."""
    closed: dict[int, str | None] = field(default_factory=dict)
    """{GPU that was asked for: what it lacks to be a candidate, as a token; None: nothing}."""
