"""Where jobs are: they are placed, take turns, are moved, share GPUs, get faster or slower, end."""

from __future__ import annotations

from collections.abc import Iterable

from libs.contracts.admission import JobRejected
from libs.contracts.agent import JobExited, JobMovable
from libs.contracts.failure_analysis import JobAbandoned
from libs.contracts.gateway import JobArrived, JobMaxGpusChanged, JobPauseRequested, JobResumeRequested
from libs.contracts.introspection import JobProfiled
from libs.contracts.placement import (
    AttemptFailed,
    JobCancelled,
    JobMoved,
    JobPacked,
    JobPlaced,
    JobQueued,
    JobSucceeded,
    JobUnpacked,
    TimeSliceStarted,
)
from libs.contracts.reasons import PendingReason
from services.migration.core.state import Assessment, Assignment, State
from services.migration.core.table import machine

Ended = JobSucceeded | JobCancelled | AttemptFailed | JobAbandoned
LOOK_AFTER_S = 2.0
"""Placement goes first: it gives away GPUs that became free within this time."""


@machine.evolves(JobArrived)
def job_arrived(state: State, event: JobArrived, now_s: float) -> None:
    known = event.job_id in state.queued or event.job_id in state.assignments
    if known:  # the first arrival of an id counts
        return
    if len(event.spec.widths) > 1:
        state.widths.setdefault(event.job_id, event.spec.widths)
    if event.spec.needs:
        state.needs.setdefault(event.job_id, event.spec.needs)
    if event.spec.restartable:
        state.restartable[event.job_id] = None


@machine.evolves(JobMaxGpusChanged)
def max_gpus_changed(state: State, event: JobMaxGpusChanged, now_s: float) -> None:
    if event.job_id in state.widths:
        state.max_gpus[event.job_id] = event.max_gpus
        look_soon(state, now_s)


@machine.evolves(JobRejected)
def job_rejected(state: State, event: JobRejected, now_s: float) -> None:
    _forget(state, event.job_id)


def _forget(state: State, job_id: str) -> None:
    state.widths.pop(job_id, None)
    state.max_gpus.pop(job_id, None)
    state.needs.pop(job_id, None)
    state.restartable.pop(job_id, None)


@machine.evolves(JobPlaced)
def job_placed(state: State, event: JobPlaced, now_s: float) -> None:
    state.queued.pop(event.job_id, None)
    state.assignments[event.job_id] = assignment = Assignment(attempt=event.attempt, gang=event.gang)
    _fill(state, assignment)
    _has_changed(state, assignment.nodes, now_s)


@machine.evolves(JobMoved)
def job_moved(state: State, event: JobMoved, now_s: float) -> None:
    """Its old tasks stand still, and are about to be ended."""
    assignment = state.assignments[event.job_id]
    for node_id in assignment.nodes:
        if node_id not in assignment.exited and node_id in state.servers and state.servers[node_id].present:
            state.leftovers.setdefault(node_id, {})[event.job_id] = event.from_attempt
    if assignment.rate_per_s > 0:
        state.assessments[event.job_id] = Assessment(
            migration_id=event.migration_id, attempt=event.attempt, before_per_s=assignment.rate_per_s
        )
    _has_changed(state, assignment.nodes, now_s)
    before = gpu_type_of(state, assignment)
    state.assignments[event.job_id] = moved = Assignment(
        attempt=event.attempt,
        gang=event.gang,
        movable={task.node_id: None for task in event.gang},
        resizable=assignment.resizable,
        rests_until_s=now_s + state.move_rest_s,
    )
    _fill(state, moved)
    _has_changed(state, moved.nodes, now_s)
    if gpu_type_of(state, moved) == before and moved.width == assignment.width:
        moved.best_per_s = assignment.best_per_s


@machine.evolves(JobExited)
def task_ended(state: State, event: JobExited, now_s: float) -> None:
    assignment = state.assignments.get(event.job_id)
    if assignment is not None and assignment.attempt == event.attempt:
        assignment.exited[event.node_id] = None
    left = state.leftovers.get(event.node_id, {})
    if left.get(event.job_id) == event.attempt:
        del left[event.job_id]


@machine.evolves(JobMovable)
def task_movable(state: State, event: JobMovable, now_s: float) -> None:
    assignment = state.assignments.get(event.job_id)
    if assignment is not None and assignment.attempt == event.attempt:
        assignment.movable[event.node_id] = None
        assignment.resizable = event.resizable
        look_soon(state, now_s)


