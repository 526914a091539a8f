"""The door plate of introspection."""

from __future__ import annotations

from libs.contracts.introspection import OWNER
from libs.kernel.service import Service
from services.introspection.core.machine import machine
from services.introspection.core.state import State

SERVICE = Service(
    name=OWNER,
    question="What is going on?",
    machine=machine,
    state_type=State,
    emits=(),
)
"""Emits nothing: JobProfiled and NodeLost are facts observed in telemetry, which is not on control. For a
replay they are inputs, as the facts of an agent are."""
