"""The projection's settings: the cell's own, and how much is stored at once."""

from __future__ import annotations

from pydantic import Field

from libs.runtime.settings import Settings


class ProjectionSettings(Settings):
    """Read once at the start, from the environment."""

    projection_batch: int = Field(default=1000, ge=1)
    """Most records that are folded and stored in one transaction."""