@machine.evolves(JobPauseRequested)
def job_paused(state: State, event: JobPauseRequested, now_s: float) -> None:
    if (assignment := state.assignments.get(event.job_id)) is not None:
        assignment.paused = True
        state.queued.pop(event.job_id, None)


@machine.evolves(JobResumeRequested)
def job_released(state: State, event: JobResumeRequested, now_s: float) -> None:
    if (assignment := state.assignments.get(event.job_id)) is not None:
        assignment.paused = False


@machine.evolves(TimeSliceStarted)
def turns_changed(state: State, event: TimeSliceStarted, now_s: float) -> None:
    for job_id in event.suspended:
        if (assignment := state.assignments.get(job_id)) is not None:
            assignment.suspended_since_s = now_s
            # Its user may have paused it just before it was placed.
            assignment.paused = assignment.paused or event.reason.code == PendingReason.ON_HOLD
    for resumed in event.resumed:
        state.queued.pop(resumed.job_id, None)
        if (assignment := state.assignments.get(resumed.job_id)) is not None:
            assignment.suspended_since_s, assignment.gang = None, resumed.gang
    _has_changed(state, event.nodes, now_s)
    look_soon(state, now_s)


@machine.evolves(JobPacked)
def job_packed(state: State, event: JobPacked, now_s: float) -> None:
    _share(state, event.job_id, event.with_job, packed=True)


@machine.evolves(JobUnpacked)
def job_unpacked(state: State, event: JobUnpacked, now_s: float) -> None:
    _share(state, event.job_id, event.with_job, packed=False)


@machine.evolves(JobProfiled)
def job_profiled(state: State, event: JobProfiled, now_s: float) -> None:
    assignment = state.assignments.get(event.job_id)
    if assignment is None or assignment.attempt != event.attempt or assignment.packed:
        return
    assignment.rate_per_s = event.rate_per_s
    assignment.best_per_s = max(assignment.best_per_s, event.rate_per_s)
    if event.rate_per_s < state.interference * assignment.best_per_s:
        look_soon(state, now_s)


@machine.evolves(JobQueued)
def job_waits(state: State, event: JobQueued, now_s: float) -> None:
    """When a later attempt waits, the earlier one has left its GPUs."""
    if event.reason.code == PendingReason.ON_HOLD:
        state.queued.pop(event.job_id, None)
    else:
        state.queued[event.job_id] = None
    look_soon(state, now_s)
    assignment = state.assignments.get(event.job_id)
    if assignment is not None and event.attempt > assignment.attempt:
        _has_changed(state, assignment.nodes, now_s)
        del state.assignments[event.job_id]


@machine.evolves(JobSucceeded, JobCancelled, AttemptFailed, JobAbandoned)
def attempt_ended(state: State, event: Ended, now_s: float) -> None:
    assignment = state.assignments.pop(event.job_id, None)
    if assignment is not None:
        _has_changed(state, assignment.nodes, now_s)
    state.queued.pop(event.job_id, None)
    if not isinstance(event, AttemptFailed):
        _forget(state, event.job_id)
    state.assessments.pop(event.job_id, None)
    look_soon(state, now_s)


def gpu_type_of(state: State, assignment: Assignment) -> str:
    """Of the GPUs that the job has; empty when nothing is known of its node."""
    first = assignment.gang[0]
    server = state.servers.get(first.node_id)
    return server.gpus[first.gpu_indices[0]] if server is not None else ""


def look_soon(state: State, now_s: float) -> None:
    """Something has changed by which a job may be better off elsewhere; a later look does not put this one off."""
    soon_s = now_s + LOOK_AFTER_S
    state.look_at_s = soon_s if state.look_at_s is None else min(state.look_at_s, soon_s)


def _has_changed(state: State, node_ids: Iterable[str], now_s: float) -> None:
    """Others than before hold GPUs of these nodes."""
    for node_id in node_ids:
        if node_id in state.servers:
            state.servers[node_id].changed_s = now_s


def _fill(state: State, assignment: Assignment) -> None:
    """Its nodes are not empty any more."""
    for node_id in assignment.nodes:
        if node_id in state.drains:
            state.drains[node_id].empty = False


def _share(state: State, *job_ids: str, packed: bool) -> None:
    for job_id in job_ids:
        if (assignment := state.assignments.get(job_id)) is not None:
            assignment.packed = packed
