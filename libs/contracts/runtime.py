"""The one event that a shell appends by itself."""

from __future__ import annotations

from libs.contracts.base import Event, event


@event("timer.fired.v1", owner="runtime", subject="service")
class TimerFired(Event, frozen=True, kw_only=True):
    """The time that a core asked to be woken at has come. On the log, so that timers are replayed too."""

    service: str
    due_s: float
    """What the core asked for; the envelope's time says when it really was."""
