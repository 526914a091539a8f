"""The fold: one control record, applied to the rows.

`apply` keeps the event itself and then asks the handler of its type, if there is one, to change what the
event is about. Handlers are in `arrivals`, `attempts`, `groups`, `outcomes`, `cluster` and `sweeps`, by subject; what
becomes of a job they leave to `libs.lifecycle` (`states.take`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from libs.contracts.agent import MetricsReported
from libs.contracts.base import Event
from libs.contracts.envelope import Record
from libs.contracts.gateway import JobArrived
from libs.contracts.placement import JobPlaced
from libs.contracts.read_models import (
    EventCountRow,
    EventRow,
    GpuRow,
    GroupRow,
    JobRow,
    NodeRow,
    ReportRow,
    SweepRow,
    TrialRow,
)
from libs.contracts.reasons import Reason
from services.projection.core.rows import Rows


@dataclass(frozen=True)
class At:
    """Where and when a record stands, and its source."""

    offset: int
    time_s: float
    source: str


Handler = Callable[[Rows, Any, At], None]

HANDLERS: dict[type[Event], Handler] = {}
"""What changes rows, by type of event; `ignored.py` lists the types that change none, and why."""


def on(*types: type[Event]) -> Callable[[Handler], Handler]:
    """Register what events of these types change.

    Raises:
        ValueError: a type has a handler already.
    """

    def register(handler: Handler) -> Handler:
        for cls in types:
            if cls in HANDLERS:
                raise ValueError(f"{cls.__name__} has two handlers: {HANDLERS[cls]} and {handler}")
            HANDLERS[cls] = handler
        return handler

    return register


def apply(rows: Rows, record: Record) -> None:
    """Fold one control record into the rows. Records must come in order of offset, each once."""
    envelope = record.envelope
    event = envelope.event
    at = At(record.offset, envelope.time_s, envelope.source)
    rows.put(
        EventRow(
            log_offset=record.offset,
            id=envelope.id,
            type=event.wire_type,
            source=envelope.source,
            subject=event.subject,
            job_id=getattr(event, "job_id", None),
            node_id=getattr(event, "node_id", None),
            time_s=envelope.time_s,
            said_s=envelope.said_s,
            appended_at_s=record.appended_at_s,
            causation_id=envelope.causation_id,
            data=msgspec.to_builtins(event),
        )
    )
    _count(rows, event, at)
    handler = HANDLERS.get(type(event))
    if handler is not None:
        handler(rows, event, at)


def _count(rows: Rows, event: Event, at: At) -> None:
    row = rows.get(EventCountRow, at.source, event.wire_type)
    row = row or EventCountRow(source=at.source, type=event.wire_type)
    row.events += 1
    row.newest_offset, row.newest_s = at.offset, at.time_s
    rows.put(row)


def prefetch(rows: Rows, records: Sequence[Record]) -> None:
    """Load what a batch is about in a few queries, before it is folded one by one."""
    events = [record.envelope.event for record in records]
    jobs = [(event.job_id,) for event in events if hasattr(event, "job_id")]
    rows.fetch(JobRow, jobs)
    trials = rows.fetch(TrialRow, jobs)
    sweeps = [event.sweep_id for event in events if hasattr(event, "sweep_id")]
    rows.fetch(SweepRow, [(sweep_id,) for sweep_id in [*sweeps, *(trial.sweep_id for trial in trials)]])
    places = [event.group for event in events if isinstance(event, JobArrived) and event.group is not None]
    rows.fetch(GroupRow, [(place.group_id,) for place in places])
    gangs = [task for event in events if isinstance(event, JobPlaced) for task in event.gang]
    rows.fetch(GpuRow, [(f"{task.node_id}:{index}",) for task in gangs for index in task.gpu_indices])
    reports = [event for event in events if isinstance(event, MetricsReported)]
    rows.fetch(ReportRow, [key for event in reports for key in report_keys(event)])
    rows.fetch(NodeRow, [(event.node_id,) for event in events if hasattr(event, "node_id")])
    rows.fetch(EventCountRow, [(record.envelope.source, record.envelope.event.wire_type) for record in records])


def report_keys(event: MetricsReported) -> list[tuple[str, int, str, float]]:
    """Primary keys of the rows that the report's numbers become."""
    return [(event.job_id, event.attempt, name, event.step) for name in event.values]


def explain(job: JobRow, reason: Reason, at: At) -> None:
    """Take over a decision's reason as the job's own."""
    job.reason, job.message = reason.code, reason.message
    job.numbers = dict(reason.numbers)
    job.rejected = [msgspec.to_builtins(rejected) for rejected in reason.rejected]
    job.reason_source, job.reason_offset = at.source, at.offset


def note(job: JobRow, code: str, message: str, at: At) -> None:
    """Give the job a reason for an event that carries none of its own."""
    explain(job, Reason(code=code, message=message), at)
