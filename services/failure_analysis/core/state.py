"""What failure analysis knows: how often each live job may fail, and how often it did."""

from __future__ import annotations

import msgspec

from libs.contracts import settings
from libs.contracts.failure_analysis import OWNER


class History(msgspec.Struct, kw_only=True):
    """One job's failures so far."""

    max_retries: int
    failures: int = 0
    """The job's own; what the infrastructure lost does not count."""
    losses: int = 0
    """Attempts that vanished without an exit status (a node that rebooted)."""
    excused: int | None = None
    """The attempt to come, after a trial whose failure says nothing of the job: admission has the word first."""


class State(msgspec.Struct, kw_only=True):
    """Initially empty."""

    jobs: dict[str, History] = {}
    """{job id: history} of every job that has not ended."""
    retry_base_s: float = settings.default(OWNER, "retry_base_s")
    retry_cap_s: float = settings.default(OWNER, "retry_cap_s")
