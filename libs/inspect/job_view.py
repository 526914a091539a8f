"""One job as of a place on the log: its life, and what was said of it last."""

from __future__ import annotations

import msgspec

from libs.contracts.cluster import TaskPlacement
from libs.contracts.failure_analysis import FailureClassified
from libs.contracts.read_models import JobState
from libs.contracts.reasons import Reason
from libs.lifecycle import Life


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """A reason, and where it stands on the log."""

    reason: Reason
    by: str
    offset: int
    time_s: float


class JobView(msgspec.Struct, kw_only=True):
    """One job as of the last event."""

    life: Life
    said: Said
    """Why it is in this state."""
    failure: FailureClassified | None = None
    """The verdict on the latest failed attempt."""

    @property
    def job_id(self) -> str:
        """Of the job."""
        return self.life.job_id

    @property
    def state(self) -> JobState:
        """The state that the job is in."""
        return self.life.state

    @property
    def state_since_s(self) -> float:
        """When it came into it."""
        return self.life.books.state_since_s

    @property
    def attempt(self) -> int:
        """The latest number."""
        return self.life.attempt

    @property
    def gang(self) -> list[TaskPlacement]:
        """Where it has GPUs, by placement's word; empty when it has none."""
        holding = self.life.books.holding
        return [] if holding is None else holding.gang

    @property
    def cancelling(self) -> bool:
        """Whether its end has been asked for."""
        return self.life.is_cancelled

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self.life.has_ended
