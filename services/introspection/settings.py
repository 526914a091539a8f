"""Settings of introspection, from `SANJAYA_*` environment variables."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from libs.lifecycle.stuck import STUCK_AFTER_S
from libs.node.alarms import Limits
from libs.runtime.settings import Settings
from services.introspection.core.windows import Rules


class IntrospectionSettings(Settings):
    """What every process has, and how telemetry is condensed."""

    window_s: float = Field(default=2.0, gt=0)
    """Length of a telemetry window."""
    window_grace_s: float = Field(default=1.0, ge=0)
    """A window waits so long for late records."""
    profile_interval_s: float = Field(default=5.0, ge=0)
    """Least measured time from one JobProfiled of a job to the next."""

    stall_times: float = Field(default=8.0, ge=1)
    """A job stalls after so many times the p99 of its mini-batches, and after so many seconds at least:"""
    stall_min_s: float = Field(default=60.0, gt=0)
    stall_computing_times: float = Field(default=5.0, ge=1)
    """Time in which its processes or GPUs are busy counts one part in so many."""
    stall_minibatches: int = Field(default=20, ge=2)
    """So many mini-batches make a rhythm."""
    diverged_losses: int = Field(default=5, ge=1)
    """So many losses in a row that are NaN or infinite are a divergence."""
    idle_gpu_s: float = Field(default=900.0, gt=0)
    """GPUs may be held so long without being used."""
    stuck_after_s: float = Field(default=STUCK_AFTER_S, gt=0)
    """What a service or an agent is to do next with a job may be overdue for so long."""
    cell_key_file: Path | None = None
    """The secret that the cell's agents know, to ask them for stacks; none: a stall comes without."""

    @property
    def limits(self) -> Limits:
        """From when on something is an alarm."""
        return Limits(
            stall_times=self.stall_times,
            stall_min_s=self.stall_min_s,
            computing_times=self.stall_computing_times,
            rhythm_minibatches=self.stall_minibatches,
            nonfinite_losses=self.diverged_losses,
            idle_s=self.idle_gpu_s,
        )

    @property
    def rules(self) -> Rules:
        """How windows are cut."""
        return Rules(window_s=self.window_s, grace_s=self.window_grace_s)
