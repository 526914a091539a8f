"""What a running service knows about itself: plain numbers, read by `/metrics` and `/healthz`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from libs.contracts.envelope import Envelope
from libs.runtime.log import fields

log = logging.getLogger(__name__)


class Phase(StrEnum):
    """Where a shell is in its life."""

    STARTING = "starting"
    REPLAYING = "replaying"
    """Folds what the log has recorded: nothing is decided yet."""
    LIVE = "live"
    STOPPED = "stopped"


STALLED_AFTER_S = 30.0
"""A loop that has not turned for so long is not healthy."""


@dataclass
class Stats:
    """Counters and positions of one service's shell. Written by the loop, read from anywhere."""

    service: str
    phase: Phase = Phase.STARTING
    records: int = 0
    """Records read, the service's concern or not."""
    events: int = 0
    """Records that the core took."""
    decisions: int = 0
    """Events that the core decided, replayed ones not counted."""
    commits: int = 0
    timers: int = 0
    snapshots: int = 0
    snapshot_failures: int = 0
    violations: int = 0
    """State checks that found a contradiction."""
    impossible: int = 0
    """Inputs that cannot be in the state that they met; they changed nothing."""
    last_impossible: str = ""
    """The latest of them, and what was expected."""
    repairs: int = 0
    """Starts at which the committed position was behind what the log tells, and was repaired."""
    next_offset: int = 0
    """Everything before it is handled."""
    lag_records: int = 0
    """Records on the log that are not handled yet, as of the last look."""
    snapshot_at_s: float | None = None
    """When the last snapshot was taken, seconds since the epoch."""
    progress_at_s: float | None = None
    """When the last record was handled, seconds since the epoch."""
    log_away: bool = False
    beat: float = field(default_factory=time.monotonic)
    """`time.monotonic()` of the loop's last turn."""
    on_commit: Callable[[float], None] | None = None
    """Told the duration of each commit, in seconds; None: there is no listener."""

    def note_impossible(self, envelope: Envelope, why: str) -> None:
        """Count an input that cannot be in the state that it met, and say which."""
        self.impossible += 1
        self.last_impossible = f"{envelope.id} of {envelope.source}: {why}"
        log.error("an event is impossible and changes nothing", extra=fields(event=envelope.id, why=why))

    def health(self) -> tuple[bool, dict[str, object]]:
        """Whether the service does its work, and the facts behind the verdict."""
        stalled_s = time.monotonic() - self.beat
        healthy = self.phase is Phase.LIVE and not self.log_away and stalled_s < STALLED_AFTER_S
        return healthy, {
            "service": self.service,
            "phase": self.phase.value,
            "log": "away" if self.log_away else "reachable",
            "next_offset": self.next_offset,
            "lag_records": self.lag_records,
            "violations": self.violations,
            "impossible_events": self.impossible,
            "last_impossible_event": self.last_impossible,
            "last_turn_s": round(stalled_s, 3),
        }
