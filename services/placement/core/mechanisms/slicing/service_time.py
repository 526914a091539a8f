"""How much time on GPUs each job has had: by what its agents report, where they do.

A job that needs long to its next mini-batch boundary is still training meanwhile: that time is charged to it
(Gandiva, section 4.1). The time until it has been started or brought back is forgiven once it is; until then it
counts, so that a job that never starts does not keep its GPUs.
"""

from __future__ import annotations

from libs.policies.slicing.table import SLICING_POLICIES
from services.placement.core.jobs import ACTIVE, Job
from services.placement.core.lifecycle.hearing import Listener
from services.placement.core.state import State


def had(job: Job, now_s: float) -> float:
    """Seconds until now, per unit of weight."""
    running_s = 0.0 if job.running_since_s is None else now_s - job.running_since_s
    return job.served_s + running_s / job.spec.weight


def begins(job: Job, now_s: float) -> None:
    """It was given GPUs."""
    if job.running_since_s is None:
        job.running_since_s, job.awaited = now_s, True


def has_begun(job: Job, now_s: float) -> None:
    """All of its tasks run now."""
    if job.awaited:
        job.running_since_s, job.awaited = now_s, False


def ends(job: Job, now_s: float) -> None:
    """One of its tasks does not run any more."""
    job.served_s, job.running_since_s, job.awaited = had(job, now_s), None, False


class ServiceTime(Listener):
    """Counts it, under every mechanism: it is asked for where jobs take turns."""

    def placed(self, state: State, job: Job, now_s: float) -> None:
        if state.policy in SLICING_POLICIES:
            joins(state, job, now_s)
            begins(job, now_s)

    def resumed(self, state: State, job: Job, now_s: float) -> None:
        begins(job, now_s)

    def moved(self, state: State, job: Job, now_s: float) -> None:
        if state.policy in SLICING_POLICIES:
            ends(job, now_s)
            begins(job, now_s)

    def leaving(self, state: State, job: Job, now_s: float) -> None:
        ends(job, now_s)

    def begun(self, job: Job, now_s: float) -> None:
        has_begun(job, now_s)

    def stands_still(self, job: Job, now_s: float) -> None:
        ends(job, now_s)

    def policy_changing(self, state: State, policy: str, now_s: float) -> None:
        if policy in SLICING_POLICIES and state.policy not in SLICING_POLICIES:
            begin_anew(state, now_s)


def begin_anew(state: State, now_s: float) -> None:
    """A policy with slices begins: what jobs have had under another is not counted."""
    for job in state.jobs.values():
        running = job.phase is ACTIVE and not job.suspended
        job.served_s, job.running_since_s, job.awaited = 0.0, now_s if running else None, False


def joins(state: State, job: Job, now_s: float) -> None:
    """A newcomer has had as much as who has had least where it is now: else it would have to be let catch up."""
    homes = {task.node_id: None for task in job.gang}
    others = [
        had(other, now_s)
        for other in state.jobs.values()
        if other is not job and any(task.node_id in homes for task in other.gang)
    ]
    job.served_s = max(job.served_s, min(others, default=0.0))
