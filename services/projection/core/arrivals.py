"""Requests for jobs, and the verdicts before a job gets GPUs: admission, quota, the queue."""

from __future__ import annotations

import msgspec

from libs.contracts.admission import JobAdmitted, JobHeldBack, JobRejected
from libs.contracts.gateway import (
    JobArrived,
    JobCancelRequested,
    JobCodeChanged,
    JobMaxGpusChanged,
    JobPauseRequested,
    JobPriorityChanged,
    JobResumeRequested,
)
from libs.contracts.placement import GangReleased, GangReserved, JobQueued
from libs.contracts.quota import OpportunityGranted, QuotaDeferred, QuotaGranted
from libs.contracts.read_models import GroupRow, JobRow, LabelRow
from libs.contracts.reasons import PendingReason
from services.projection.core.fold import At, explain, note, on
from services.projection.core.rows import Rows
from services.projection.core.states import end_attempt, finish, grant, keep, live_job, take, tenant_row, withdraw_grant


@on(JobArrived)
def arrived(rows: Rows, event: JobArrived, at: At) -> None:
    if rows.get(JobRow, event.job_id) is not None:
        return
    spec = event.spec
    job = JobRow(
        id=event.job_id,
        name=spec.name,
        tenant=spec.tenant,
        user_name=spec.user,
        job_class=spec.job_class.value,
        priority=spec.priority,
        gpus=spec.gpus.count,
        widths=spec.widths,
        gpu_types=list(spec.gpus.types),
        labels=dict(spec.labels),
        spec=msgspec.to_builtins(spec),
        is_host_bound=spec.is_host_bound,
        submitted_by=event.submitted_by,
        submitted_s=at.time_s,
        queued_s=at.time_s,
        after=[msgspec.to_builtins(dependency) for dependency in event.after],
        arrived_offset=at.offset,
    )
    if event.group is not None:
        job.group_id, job.group_index = event.group.group_id, event.group.index
        group = rows.get(GroupRow, event.group.group_id)
        job.leads_group = group is not None and group.first_index == event.group.index
    note(job, PendingReason.NOT_YET_EVALUATED, "accepted; admission looks at it next", at)
    for name, value in spec.labels.items():
        rows.put(LabelRow(job_id=job.id, name=name, value=value))
    tenant = tenant_row(rows, spec.tenant, at)
    rows.put(tenant)
    keep(rows, job, at)


@on(JobAdmitted)
def admitted(rows: Rows, event: JobAdmitted, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is not None and not job.cancel_requested:
        note(job, PendingReason.NOT_YET_EVALUATED, "admitted; quota looks at it next", at)
        keep(rows, job, at)


@on(JobHeldBack, QuotaDeferred)
def held_back(rows: Rows, event: JobHeldBack | QuotaDeferred, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is not None and take(rows, job, event, at) and not job.cancel_requested:
        explain(job, event.reason, at)


@on(JobRejected)
def rejected(rows: Rows, event: JobRejected, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is not None and take(rows, job, event, at):
        explain(job, event.reason, at)
        finish(rows, job, at)


@on(QuotaGranted)
def granted(rows: Rows, event: QuotaGranted, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is not None and take(rows, job, event, at):
        job.not_before_s = None
        grant(rows, job, event.gpus, at)
        if not job.cancel_requested:
            note(job, PendingReason.NOT_YET_EVALUATED, "quota is granted; placement looks at it next", at)


@on(OpportunityGranted)
def granted_an_opportunity(rows: Rows, event: OpportunityGranted, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is not None and take(rows, job, event, at):
        job.not_before_s = None
        if not job.cancel_requested:
            note(
                job,
                PendingReason.NOT_YET_EVALUATED,
                "it may run beside guaranteed jobs; placement looks at it next",
                at,
            )


@on(JobQueued)
def queued(rows: Rows, event: JobQueued, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is None:
        return
    before = job.attempt
    if take(rows, job, event, at):
        # With the reason that the job had until now: the event's own is that of the wait which begins.
        end_attempt(rows, job, before, event, at)
        if event.returns_to_quota:
            withdraw_grant(rows, job, at)
            keep(rows, job, at)
        if not job.cancel_requested:
            explain(job, event.reason, at)


@on(GangReserved)
def reserved(rows: Rows, event: GangReserved, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is not None and event.attempt == job.attempt:
        job.reserved_nodes = list(event.node_ids)
        keep(rows, job, at)


@on(GangReleased)
def reservation_ended(rows: Rows, event: GangReleased, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is not None and event.attempt == job.attempt:
        job.reserved_nodes = []
        keep(rows, job, at)


@on(JobCancelRequested)
def cancel_requested(rows: Rows, event: JobCancelRequested, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is not None and take(rows, job, event, at):
        why = f": {event.note}" if event.note else ""
        note(job, "CancelRequested", f"{event.requested_by or 'a user'} wants it cancelled{why}", at)


@on(JobPauseRequested)
def pause_requested(rows: Rows, event: JobPauseRequested, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is not None and take(rows, job, event, at):
        note(job, PendingReason.ON_HOLD, f"{event.requested_by or 'a user'} has paused it", at)


@on(JobResumeRequested)
def resume_requested(rows: Rows, event: JobResumeRequested, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is not None and take(rows, job, event, at):
        note(job, PendingReason.NOT_YET_EVALUATED, f"{event.requested_by or 'a user'} has released it", at)


@on(JobCodeChanged)
def code_changed(rows: Rows, event: JobCodeChanged, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is not None:
        job.spec = {**job.spec, "code_id": event.code_id}
        keep(rows, job, at)


@on(JobMaxGpusChanged)
def max_gpus_changed(rows: Rows, event: JobMaxGpusChanged, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is not None:
        job.max_gpus = event.max_gpus
        keep(rows, job, at)


@on(JobPriorityChanged)
def priority_changed(rows: Rows, event: JobPriorityChanged, at: At) -> None:
    job = live_job(rows, event.job_id)
    if job is not None:
        job.priority = event.priority
        keep(rows, job, at)
