"""Nodes that fell silent although the log delivers."""

from __future__ import annotations

from collections.abc import Mapping

from libs.contracts.envelope import Envelope
from libs.contracts.introspection import OWNER, NodeLost
from libs.kernel.ids import derived_id

LONGEST_S = 3600.0
"""Of what a node may claim for itself."""


class Liveness:
    """When each node was last heard of, on a clock of the listener that is never set: clocks of nodes do not matter.

    A node gets its full time-out anew whenever silence may be the listener's or the log's fault.
    """

    def __init__(self, timeout_s: float, now_s: float) -> None:
        """`timeout_s`: a node that is silent so long is lost."""
        self._timeout_s = timeout_s
        self._listening_since_s = now_s
        self._heard_s: dict[str, float] = {}
        self._claimed_s: dict[str, float] = {}
        """{node: silence after which it may be given up, as its own agent has it}."""
        self._incarnations: dict[str, int] = {}
        self._reported: dict[str, int] = {}

    def not_listening(self, now_s: float) -> None:
        """Up to now nothing could be heard: the log was away, or the listener is behind."""
        self._listening_since_s = now_s

    def heard(self, node_id: str, now_s: float, lost_after_s: float | None = None) -> None:
        """A heartbeat of the node came in.

        Args:
            node_id: the node.
            now_s: the listener's time.
            lost_after_s: silence after which its tasks have stopped; where that is longer than the time-out, it counts.
        """
        self._heard_s[node_id] = now_s
        self._claimed_s[node_id] = min(LONGEST_S, lost_after_s or 0.0)

    def doubts(self, nodes: Mapping[str, int], now_s: float) -> bool:
        """Whether a node has been silent for half its time-out: it is time to see whether the log takes anything.

        Args:
            nodes: as of `lost`.
            now_s: the listener's time.
        """
        self._meet(nodes, now_s)
        return any(
            now_s - max(self._heard_s[node_id], self._listening_since_s) >= self._timeout_s / 2
            for node_id, incarnation in nodes.items()
            if self._reported.get(node_id, 0) < incarnation
        )

    def lost(self, nodes: Mapping[str, int], now_s: float) -> list[NodeLost]:
        """The nodes to be given up now, each once per incarnation, in order of their ids.

        Args:
            nodes: {node id: incarnation} of nodes that have joined and are not known to be gone.
            now_s: the listener's time.
        """
        self._meet(nodes, now_s)
        lost = []
        for node_id, incarnation in sorted(nodes.items()):
            silent_s = now_s - max(self._heard_s[node_id], self._listening_since_s)
            if (
                silent_s < max(self._timeout_s, self._claimed_s.get(node_id, 0.0))
                or self._reported.get(node_id, 0) >= incarnation
            ):
                continue
            self._reported[node_id] = incarnation
            lost.append(NodeLost(node_id=node_id, silent_s=silent_s, incarnation=incarnation))
        return lost

    def _meet(self, nodes: Mapping[str, int], now_s: float) -> None:
        """A node that has just joined starts with a full time-out; what is gone is forgotten."""
        for node_id, incarnation in nodes.items():
            if self._incarnations.get(node_id) != incarnation:
                self._incarnations[node_id] = incarnation
                self._heard_s[node_id] = now_s
        for node_id in [n for n in self._incarnations if n not in nodes]:
            del self._incarnations[node_id]
            self._heard_s.pop(node_id, None)
            self._claimed_s.pop(node_id, None)


def envelope(lost: NodeLost, now_s: float) -> Envelope:
    """The loss on its way to the log: one id per incarnation."""
    return Envelope(
        id=derived_id(OWNER, f"{lost.node_id}/{lost.incarnation}", 0), source=OWNER, time_s=now_s, event=lost
    )
