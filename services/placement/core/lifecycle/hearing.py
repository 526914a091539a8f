"""What is told of jobs to those that keep books about them: mechanisms, and what is known of sharing.

A job's life does not know the mechanisms. Where one of its events changes what a job holds, every listener is told, in
the order of `listeners`: before a change what still holds is booked, after it what holds from now on.
"""

from __future__ import annotations

from services.placement.core.cell import Cell
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.plan import Plan


class Listener:
    """Does nothing about anything; a subclass overrides what it wants to hear. `now_s` is the time of the event."""

    hears_of_guests = False
    """Whether it is told of guests, too: mechanisms do not know that there are any."""

    def placed(self, cell: Cell, job: Job, now_s: float) -> None:
        """The attempt has just been given its GPUs."""

    def suspending(self, cell: Cell, job: Job, now_s: float) -> None:
        """The attempt is about to give its GPUs up, and to stand still on its servers."""

    def resumed(self, cell: Cell, job: Job, now_s: float) -> None:
        """The attempt goes on on these GPUs of its servers."""

    def moving(self, cell: Cell, job: Job, now_s: float) -> None:
        """The job is about to go on on these GPUs after having stood still, or on others."""

    def moved(self, cell: Cell, job: Job, now_s: float) -> None:
        """The job goes on with the GPUs of its next attempt, which has taken over its state."""

    def leaving(self, cell: Cell, job: Job, now_s: float) -> None:
        """The attempt is about to end, whatever it holds."""

    def ended(self, cell: Cell, job: Job) -> None:
        """The job has ended: it is about to be forgotten."""

    def begun(self, cell: Cell, job: Job, now_s: float) -> None:
        """The job's tasks run: all have been started, or one goes on."""

    def stands_still(self, cell: Cell, job: Job, now_s: float) -> None:
        """A task of a job that is being suspended has come to a stop."""

    def queued(self, cell: Cell, job: Job) -> None:
        """The job is on the queue from now on."""

    def dequeued(self, cell: Cell, job: Job) -> None:
        """The job is not on the queue any more."""

    def withdrawn(self, cell: Cell, job: Job) -> None:
        """The job does not want a place that may have been kept for it."""

    def unqueued(self, cell: Cell, job: Job, code: str) -> Plan:
        """What follows when the job is about to stop waiting otherwise than by getting GPUs; `code` says why."""
        yield from ()

    def time_passed(self, cell: Cell, now_s: float) -> None:
        """A timer has fired."""

    def upgraded(self, cell: Cell, job: Job, now_s: float) -> None:
        """The job, a guest until now, is an ordinary one, and the owner of the GPUs that it has."""

    def policy_changing(self, cell: Cell, policy: str, now_s: float) -> None:
        """Another policy, or the same with other options, is about to be in force."""


listeners: list[Listener] = []
"""Filled once, by `machine.py`."""


def heard_by(job: Job) -> list[Listener]:
    """Those that are told of the job."""
    return [listener for listener in listeners if listener.hears_of_guests] if job.guest else listeners
