"""The lease of a simulated node: the rule of live nodes (`libs/node/lease.py`) over virtual time."""

from __future__ import annotations

from dataclasses import dataclass

from libs.node.lease import DEFAULTS, LeaseTerms


@dataclass(frozen=True, kw_only=True)
class Lease:
    """Limits of the silence of a node, in seconds since its last heartbeat that the log has acknowledged.

    Raises:
        ValueError: the limits contradict each other.
    """

    node_timeout_s: float = DEFAULTS.node_timeout_s
    margin_s: float = DEFAULTS.margin_s
    grace_s: float = DEFAULTS.grace_s
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
    def _terms(self) -> LeaseTerms:
        return LeaseTerms(node_timeout_s=self.node_timeout_s, margin_s=self.margin_s, grace_s=self.grace_s)

    @property
    def stops_after_s(self) -> float:
        """Silence after which tasks are stopped."""
        return self._terms.lease_s

    @property
    def kills_after_s(self) -> float:
        """Silence after which tasks that were stopped are killed."""
        return self.stops_after_s + self.grace_s

    @property
    def lost_after_s(self) -> float:
        """Silence after which introspection calls the node lost."""
        return self._terms.lost_s

    def is_renewed_after(self, silent_s: float) -> bool:
        """Whether the first heartbeat after so long a silence renews the lease."""
        return self._terms.renews(silent_s)
