"""Why a job is where it is: the reasons on the log, never invented anew."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from libs.contracts.envelope import Record
from libs.contracts.failure_analysis import FailureClassified
from libs.contracts.read_models import JobState
from libs.contracts.reasons import Reason
from libs.contracts.wire import rfc3339
from libs.inspect.job_view import JobView
from libs.inspect.jobs import Jobs
from libs.inspect.sentences import where
from libs.kernel.words import lines_of_wait


class Waited(msgspec.Struct, frozen=True, kw_only=True):
    """One reason of the job's life."""

    code: str
    message: str
    by: str
    offset: int
    since_s: float


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `why`."""

    job_id: str
    state: JobState
    since_s: float
    """Time on the log since which it is in this state."""
    now_s: float
    """Time of the log's last record."""
    attempt: int
    reason: Reason
    decided_by: str
    offset: int
    """Where the reason stands on control."""
    placed_on: str
    """`n1:0-3`; empty when it holds nothing."""
    failure: FailureClassified | None
    """The verdict on its latest failure."""
    before: list[Waited]
    """Earlier reasons, oldest first."""
    waits_s: dict[str, float] = {}
    """{cause: seconds that it has waited for it}, without GPUs, since it was submitted; together all of its wait."""
    behind: str = ""
    """The job that it waits behind now; empty: none."""
    waits_for: str = ""
    """The cause of its wait now; that of the other job where it is behind one; empty: it does not wait."""

    def lines(self) -> list[str]:
        """For people."""
        waited_s = max(0.0, self.now_s - self.since_s)
        shown = [f"{self.state.value} for {waited_s:.0f} s ({self.reason.code}): {self.reason.message}"]
        if self.placed_on:
            shown.append(f"  on {self.placed_on}, attempt {self.attempt}")
        shown += [f"  {name} = {value}" for name, value in self.reason.numbers.items()]
        for other in self.reason.rejected:
            numbers = ", ".join(f"{name} = {value}" for name, value in other.numbers.items())
            shown.append(f"  not {other.what}: {other.code}{f' ({numbers})' if numbers else ''}")
        shown += lines_of_wait(self.waits_s, self.waits_for, self.behind)
        if self.failure is not None:
            verdict = self.failure
            shown.append(f"  attempt {verdict.attempt} failed of {verdict.failure}: {verdict.deciding_line}")
        shown.append(f"  decided by {self.decided_by} at control/0@{self.offset}")
        shown += [f"  before: {_time(w.since_s)} #{w.offset} {w.by}: {w.code}: {w.message}" for w in self.before]
        return shown


def why(records: Iterable[Record], job_id: str, now_s: float = 0.0) -> Explanation | None:
    """Explain a job as of the last record; None when the log does not know it.

    Args:
        records: of control, in order. What jobs before it wait for is known as far as records about them are there.
        now_s: up to when its wait is counted, at least to the last record.
    """
    fold = Jobs()
    reasons: list[Waited] = []
    for record in records:
        fold.take(record)
        now_s = max(now_s, record.envelope.time_s)
        job = fold.jobs.get(job_id)
        if job is not None and record.offset == job.said.offset and record.envelope.event.subject == job_id:
            reasons.append(_waited(job))
    job = fold.jobs.get(job_id)
    return None if job is None else _explain(job, now_s, reasons[:-1])


def _explain(job: JobView, now_s: float, before: list[Waited]) -> Explanation:
    books = job.life.books
    waits = not job.ended and not books.is_placed
    root = books.wait.root
    return Explanation(
        job_id=job.job_id,
        state=job.state,
        since_s=job.state_since_s,
        now_s=now_s,
        attempt=job.attempt,
        reason=job.said.reason,
        decided_by=job.said.by,
        offset=job.said.offset,
        placed_on=where(job.gang),
        failure=job.failure,
        before=before,
        waits_s=books.waits_until(now_s) if not job.ended else books.waits_s,
        behind=root.job_id if waits and root is not books.wait else "",
        waits_for=books.counted(root.present) if waits else "",
    )


def _waited(job: JobView) -> Waited:
    said = job.said
    return Waited(
        code=said.reason.code,
        message=said.reason.message,
        by=said.by,
        offset=said.offset,
        since_s=said.time_s,
    )


def _time(time_s: float) -> str:
    return rfc3339(time_s)[11:-4]
