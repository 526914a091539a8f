"""Timers as events: a core's wake-up time becomes one TimerFired on the log, exactly once over any crash.

Timers are numbered, and the log itself knows which are on it: a restart counts those that the core has taken, and finds
the one that it has not. Nothing is guessed, and nothing rests on a position that a broker may forget.

A wake-up time is one of the log's clock. It is waited for by elapsed time, on the clock of the shell: at the time when
the log showed 10:00:00, a timer for 10:00:08 was due 8 s later, whatever any clock is set to meanwhile.
"""

from __future__ import annotations

import math

import msgspec

from libs.contracts.envelope import Envelope
from libs.contracts.runtime import TimerFired
from libs.kernel.ids import derived_id

SOURCE = "runtime"

MOST_REPEATS = 1000
"""A core that asks so often in a row for the same moment would fill the log for ever: it is stopped."""


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the session's position carries along, so that a commit in doubt can be told from none."""

    timers: int = 0
    """Timers fired in the whole life of the service."""
    pending: str = ""
    """Id of the fired timer that the core has not read back by this position."""
    epoch: str = ""
    """Id of the ServiceStarted that this process has appended; empty for none."""


NEW = Note()
"""Of a service that has never run."""


class StuckTimer(Exception):
    """A core asks again and again for a moment that its timer has already reported."""


class Timers:
    """Which timer of one service is wanted, and which is on the log and not yet read back."""

    def __init__(self, service: str, note: Note = NEW) -> None:
        """Go on from what the log tells (`recovery`); by default the service has never run."""
        self._service = service
        self._note = note
        self._last_due_s: float | None = None
        self._repeats = 0
        self._waiting_for_s: float | None = None
        self._fires_at_s = math.inf

    @property
    def metadata(self) -> str:
        """The note for the next commit."""
        return msgspec.json.encode(self._note).decode()

    def begin_epoch(self, event_id: str) -> None:
        """The ServiceStarted with this id is appended in one commit with the `metadata` as it is afterwards."""
        self._note = msgspec.structs.replace(self._note, epoch=event_id)

    def fires_at(self, wanted_s: float | None, log_s: float, then_s: float) -> float | None:
        """When to fire the next timer, by the shell's clock; None while none is wanted, or one is on its way back.

        Of several looks the earliest answer counts: a log whose clock was set back, or one that is read late, would put
        the same timer off at each look.

        Args:
            wanted_s: the moment that the core asks for, by the log's clock.
            log_s: what that has shown,
            then_s: when the shell's clock showed this.
        """
        if wanted_s != self._waiting_for_s:
            self._waiting_for_s, self._fires_at_s = wanted_s, math.inf
        if wanted_s is None or self._note.pending:
            return None
        self._fires_at_s = min(self._fires_at_s, then_s + wanted_s - log_s)
        return self._fires_at_s

    def seen(self, envelope: Envelope) -> None:
        """The core has taken this envelope."""
        if envelope.id == self._note.pending:
            self._note = msgspec.structs.replace(self._note, pending="")

    def fire(self, due_s: float, now_s: float) -> Envelope:
        """The timer for `due_s`, to be appended in one commit with the `metadata` as it is afterwards.

        Raises:
            StuckTimer: the core does not get past this moment.
        """
        self._repeats = self._repeats + 1 if due_s == self._last_due_s else 0
        self._last_due_s = due_s
        if self._repeats >= MOST_REPEATS:
            raise StuckTimer(f"{self._service} asked {MOST_REPEATS} times in a row to be woken at {due_s}")
        event_id = derived_id(f"{SOURCE}/{self._service}", repr(due_s), self._note.timers)
        self._note = msgspec.structs.replace(self._note, timers=self._note.timers + 1, pending=event_id)
        return Envelope(id=event_id, source=SOURCE, time_s=now_s, event=TimerFired(service=self._service, due_s=due_s))
