"""The lease of a simulated node: how long its tasks go on without an acknowledged heartbeat.

    last acknowledged heartbeat ── node_timeout_s - margin_s ── node_timeout_s ── node_timeout_s + margin_s
                                   tasks stop (and are killed    a heartbeat       the node is lost
                                   grace_s later)                renews until here

A heartbeat that comes later proves nothing. The node announces itself anew, and its tasks go on when placement has read
that and the agent has what placement has ordered.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Lease:
    """Limits of the silence of a node, in seconds since its last heartbeat that the log has acknowledged.

    Raises:
        ValueError: the limits contradict each other.
    """

    node_timeout_s: float = 20.0
    margin_s: float = 4.0
    grace_s: float = 600.0
    """Time that tasks stand still, in case the lease is renewed, before they are killed."""
    heartbeat_s: float = 2.0
    """Time between two heartbeats."""
    fenced: bool = True
    """Whether tasks heed the lease. False is for tests alone: it is the fault that they are to find."""

    def __post_init__(self) -> None:
        if not 0 < self.margin_s < self.node_timeout_s:
            raise ValueError(f"a lease margin of {self.margin_s} s with a node time-out of {self.node_timeout_s} s")
        if not 0 < self.heartbeat_s < self.stops_after_s:
            raise ValueError(f"a heartbeat each {self.heartbeat_s} s does not renew a lease of {self.stops_after_s} s")

    @property
    def stops_after_s(self) -> float:
        """Silence after which tasks are stopped."""
        return self.node_timeout_s - self.margin_s

    @property
    def kills_after_s(self) -> float:
        """Silence after which tasks that were stopped are killed."""
        return self.stops_after_s + self.grace_s

    @property
    def lost_after_s(self) -> float:
        """Silence after which introspection calls the node lost."""
        return self.node_timeout_s + self.margin_s

    def is_renewed_after(self, silent_s: float) -> bool:
        """Whether the first heartbeat after so long a silence renews the lease."""
        return silent_s < self.node_timeout_s
