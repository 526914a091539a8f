"""The line between an agent and the log: what cannot be said or heard now is kept, in order."""

from __future__ import annotations

from collections.abc import Callable

from libs.contracts.base import Event

Say = Callable[[str, int, Event], None]
"""Appends a fact of a node: node id, journal number, event."""


class Link:
    """A node's facts on their way to the log, each once, and its orders on their way to the agent."""

    def __init__(self, node_id: str, say: Say) -> None:
        self._node_id, self._say = node_id, say
        self.agent_up = False
        self.connected = True
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

    def tell(self, fact: Event) -> None:
        """Deliver a fact; one that cannot be delivered now is kept, in order."""
        if not self.agent_up:
            self.unseen.append(fact)
        elif not self.connected:
            self._facts.append(fact)
        else:
            self._journal += 1
            self._say(self._node_id, self._journal, fact)

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
