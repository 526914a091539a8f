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

SERVICES = tuple(owner for owner in OWNERS if owner not in (gateway.OWNER, agent.OWNER, runtime.TimerFired.owner))
"""Those that decide."""


def events_of(owner: str) -> tuple[type[Event], ...]:
    """The events that one service may emit, in order of wire name."""
    return tuple(cls for cls in event_classes() if cls.owner == owner)


def subject_field_of(wire_type: str) -> str:
    """The field that says what events of a type, in any version, are about: `job_id`; empty: an unknown type."""
    name = _unversioned(wire_type)
    return next((cls.subject_field for cls in event_classes() if _unversioned(cls.wire_type) == name), "")


def _unversioned(wire_type: str) -> str:
    return wire_type.rpartition(".v")[0]


TERMINAL = (
    placement.JobSucceeded,
    placement.JobCancelled,
    failure_analysis.JobAbandoned,
    admission.JobRejected,
)
"""Every accepted job gets exactly one of these, exactly once."""
