"""Settings of failure analysis, from `SANJAYA_*` environment variables."""

from __future__ import annotations

from pathlib import Path

from libs.runtime.settings import Settings


class FailureSettings(Settings):
    """What every process has, and where operators keep rules of their own."""

    rules_folder: Path | None = None
    """Files of own rules (`*.yaml`) and, as `consequences.yaml`, an own table of consequences; None: there are none.
    Looked at again when they change."""
