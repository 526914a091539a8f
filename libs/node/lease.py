"""How long a node's tasks may go on without a sign that the cell still counts on the node.

An agent renews the lease of its node with each heartbeat that the log has acknowledged; it counts from the moment
before that heartbeat was sent. Tasks stop when it has run out, whether or not their agent lives; the node is given up
later:

    0 ── sent ──────────── node_timeout_s - margin_s ───── node_timeout_s ───── node_timeout_s + margin_s
                           tasks stop (and are killed      an acknowledgement   the node is lost, its jobs
                           grace_s later)                  renews until here    are placed anew

So a task that is placed elsewhere has stopped here, as long as clocks that count seconds differ by less than the
margins. An acknowledgement that comes after the time-out proves nothing: the node may have been given up meanwhile. The
agent then announces the node again, and goes on when it has what placement has said to that.
"""

from __future__ import annotations

import math

import msgspec


class LeaseTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What introspection and agents of a cell have in common."""

    node_timeout_s: float = 20.0
    margin_s: float = 4.0
    grace_s: float = 600.0
    """How long tasks stand still, in case the lease is renewed, before they are killed."""

    @property
    def lease_s(self) -> float:
        """Age of a lease, in seconds, at which tasks stop."""
        return self.node_timeout_s - self.margin_s

    @property
    def lost_s(self) -> float:
        """Silence, in seconds, after which the node is lost."""
        return self.node_timeout_s + self.margin_s

    def holds(self, age_s: float) -> bool:
        """Whether tasks may go on under a lease of this age."""
        return age_s < self.lease_s

    def renews(self, age_s: float) -> bool:
        """Whether an acknowledgement renews the lease that was so old when it came."""
        return age_s < self.node_timeout_s


DEFAULTS = LeaseTerms()


def mistake_in(terms: LeaseTerms, heartbeat_s: float | None = None) -> str | None:
    """Describe what is wrong with the terms, both values and what was expected; None: nothing is.

    Args:
        heartbeat_s: seconds between two heartbeats of an agent that has these terms; None: it is not known.
    """
    time_out, margin = f"a node time-out of {terms.node_timeout_s:g} s", f"a lease margin of {terms.margin_s:g} s"
    if not (math.isfinite(terms.node_timeout_s) and 0 < terms.margin_s < terms.node_timeout_s):
        return f"{time_out} with {margin}: expected a margin above 0, and a time-out above the margin"
    if not terms.grace_s >= 0:
        return f"a lease grace of {terms.grace_s:g} s: expected 0 or more"
    if heartbeat_s is not None and not 0 < heartbeat_s < terms.lease_s:
        expected = f"expected a heartbeat more often than every {terms.lease_s:g} s, the time-out less the margin"
        return f"a heartbeat every {heartbeat_s:g} s, {time_out} with {margin}: {expected}"
    return None
