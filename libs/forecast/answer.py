"""The answer about a job that waits: what would start it, and when it is expected to start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from libs.contracts.gateway import OWNER, JobArrived
from libs.contracts.jobs import JobSpec
from libs.forecast.branch import Branch, Spare, without_collection
from libs.forecast.changes import ASKED_BY, NEW_JOB
from libs.forecast.errors import Errors, Track
from libs.forecast.expected import Expectation, expected_start
from libs.forecast.search import Option, endless, options

FOR_OPTIONS, FOR_STEPS = 0.7, 0.9
"""Parts of the time after which no more options are looked for, and the forward run ends, should they still go on: the
estimate of what is left then has the rest."""


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of one job that waits."""

    job_id: str
    now_s: float
    """The present of the branch."""
    options: list[Option]
    """Each starts the job at the next decision; the smallest change first."""
    expected: Expectation
    is_complete: bool = True
    """All ways were tried to their end."""
    errors: Errors = Errors()
    """Of such expectations so far: as far as it is known, of those that rested on the same."""

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "job_id": self.job_id,
            "now_s": self.now_s,
            "is_complete": self.is_complete,
            "options": [_document(option) for option in self.options],
            "expected": msgspec.to_builtins(self.expected),
            "errors": msgspec.to_builtins(self.errors),
        }


def forecast(
    branched: Callable[[], Branch],
    job_id: str,
    *,
    track: Track | None = None,
    is_over: Callable[[float], bool] = endless,
) -> Forecast:
    """What would start the job, and when it is expected to start.

    Args:
        branched: makes a branch of the present.
        track: of earlier expectations; this one is said to it.
        is_over: whether this part of the time that there is has passed.
    """
    with without_collection():
        spare = Spare(branched)
        found = options(spare, job_id, is_over=lambda: is_over(FOR_OPTIONS))
        branch = spare()
        now_s = branch.now_s
        expected = expected_start(branch, job_id, is_over=lambda: is_over(FOR_STEPS))
    track = track or Track()
    errors = track.errors_by(expected.basis)
    if expected.at_s is not None:
        track.said(job_id, now_s, expected.at_s, expected.basis)
    return Forecast(
        job_id=job_id,
        now_s=now_s,
        options=found.options,
        is_complete=found.is_complete,
        expected=expected,
        errors=errors,
    )


class NewForecast(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of a job that has not been submitted."""

    expected: Expectation
    errors: Errors
    """Of such expectations so far, as of a Forecast."""


def forecast_of_new(
    branched: Callable[[], Branch],
    spec: JobSpec,
    *,
    track: Track | None = None,
    is_over: Callable[[float], bool] = endless,
) -> NewForecast:
    """When a job would start that were submitted now.

    Args:
        branched: makes a branch of the present.
        spec: the job.
        track: of earlier expectations; this one is not said to it, because its start will not come.
        is_over: whether this part of the time that there is has passed.
    """
    with without_collection():
        branch = branched()
        branch.feed(OWNER, JobArrived(job_id=NEW_JOB, spec=spec, submitted_by=spec.user or ASKED_BY))
        expected = expected_start(branch, NEW_JOB, is_over=lambda: is_over(FOR_STEPS))
    return NewForecast(expected=expected, errors=(track or Track()).errors_by(expected.basis))


def _document(option: Option) -> dict[str, Any]:
    changes = [{"kind": change.kind, "message": change.message, "numbers": change.numbers} for change in option.changes]
    return {"message": option.message, "changes": changes}
