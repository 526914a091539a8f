"""Per event: what changes, and what a failure leads to.

An attempt that has failed is judged at once where its outcome says why, or where lines are not followed. Else it is
judged when all of its lines have been read (FailureObserved with `complete`), or when that takes too long.
"""

from __future__ import annotations

from libs.contracts.admission import EXCUSED, JobRejected, TrialPassed
from libs.contracts.agent import NodeJoined, NodeLeft
from libs.contracts.failure_analysis import (
    OWNER,
    FailureClassified,
    FailureObserved,
    JobAbandoned,
    RetryScheduled,
    RulesLoaded,
)
from libs.contracts.gateway import JobArrived, SettingChanged
from libs.contracts.introspection import NodeLost
from libs.contracts.placement import AttemptFailed, JobCancelled, JobMoved, JobPlaced, JobSucceeded
from libs.contracts.reasons import Reason
from libs.contracts.runtime import TimerFired
from libs.kernel.machine import Turn
from libs.kernel.settings import take_setting
from services.failure_analysis.core import blaming, repeating, retrying
from services.failure_analysis.core.classify import BY_LINES, Failure, classify, overlapped
from services.failure_analysis.core.retrying import ALLOCATOR, NO_FAULT, next_attempt
from services.failure_analysis.core.state import Changes, History, Host, State, Waiting
from services.failure_analysis.core.table import machine

__all__ = ["machine", "next_wakeup"]


def next_wakeup(state: State) -> float | None:
    """When the patience with the lines of an attempt ends."""
    return min((each.until_s for each in state.waiting.values()), default=None)


@machine.evolves(JobArrived)
def job_arrived(state: State, event: JobArrived, now_s: float) -> None:
    spec = event.spec
    changes = Changes(allowed=spec.changeable, memory_bytes=spec.memory_bytes, allocator=spec.env.get(ALLOCATOR, ""))
    history = History(
        max_retries=spec.max_retries,
        gpus=spec.gpus.count,
        user=spec.user,
        data=spec.data,
        restartable=spec.restartable,
        changes=changes,
    )
    state.jobs.setdefault(event.job_id, history)


@machine.evolves(JobSucceeded, JobCancelled, JobRejected, JobAbandoned)
def job_ended(state: State, event: JobSucceeded | JobCancelled | JobRejected | JobAbandoned, now_s: float) -> None:
    state.jobs.pop(event.job_id, None)
    state.waiting.pop(event.job_id, None)


@machine.evolves(SettingChanged)
def setting_changed(state: State, event: SettingChanged, now_s: float) -> None:
    take_setting(event, OWNER, state)


@machine.evolves(RulesLoaded)
def rules_loaded(state: State, event: RulesLoaded, now_s: float) -> None:
    state.rules, state.consequences = event.digest, event.consequences


@machine.evolves(NodeJoined)
def node_joined(state: State, event: NodeJoined, now_s: float) -> None:
    state.hosts[event.node_id] = Host(gpus=len(event.gpus), memory_bytes=event.memory_bytes)


@machine.evolves(NodeLeft, NodeLost)
def node_gone(state: State, event: NodeLeft | NodeLost, now_s: float) -> None:
    state.hosts.pop(event.node_id, None)


@machine.evolves(JobPlaced, JobMoved)
def attempt_begins(state: State, event: JobPlaced | JobMoved, now_s: float) -> None:
    history = state.jobs.get(event.job_id)
    if history is not None and state.rules:
        history.gang, history.observed = event.gang, None


@machine.evolves(AttemptFailed)
def attempt_failed(state: State, event: AttemptFailed, now_s: float) -> None:
    history = state.jobs.get(event.job_id)
    if history is None:
        return
    history.tried = next_attempt(event) if event.trial else None
    history.excused_by = retrying.excused_by(event, history)
    if history.excused_by is not None:
        history.overlaps += 1
    elif event.outcome in NO_FAULT:
        history.losses += 1
    elif event.outcome != "interrupted":
        history.failures += 1
    if state.rules and event.outcome in BY_LINES:
        state.waiting[event.job_id] = Waiting(failed=event, until_s=now_s + state.lines_patience_s)


