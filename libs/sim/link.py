"""The line between an agent and the log: what cannot be said or heard now is kept, in order."""

from __future__ import annotations

from collections.abc import Callable

from libs.contracts.base import Event
from libs.contracts.envelope import whole_microseconds
from libs.sim.agenda import Agenda

Say = Callable[[str, int, Event, float], None]
"""Appends a fact of a node: node id, journal number, event, time by the node's clock."""


class Clock:
    """The clock of a node, which dates its facts and may be wrong. The time of the log is the agenda's."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._offset_s = self._drift_ratio = self._since_s = 0.0

    @property
    def now_s(self) -> float:
        """Seconds by this clock, never before 0."""
        now_s = self._agenda.now_s
        if not self._offset_s and not self._drift_ratio:
            return now_s
        return max(0.0, whole_microseconds(now_s + self._offset_s + self._drift_ratio * (now_s - self._since_s)))

    def jump(self, offset_s: float, drift_ratio: float) -> None:
        """Be ahead of the log by `offset_s` from now on, and fast by `drift_ratio`; negative: behind, and slow."""
        self._offset_s, self._drift_ratio, self._since_s = offset_s, drift_ratio, self._agenda.now_s


class Link:
    """A node's facts on their way to the log, each once, and its orders on their way to the agent."""

    def __init__(self, node_id: str, agenda: Agenda, say: Say) -> None:
        self._node_id, self._agenda, self._say = node_id, agenda, say
        self.clock = Clock(agenda)
        """Of the node."""
        self.agent_up = False
        """The agent looks after its tasks, and has room for its journal."""
        self.connected = True
        self.delay_s = 0.0
        """From the report of a fact to the log."""
        self.repeats = False
        """Each fact is reported once more, as a journal that is made anew reports what is on the log already."""
        self._due_s = 0.0
        """When the last fact on its way comes to the log: none overtakes another."""
        self._journal = 0
        self._orders: list[Event] = []
        """Not read yet."""
        self._facts: list[Event] = []
        """Journalled, but the log cannot be reached."""
        self.unseen: list[Event] = []
        """What happened while there was no agent to see it."""

    @property
    def open(self) -> bool:
        """Whether the agent hears and is heard."""
        return self.agent_up and self.connected

    @property
    def under_way(self) -> bool:
        """Whether facts have been reported that are not on the log yet."""
        return bool(self._facts) or not self.connected or self._due_s > self._agenda.now_s

    def tell(self, fact: Event) -> None:
        """Deliver a fact; one that cannot be delivered now is kept, in order."""
        if not self.agent_up:
            self.unseen.append(fact)
        elif not self.connected:
            self._facts.append(fact)
        else:
            self._deliver(fact)

    def _deliver(self, fact: Event) -> None:
        self._append(fact)
        if self.repeats:
            self._append(fact)

    def _append(self, fact: Event) -> None:
        self._journal += 1
        now_s, said = self._agenda.now_s, (self._node_id, self._journal, fact, self.clock.now_s)
        if self.delay_s or self._due_s > now_s:
            self._due_s = max(now_s + self.delay_s, self._due_s)
            self._agenda.at(self._due_s, self._say, *said)
        else:
            self._say(*said)

    def reconnect(self) -> None:
        """The log can be reached: deliver what was journalled."""
        self.connected = True
        kept, self._facts = self._facts, []
        for fact in kept:
            self.tell(fact)

    def tell_unseen(self) -> None:
        """The agent has found out what happened while it was away."""
        unseen, self.unseen = self.unseen, []
        for fact in unseen:
            self.tell(fact)

    def keep(self, order: Event) -> None:
        """An order that the agent cannot read now."""
        self._orders.append(order)

    def orders(self) -> list[Event]:
        """The orders that have piled up, once."""
        kept, self._orders = self._orders, []
        return kept
