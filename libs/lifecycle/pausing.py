"""What is said of a paused job that has not given its GPUs up."""

from __future__ import annotations

from libs.contracts.agent import JobSuspended
from libs.contracts.reasons import PendingReason, Reason


def why_gpus_are_kept(event: JobSuspended) -> Reason | None:
    """Why a paused job still has its GPUs, by what its agent says; None: their memory is free for others."""
    if event.parked:
        return None
    message = (
        f"paused, and stands still with its memory on the GPUs of {event.node_id}, which stay its own unless rounds or "
        f"time slices need them: {event.note or 'its memory was not brought to the host'}"
    )
    return Reason(code=PendingReason.ON_HOLD, message=message)
