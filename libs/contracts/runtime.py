"""What a shell appends by itself."""

from __future__ import annotations

from libs.contracts.base import Event, event


@event("timer.fired.v1", owner="runtime", subject="service")
class TimerFired(Event, frozen=True, kw_only=True):
    """The time that a core asked to be woken at has come. On the log, so that timers are replayed too."""

    service: str
    due_s: float
    """What the core asked for; the envelope's time says when it really was."""


@event("service.started.v1", owner="runtime", subject="service")
class ServiceStarted(Event, frozen=True, kw_only=True):
    """A service decides under these rules from here on: an epoch of the log begins.

    Appended by the service's shell before it decides anything, when the rules or the version differ from those of the
    latest such record. The audit decides again what was decided under rules that it has at hand, and folds the rest.
    """

    service: str
    version: str
    """Of the package."""
    rules: str
    """Digest of everything that the service's decisions depend on (`libs.inspect.rules`)."""
    next_offset: int
    """Every control record before it was handled under earlier rules."""
