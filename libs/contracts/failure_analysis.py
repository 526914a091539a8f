"""Why attempts failed, and what follows."""

from __future__ import annotations

from libs.contracts.base import Event, event
from libs.contracts.reasons import Reason

OWNER = "failure_analysis"


@event("failure.classified.v1", owner=OWNER, subject="job_id")
class FailureClassified(Event, frozen=True, kw_only=True):
    """The most likely cause of a failed attempt; vocabulary of the Philly study's Table 6, in snake_case,
    `time_limit_exceeded` and `host_memory_exceeded`."""

    job_id: str
    attempt: int
    failure: str
    """Reason, e.g. `cpu_out_of_memory`, `incorrect_inputs`, `traceback_from_crash`, `no_signature`."""
    category: str
    """`infrastructure`, `ai_engine` or `user`."""
    retry_can_help: bool
    deciding_line: str
    """The line of output, or the exit status, that decided."""
    where: str = ""
    """File and line of the script's own code that a Python error comes from, as `train.py:17`; empty for all others."""
    cause: str = ""
    """A finer reason, e.g. `nccl_timeout`, `port_in_use`, `xid_79` (`libs/failures/`); empty where the outcome of the
    attempt says it all."""
    confidence: float | None = None
    """0 to 1: how often a verdict of this kind is right; None in records from before it was known."""


@event("retry.scheduled.v1", owner=OWNER, subject="job_id")
class RetryScheduled(Event, frozen=True, kw_only=True):
    """The job is tried again: attempt `attempt` may start at `not_before_s`."""

    job_id: str
    attempt: int
    """The coming attempt."""
    not_before_s: float
    """Seconds since the epoch."""
    reason: Reason


@event("job.abandoned.v1", owner=OWNER, subject="job_id")
class JobAbandoned(Event, frozen=True, kw_only=True):
    """Final: the job failed and is not tried again."""

    job_id: str
    attempt: int
    exit_code: int | None
    signal: int | None
    reason: Reason
