"""The core: what its subjects have in common, which is the end of attempts and jobs."""

from __future__ import annotations

from libs.contracts.admission import JobRejected
from libs.contracts.failure_analysis import JobAbandoned
from libs.contracts.placement import AttemptFailed, JobCancelled, JobPreempted, JobSucceeded
from services.introspection.core import converging, packs
from services.introspection.core.packs import next_wakeup
from services.introspection.core.state import State
from services.introspection.core.table import machine

__all__ = ["machine", "next_wakeup"]


@machine.evolves(AttemptFailed, JobPreempted)
def attempt_over(state: State, event: AttemptFailed | JobPreempted, now_s: float) -> None:
    packs.attempt_over(state, event.job_id)
    converging.account(state, event.job_id, event, now_s)


@machine.evolves(JobSucceeded, JobCancelled, JobAbandoned, JobRejected)
def job_over(state: State, event: JobSucceeded | JobCancelled | JobAbandoned | JobRejected, now_s: float) -> None:
    packs.attempt_over(state, event.job_id)
    converging.forget(state, event.job_id)
