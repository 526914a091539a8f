"""What a shell tells a tracer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from libs.contracts.envelope import Envelope


@dataclass(frozen=True)
class Handled:
    """One handling of an event that led to decisions."""

    cause: Envelope
    outputs: Sequence[Envelope]
    started_ns: int
    """Nanoseconds since the epoch."""


class Tracer(Protocol):
    """Is told of all that is handled; there is none when tracing is off."""

    def handled(self, handled: Handled) -> None:
        """The decisions are on the log now."""
