"""Judges guests: does the owner of their GPUs do its mini-batches as fast as alone? (AntMan, OSDI'20, section 5.3)

The owner's mini-batches without guests are the measure, the latest ones, so that it follows an owner that changes.
"""

from __future__ import annotations

from libs.contracts.admission import JobRejected
from libs.contracts.agent import JobResumed, JobSuspended
from libs.contracts.failure_analysis import JobAbandoned
from libs.contracts.introspection import InterferenceDetected, JobProfiled
from libs.contracts.placement import (
    AttemptFailed,
    JobCancelled,
    JobMoved,
    JobPlaced,
    JobPreempted,
    JobQueued,
    JobSucceeded,
    TimeSliceStarted,
)
from libs.contracts.quota import JobUpgraded
from libs.contracts.reasons import Reason
from libs.kernel.machine import Turn
from libs.kernel.words import counted
from libs.policies.estimation.slowdown import Slowdown, slowdown
from services.introspection.core.state import Owner, State
from services.introspection.core.table import machine

KEPT_PROFILES = 31
"""Of an owner without guests."""
FEWEST_PROFILES = 3
"""Before which there is nothing to compare with."""

Over = AttemptFailed | JobPreempted | JobQueued | JobSucceeded | JobCancelled | JobAbandoned | JobRejected
"""The attempt, or the job, is over."""


def settled(state: State, event: JobPlaced | JobMoved | TimeSliceStarted, now_s: float) -> None:
    """Attempts are on these GPUs from now on: what was measured of them elsewhere counts no more."""
    state.residents.take(event, now_s)
    jobs = [each.job_id for each in event.resumed] if isinstance(event, TimeSliceStarted) else [event.job_id]
    for job_id in jobs:
        state.owners.pop(job_id, None)


@machine.evolves(JobSuspended, JobResumed, JobUpgraded)
def changed(state: State, event: JobSuspended | JobResumed | JobUpgraded, now_s: float) -> None:
    state.residents.take(event, now_s)


def left(state: State, event: Over, now_s: float) -> None:
    """The job's attempt is over."""
    state.residents.take(event, now_s)
    state.owners.pop(event.job_id, None)


def profiled(state: State, event: JobProfiled) -> None:
    """What an owner does without guests is remembered, what it does beside them is counted."""
    resident = state.residents.measured(event.job_id, event.window_start_s)
    if resident is None or resident.guest or event.rate_per_s <= 0:
        return
    owner = state.owners.setdefault(event.job_id, Owner())
    if state.residents.guests_beside(resident):
        found = _slowdown(owner, event)
        owner.in_a_row = owner.in_a_row + 1 if found is not None and _counts(found) else 0
    else:
        owner.in_a_row = 0
        owner.alone_s.append(1.0 / event.rate_per_s)
        del owner.alone_s[:-KEPT_PROFILES]


def judge(state: State, event: JobProfiled, turn: Turn[State]) -> None:
    """Say so where the profile is of an owner that its guests slow down."""
    resident = state.residents.measured(event.job_id, event.window_start_s)
    owner = state.owners.get(event.job_id)
    if resident is None or owner is None or not owner.in_a_row:
        return
    found = slowdown(owner.alone_s, 1.0 / event.rate_per_s)
    beside = state.residents.guests_beside(resident)
    turn.emit(
        InterferenceDetected(
            job_id=event.job_id,
            attempt=event.attempt,
            beside=beside,
            minibatch_s=round(found.beside_s, 6),
            alone_s=round(found.alone_s, 6),
            in_a_row=owner.in_a_row,
            reason=_why(found, beside, len(owner.alone_s)),
        )
    )


def _slowdown(owner: Owner, event: JobProfiled) -> Slowdown | None:
    """None where there is too little to compare with."""
    return slowdown(owner.alone_s, 1.0 / event.rate_per_s) if len(owner.alone_s) >= FEWEST_PROFILES else None


def _counts(found: Slowdown) -> bool:
    return found.by_absolute_rule or found.by_relative_rule


def _why(found: Slowdown, beside: list[str], profiles_alone: int) -> Reason:
    return Reason(
        code="SlowerThanAlone",
        message=(
            f"its mini-batches take {found.beside_s * 1000:.1f} ms beside {counted(len(beside), 'guest')} and "
            f"{found.alone_s * 1000:.1f} ms alone ({found.excess_ratio:+.1%})"
        ),
        numbers={
            "minibatch_s": round(found.beside_s, 6),
            "alone_s": round(found.alone_s, 6),
            "absolute_rule": found.by_absolute_rule,
            "relative_rule": found.by_relative_rule,
            "profiles_alone": profiles_alone,
        },
    )
