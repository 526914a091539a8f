"""Timers as events: a core's wake-up time becomes one TimerFired on the log, exactly once over any crash.

Timers are numbered, and the log itself knows which are on it: a restart counts those that the core has taken, and finds
the one that it has not. Nothing is guessed, and nothing rests on a position that a broker may forget.
"""

from __future__ import annotations

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
    """Which timer of one service is due, and which is on the log and not yet read back."""

    def __init__(self, service: str, note: Note = NEW) -> None:
        """Go on from what the log tells (`recovery`); by default the service has never run."""
        self._service = service
        self._note = note
        self._last_due_s: float | None = None
        self._repeats = 0

    @property
    def metadata(self) -> str:
        """The note for the next commit."""
        return msgspec.json.encode(self._note).decode()

    def begin_epoch(self, event_id: str) -> None:
        """The ServiceStarted with this id is appended in one commit with the `metadata` as it is afterwards."""
        self._note = msgspec.structs.replace(self._note, epoch=event_id)

    def due(self, next_wakeup: float | None) -> float | None:
        """When the next timer is to be fired; None while there is none, or one is on its way back."""
        return None if self._note.pending else next_wakeup

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
