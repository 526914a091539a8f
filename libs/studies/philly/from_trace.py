"""Jobs as a trace lists them."""

from __future__ import annotations

from collections.abc import Sequence

from libs.sim.failing import status_of
from libs.sim.traces import TraceJob
from libs.studies.philly.observed import Needs, Observed, StudyJob

NEVER = {
    Needs.CAUSES: "a trace does not say why a job waits; a log does",
    Needs.USE: "a trace has no measurements; a log of a live cell does",
    Needs.SERVERS: "a trace does not say on which servers jobs ran; a log does",
    Needs.HOSTS: "a trace has no measurements; a log of a live cell does",
    Needs.LOSSES: "a trace has no losses; a log of jobs that report theirs does",
    Needs.STARTS: "a trace does not say in which order jobs were placed; a log does",
    Needs.REASONS: "a trace does not say why jobs failed; a log does",
}
"""What no trace has."""
COLUMNS = {
    Needs.STATUS: "the trace has no column `status`",
    Needs.GPU_TIME: "the trace has no column `duration_s`",
    Needs.DELAY: "the trace has no column `queue_s`",
    Needs.RETRIES: "the trace has no column `attempts`",
}
"""What some traces have: said where no row has it."""


def observed_trace(trace: Sequence[TraceJob], source: str) -> Observed:
    """What a trace says.

    Args:
        trace: its rows.
        source: its name, for the report.
    """
    jobs = [
        StudyJob(
            job_id=job.job_id,
            tenant=job.tenant,
            user=job.user,
            gpus=job.gpus,
            status=status_of(job),
            delay_s=job.queue_s,
            run_s=job.duration_s,
            retries=None if job.attempts is None else job.attempts - 1,
        )
        for job in trace
    ]
    lacks = {need: column for need, column in COLUMNS.items() if not any(_has(job, need) for job in jobs)}
    return Observed(source=source, jobs=jobs, lacks={**NEVER, **lacks})


def _has(job: StudyJob, need: Needs) -> bool:
    """Whether a row has the column that the data are in."""
    values = {Needs.GPU_TIME: job.run_s, Needs.DELAY: job.delay_s, Needs.RETRIES: job.retries}
    return bool(job.status) if need is Needs.STATUS else values[need] is not None
