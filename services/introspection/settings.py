"""Settings of introspection, from `SANJAYA_*` environment variables."""

from __future__ import annotations

from pydantic import Field

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
    node_timeout_s: float = Field(default=20.0, gt=0)
    """A node that is silent so long, although the log delivers, is lost."""

    @property
    def rules(self) -> Rules:
        """How windows are cut."""
        return Rules(window_s=self.window_s, grace_s=self.window_grace_s)
