"""What a queue policy decides."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class QueuePolicy:
    """How a pass over the queue treats a job that cannot be placed. Order: priority, then arrival."""

    name: str
    describes: str
    """One sentence for people."""
    later_jobs_may_pass: bool
    """Whether the walk goes on behind a job that does not fit."""
    reserves: bool
    """Whether the first job that does not fit gets nodes reserved after `reserve_after_s`."""
