"""What a shell appends by itself."""

from __future__ import annotations

from libs.contracts.base import Event, event


@event("timer.fired.v1", owner="runtime", subject="service")
class TimerFired(Event, frozen=True, kw_only=True):
    """The time that a core asked to be woken at has come. On the log, so that timers are replayed too."""

    service: str
    due_s: float
    """What the core asked for; the envelope's time says when it really was."""


@event("clock.repaired.v1", owner="gateway", subject="log")
class ClockRepaired(Event, frozen=True, kw_only=True):
    """The cores are ahead of the log's clock: a node's clock was wrong before the log had one. An operator asks for it.

    Each core whose present is later than the time at which the log took this record goes back to it, and its times with
    it: what was due in so many seconds still is.
    """

    log: str
    """The cell."""
    requested_by: str
    note: str = ""


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
