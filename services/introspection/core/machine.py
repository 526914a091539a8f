"""The core: what its subjects have in common, which is where jobs are, what was measured of them, and their ends."""

from __future__ import annotations

from libs import lifecycle
from libs.contracts.admission import JobRejected
from libs.contracts.failure_analysis import JobAbandoned
from libs.contracts.introspection import JobProfiled
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
from libs.kernel.machine import Turn
from services.introspection.core import converging, interference, packs
from services.introspection.core.packs import next_wakeup
from services.introspection.core.state import State
from services.introspection.core.table import machine

__all__ = ["machine", "next_wakeup"]


@machine.evolves(JobPlaced, JobMoved)
def placed(state: State, event: JobPlaced | JobMoved, now_s: float) -> None:
    interference.settled(state, event, now_s)
    converging.account(state, event.job_id, event, now_s)


@machine.evolves(TimeSliceStarted)
def slice_started(state: State, event: TimeSliceStarted, now_s: float) -> None:
    interference.settled(state, event, now_s)
    for job_id in lifecycle.jobs_of_slice(event):
        converging.account(state, job_id, event, now_s)


@machine.evolves(JobProfiled)
def profiled(state: State, event: JobProfiled, now_s: float) -> None:
    packs.profiled(state, event)
    interference.profiled(state, event)


@machine.decides(JobProfiled)
def judge(state: State, event: JobProfiled, turn: Turn[State]) -> None:
    packs.judge(state, event, turn)
    interference.judge(state, event, turn)


@machine.evolves(AttemptFailed, JobPreempted)
def attempt_over(state: State, event: AttemptFailed | JobPreempted, now_s: float) -> None:
    packs.attempt_over(state, event.job_id)
    interference.left(state, event, now_s)
    converging.account(state, event.job_id, event, now_s)


@machine.evolves(JobQueued)
def waits(state: State, event: JobQueued, now_s: float) -> None:
    """An attempt that was the job's trial has ended where nothing else says so."""
    if event.tried:
        packs.attempt_over(state, event.job_id)
        interference.left(state, event, now_s)
    converging.account(state, event.job_id, event, now_s)


@machine.evolves(JobSucceeded, JobCancelled, JobAbandoned, JobRejected)
def job_over(state: State, event: JobSucceeded | JobCancelled | JobAbandoned | JobRejected, now_s: float) -> None:
    packs.attempt_over(state, event.job_id)
    interference.left(state, event, now_s)
    converging.forget(state, event.job_id)
