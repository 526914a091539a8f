"""Imports every file of events, so that the registry is complete, and offers them by owner."""

from __future__ import annotations

from libs.contracts import (
    admission,
    agent,
    failure_analysis,
    gateway,
    introspection,
    migration,
    placement,
    quota,
    runtime,
    sweeps,
)
from libs.contracts.base import Event, event_classes

OWNERS = (
    gateway.OWNER,
    admission.OWNER,
    quota.OWNER,
    placement.OWNER,
    introspection.OWNER,
    migration.OWNER,
    failure_analysis.OWNER,
    sweeps.OWNER,
    agent.OWNER,
    runtime.TimerFired.owner,
)


def events_of(owner: str) -> tuple[type[Event], ...]:
    """The events that one service may emit, in order of wire name."""
    return tuple(cls for cls in event_classes() if cls.owner == owner)


TERMINAL = (
    placement.JobSucceeded,
    placement.JobCancelled,
    failure_analysis.JobAbandoned,
    admission.JobRejected,
)
"""Every accepted job gets exactly one of these, exactly once."""
