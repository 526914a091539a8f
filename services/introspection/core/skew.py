"""How far the clocks of nodes are from the log's: a fact for people, which decides nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from libs.contracts.envelope import Envelope
from libs.contracts.introspection import OWNER, ClockSkewed
from libs.kernel.ids import derived_id

FROM_S = 2.0
"""A clock that is off by less counts as right: so much a heartbeat may take to the log."""
HEARTBEATS = 3


class Skews:
    """The last heartbeats of each node, and what was reported of its clock."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], deque[float]] = {}
        self._said: dict[tuple[str, int], float] = {}

    def take(self, node_id: str, incarnation: int, skew_s: float, reported: Mapping[str, float]) -> ClockSkewed | None:
        """The change of a node's clock that a heartbeat shows.

        A heartbeat that was held up looks like one of a clock that is late: of the last ones the quickest counts.

        Args:
            node_id: of the heartbeat, as is `incarnation`.
            skew_s: the time by the node's clock, less the time at which the log took the heartbeat.
            reported: {node: as on the log}.
        """
        life = (node_id, incarnation)
        seen = self._seen.setdefault(life, deque(maxlen=HEARTBEATS))
        seen.append(skew_s)
        if len(seen) < HEARTBEATS:
            return None
        found_s = max(seen)
        found_s = round(found_s, 3) if abs(found_s) >= FROM_S else 0.0
        if abs(found_s - self._said.get(life, reported.get(node_id, 0.0))) < FROM_S:
            return None
        self._said[life] = found_s
        return ClockSkewed(node_id=node_id, incarnation=incarnation, skew_s=found_s)

    def forget_all_but(self, nodes: Mapping[str, int]) -> None:
        """Drop the heartbeats of nodes that are gone; `nodes`: {node: incarnation of its agent}."""
        for life in [life for life in self._seen if nodes.get(life[0]) != life[1]]:
            del self._seen[life]
            self._said.pop(life, None)


def envelope(skewed: ClockSkewed, cause: Envelope) -> Envelope:
    """The change on its way to the log: its id follows from the heartbeat that shows it."""
    event_id = derived_id(OWNER, f"skew/{cause.id}", 0)
    return Envelope(id=event_id, source=OWNER, time_s=cause.time_s, event=skewed, causation_id=cause.id)
