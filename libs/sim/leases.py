"""The lease of a simulated node: how long its tasks go on without an acknowledged heartbeat.

last acknowledged heartbeat ──node_timeout_s − margin_s──> stopped ──grace_s──> killed ──> lost after node_timeout_s + margin_s
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
    """Silence that is too long."""
    margin_s: float = 5.0
    """Tasks are stopped so much earlier, and the node is called lost so much later."""
    grace_s: float = 5.0
    """Time between the stop of the tasks and their end, within which the lease may be renewed."""
    heartbeat_s: float = 2.0
    """Time between two heartbeats."""
    rejoins_after_s: float = 10.0
    """Silence after which an agent that is heard again announces its node anew: it may have been called lost."""
    fenced: bool = True
    """Whether tasks heed the lease. False is for tests alone: it is the fault that they are to find."""

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_s < self.stops_after_s:
            raise ValueError(f"a heartbeat each {self.heartbeat_s} s does not renew a lease of {self.stops_after_s} s")
        if self.rejoins_after_s > self.lost_after_s:
            raise ValueError(
                f"an agent that was silent for {self.lost_after_s} s is lost, and does not announce itself anew before "
                f"{self.rejoins_after_s} s"
            )
        if self.kills_after_s > self.lost_after_s:
            # A task that is stopped, but lives, would go on beside the next attempt once its agent is back.
            raise ValueError(f"tasks live up to {self.kills_after_s} s, but are lost after {self.lost_after_s} s")

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
