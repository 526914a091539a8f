"""How facts come to the log of a simulation, with the ids that the live writers would give them."""

from __future__ import annotations

from libs.contracts.base import Event
from libs.contracts.envelope import Envelope
from libs.contracts.gateway import OWNER as GATEWAY
from libs.contracts.gateway import JobCancelRequested
from libs.contracts.introspection import OWNER as INTROSPECTION
from libs.contracts.introspection import JobProfiled, NodeLost
from libs.kernel.ids import derived_id, request_id
from libs.sim.agenda import Agenda

AGENT_SOURCE = "agent"
"""Agents sign their facts with `agent/<node id>`."""
JOURNAL_ID = "simulated"
"""Live agents give each journal an id of its own."""


class Facts:
    """Reported and not fetched yet, in order."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._reported: list[Envelope] = []

    def fetch(self) -> list[Envelope]:
        """All since the last call."""
        found, self._reported = self._reported, []
        return found

    def say(self, node_id: str, journal: int, event: Event, time_s: float) -> None:
        """An agent says it.

        Args:
            journal: number of the fact in its journal.
            time_s: by the node's clock.
        """
        source = f"{AGENT_SOURCE}/{node_id}"
        event_id = request_id(source, f"{JOURNAL_ID}/{journal}")
        self._reported.append(Envelope(id=event_id, source=source, time_s=time_s, event=event, sequence=journal))

    def find_lost(self, event: NodeLost) -> None:
        """Introspection has not heard of the node for too long."""
        self.find(f"{event.node_id}/{event.incarnation}", event)

    def find_progress(self, event: JobProfiled) -> None:
        """Introspection has condensed what a job's processes say."""
        self.find(f"{event.job_id}/{event.attempt}/{event.window_start_s}", event)

    def find(self, key: str, event: Event) -> None:
        """Introspection says it; the same key gives the same id."""
        self._report(derived_id(INTROSPECTION, key, 0), INTROSPECTION, event)

    def kill(self, job_id: str) -> None:
        """Its user cancels the job."""
        request = JobCancelRequested(job_id=job_id, requested_by="simulated user", note="as its trace says")
        self._report(request_id(GATEWAY, f"cancel/{job_id}"), GATEWAY, request)

    def _report(self, event_id: str, source: str, event: Event) -> None:
        self._reported.append(Envelope(id=event_id, source=source, time_s=self._agenda.now_s, event=event))
