"""Arrays and DAGs, as the gateway answers them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from libs.contracts.read_models import FINAL_STATES, GroupRow, JobState

_ENDED = tuple(state.value for state in FINAL_STATES)


def group(row: GroupRow, counts: Mapping[str, int]) -> dict[str, Any]:
    """The fields of a `Group` answer.

    Args:
        counts: {state: jobs} of its jobs that have arrived.
    """
    return {
        "id": row.id,
        "kind": row.kind,
        "name": row.name,
        "tenant": row.tenant,
        "user": row.user_name,
        "jobs": row.size,
        "at_once": row.at_once,
        "state": state(row.size, counts),
        "counts": dict(counts),
        "submitted_s": row.submitted_s,
    }


def state(size: int, counts: Mapping[str, int]) -> JobState:
    """The one state of the whole: QUEUED until a job has begun, RUNNING until all have ended, then the worst end."""
    if has_ended(size, counts):
        worst = (JobState.FAILED, JobState.REJECTED, JobState.CANCELLED, JobState.SUCCEEDED)
        return next(state for state in worst if counts.get(state.value))
    waiting = counts.get(JobState.QUEUED.value, 0) + size - sum(counts.values())
    return JobState.QUEUED if waiting == size else JobState.RUNNING


def has_ended(size: int, counts: Mapping[str, int]) -> bool:
    """Whether all of its jobs have ended."""
    return sum(counts.get(state, 0) for state in _ENDED) == size


def succeeded(size: int, counts: Mapping[str, int]) -> bool | None:
    """Whether all of its jobs have succeeded; None while some have not ended."""
    return counts.get(JobState.SUCCEEDED.value, 0) == size if has_ended(size, counts) else None
