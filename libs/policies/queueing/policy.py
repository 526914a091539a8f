"""What a queue policy decides."""

from __future__ import annotations

from dataclasses import dataclass

from libs.policies.policy import Kind, Policy

EVERY_GANG = 1 << 30
"""As `QueuePolicy.reservations`."""


@dataclass(frozen=True, kw_only=True)
class QueuePolicy(Policy):
    """How a pass over the queue treats a job that cannot be placed. Order: priority, then arrival."""

    kind: str = Kind.ORDER
    later_jobs_may_pass: bool
    """Whether the walk goes on behind a job that does not fit."""
    reservations: int
    """How many gangs that do not fit may have GPUs reserved at a time."""
    reserves_at_once: bool = False
    """Whether a gang need not have waited for `reserve_after_s` before."""
