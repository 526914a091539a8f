"""What of the log is a node's own: which records its agent may read, and which it may append."""

from __future__ import annotations

from collections.abc import Callable

from libs.contracts import wire
from libs.contracts.agent import OWNER, SOURCE, source_of
from libs.contracts.base import Topic

_WIRE_SOURCE = f"/sanjaya/{SOURCE}".encode()


class NotOwned(Exception):
    """It is not the node's; the message says what it is."""


class Ownership:
    """Of the nodes that one token is for.

    Args:
        is_for: whether it is for the node of this id.
        bearer: the token's name, for messages.
    """

    def __init__(self, is_for: Callable[[str], bool], bearer: str) -> None:
        self._is_for, self._bearer = is_for, bearer

    def require_node(self, node_id: str) -> None:
        """Refuse what is about another node.

        Raises:
            NotOwned: the token is not for this node.
        """
        if not self._is_for(node_id):
            raise NotOwned(f"the token of {self._bearer} is not for node {node_id!r}")

    def require_session(self, name: str) -> None:
        """Refuse another session than that of a node's agent.

        Raises:
            NotOwned: it is a service's, or of a node that the token is not for.
        """
        if not name.startswith(SOURCE):
            raise NotOwned(f"session {name!r} is not an agent's; expected {source_of('NODE')}")
        self.require_node(name.removeprefix(SOURCE))

    def require_own(
        self, topic: Topic, key: str, headers: wire.Headers, value: bytes, session: str | None = None
    ) -> None:
        """Refuse a record that is no fact of a node's agent.

        Args:
            topic: where it is to be appended, with this key, these headers and this value.
            session: in which it is to be appended.

        Raises:
            NotOwned: its type is another service's, it is about another node, or it says another source, topic or key
                than such a fact has.
        """
        try:
            envelope = wire.decode(headers, value)
        except wire.Undecodable as error:
            raise NotOwned(f"a record with key {key!r} is no fact that this gateway knows: {error}") from None
        event, source = envelope.event, envelope.source
        what = f"{event.wire_type} of {source}"
        if event.owner != OWNER:
            raise NotOwned(f"{what}: facts of this type are said by {event.owner}, not by an agent")
        node_id = getattr(event, "node_id", "")
        self.require_node(node_id)
        if source != source_of(node_id) or (session is not None and session != source):
            raise NotOwned(f"{what}: it is about node {node_id!r}, expected {source_of(node_id)} as source and session")
        if (topic, key) != (event.topic, event.subject):
            raise NotOwned(f"{what}: expected on {event.topic} with key {event.subject!r}")

    def sees(self, topic: Topic, key: str, headers: wire.Headers) -> bool:
        """Whether a record is an order to such a node, or was said by its agent."""
        if topic is Topic.ORDERS:
            return self._is_for(key)
        source = dict(headers).get("ce_source", b"")
        return source.startswith(_WIRE_SOURCE) and self._is_for(
            source.removeprefix(_WIRE_SOURCE).decode(errors="replace")
        )
