"""Where a job is in its life, and which of its attempts an event is about, as other services and agents can tell it."""

from __future__ import annotations

from enum import StrEnum

from libs.contracts.base import Event
from services.placement.core.jobs import ACTIVE as HOLDS
from services.placement.core.jobs import Job, Phase


class Standing(StrEnum):
    """Where a job is in its life, as other services and agents can tell it."""

    UNKNOWN = "unknown"
    """It has not arrived, or it has ended: ended jobs are forgotten."""
    ARRIVED = "arrived"
    WAITING = "waiting"
    QUEUED = "queued"
    RUNNING = "running"
    """Its attempt has been given GPUs, and nothing is ending it."""
    SUSPENDED = "suspended"
    """Its attempt stands still between two of its turns, or because it is paused, and holds no GPUs."""
    MOVING = "moving"
    """Its next attempt is being made ready to take over the state of this one."""
    STOPPING = "stopping"
    """Its attempt's tasks are being stopped."""
    FAILED = "failed"
    TRIED = "tried"
    """Its trial has ended well, and admission has not said what follows."""


class Attempt(StrEnum):
    """Which of a job's attempts an event is about."""

    NONE = "none"
    """It names none."""
    OLDER = "older"
    THIS = "this"
    PREPARED = "prepared"
    """One that is, or was, to take over the state of this one."""
    NEWER = "newer"
    """One that has not been yet."""


# Asked of every input and of every decision: Python 3.11 runs a descriptor for each look at a member of an enum.
_UNKNOWN, _RUNNING, _SUSPENDED = Standing.UNKNOWN, Standing.RUNNING, Standing.SUSPENDED
_MOVING, _STOPPING = Standing.MOVING, Standing.STOPPING
_BY_PHASE: dict[Phase, Standing] = {phase: Standing(phase.value) for phase in Phase if phase is not Phase.ACTIVE}
_NONE, _OLDER, _THIS, _PREPARED, _NEWER = Attempt


def standing(job: Job | None) -> Standing:
    """Where the job is; None: it is not known."""
    if job is None:
        return _UNKNOWN
    if job.phase is not HOLDS:
        return _BY_PHASE[job.phase]
    if job.stopping:
        return _STOPPING
    if job.move is not None:
        return _MOVING
    return _SUSPENDED if job.suspended else _RUNNING


def attempt_of(job: Job | None, event: Event) -> Attempt:
    """Which attempt of the job the event is about. Of an unknown job nothing is known."""
    number: int | None = getattr(event, "attempt", None)
    if number is None or job is None:
        return _NONE
    if number == job.attempt:
        return _THIS
    if number < job.attempt:
        return _OLDER
    return _PREPARED if number <= job.last_attempt else _NEWER