@machine.decides(AttemptFailed)
def judge_unless_lines_are_to_come(state: State, event: AttemptFailed, turn: Turn[State]) -> None:
    history = state.jobs.get(event.job_id)
    if history is not None and event.job_id not in state.waiting:
        _judge(state, event, history, turn)


@machine.evolves(FailureObserved)
def observed(state: State, event: FailureObserved, now_s: float) -> None:
    history = state.jobs.get(event.job_id)
    if history is not None:
        history.observed = event


@machine.decides(FailureObserved)
def judge_when_all_lines_were_read(state: State, event: FailureObserved, turn: Turn[State]) -> None:
    waiting = state.waiting.get(event.job_id)
    if waiting is not None and event.complete and waiting.failed.attempt == event.attempt:
        _judge(state, waiting.failed, state.jobs[event.job_id], turn)


@machine.decides(TimerFired)
def judge_what_has_waited_too_long(state: State, event: TimerFired, turn: Turn[State]) -> None:
    overdue = [each.failed for each in state.waiting.values() if each.until_s <= turn.now_s]
    for failed in overdue:
        _judge(state, failed, state.jobs[failed.job_id], turn)


@machine.evolves(FailureClassified)
def classified(state: State, event: FailureClassified, now_s: float) -> None:
    state.waiting.pop(event.job_id, None)
    history = state.jobs.get(event.job_id)
    if history is not None and history.tried is not None and history.excused_by is None and event.failure in EXCUSED:
        history.excused = history.tried
        history.failures -= 1
    blaming.note(state, event, now_s)
    repeating.note(state, event, now_s)


@machine.decides(TrialPassed)
def go_on(state: State, event: TrialPassed, turn: Turn[State]) -> None:
    """The failure of a trial that says nothing of the job uses up no retry."""
    history = state.jobs.get(event.job_id)
    if history is None or history.excused is None:
        return
    reason = Reason(code="TrialExcused", message=f"{event.reason.message}; that uses up no retry")
    retry = RetryScheduled(
        job_id=event.job_id,
        attempt=history.excused,
        not_before_s=turn.now_s,
        reason=reason,
        retries_used=retrying.used(history),
    )
    turn.emit(retry)


def _judge(state: State, event: AttemptFailed, history: History, turn: Turn[State]) -> None:
    told = history.observed
    failure = classify(
        exit_code=event.exit_code,
        signal=event.signal,
        outcome=event.outcome,
        stderr_tail=event.stderr_tail,
        memory_signs=event.memory_signs,
        observed=told if told is not None and told.attempt == event.attempt else None,
    )
    if history.excused_by is not None:
        failure = overlapped(history.excused_by, failure)
    turn.emit(_classified(event, history, failure, retry=retrying.can_help(state, event, history, failure)))
    if failure.observed is not None:
        blaming.suspect(state, failure.observed.node_id, turn)
    if state.rules:
        repeating.warn(state, history, turn)
    if history.excused is None:
        retrying.decide(state, event, history, failure, turn)


def _classified(event: AttemptFailed, history: History, failure: Failure, *, retry: bool) -> FailureClassified:
    line = failure.observed
    return FailureClassified(
        job_id=event.job_id,
        attempt=event.attempt,
        failure=failure.failure,
        category=failure.category,
        retry_can_help=retry,
        deciding_line=failure.deciding_line,
        where=failure.where,
        cause=failure.cause,
        confidence=failure.confidence,
        rule=line.rule if line is not None else "",
        rank=line.rank if line is not None else None,
        node_id=line.node_id if line is not None else "",
        gpu_index=_gpu_of(history, line.rank) if line is not None else None,
        root_of=line.others if line is not None else [],
    )


def _gpu_of(history: History, rank: int | None) -> int | None:
    """The index of a rank's GPU on its node; None where it is not known."""
    for task in history.gang:
        if rank is not None and 0 <= rank - task.first_rank < len(task.gpu_indices):
            return task.gpu_indices[rank - task.first_rank]
    return None
