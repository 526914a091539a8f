"""One job as of a place on the log."""

from __future__ import annotations

import msgspec

from libs.contracts.cluster import TaskPlacement
from libs.contracts.failure_analysis import FailureClassified
from libs.contracts.jobs import JobSpec
from libs.contracts.read_models import FINAL_STATES, JobState
from libs.contracts.reasons import Reason


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """A reason, and where it stands on the log."""

    reason: Reason
    by: str
    offset: int
    time_s: float


class JobView(msgspec.Struct, kw_only=True):
    """One job as of the last event."""

    job_id: str
    spec: JobSpec
    state: JobState = JobState.QUEUED
    said: Said
    """Why it is in this state."""
    state_since_s: float
    attempt: int = 0
    gang: list[TaskPlacement] = []
    """Where it holds GPUs; empty when it holds none."""
    tasks: dict[str, str] = {}
    """{node id: `placed`, `running`, `suspended` or `exited`} of the attempt that holds GPUs."""
    failure: FailureClassified | None = None
    """The verdict on the latest failed attempt."""
    cancelling: bool = False
    preempted: bool = False
    moving: str = ""
    """Id of the migration under way."""

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self.state in FINAL_STATES

    def derive(self) -> JobState:
        """The one state that the facts of a job that has not ended amount to."""
        live = [status for status in self.tasks.values() if status != "exited"]
        if self.cancelling:
            return JobState.STOPPING
        if self.preempted:
            return JobState.MIGRATING if self.moving else JobState.STOPPING
        if not self.tasks:
            return JobState.QUEUED
        if not live:
            return JobState.STOPPING
        if self.moving:
            return JobState.MIGRATING
        if "placed" in live:
            return JobState.STARTING
        return JobState.SUSPENDED if set(live) == {"suspended"} else JobState.RUNNING
