"""Per event: what changes, and what a failure leads to."""

from __future__ import annotations

from libs.contracts import settings
from libs.contracts.admission import EXCUSED, JobRejected, TrialPassed
from libs.contracts.failure_analysis import OWNER, FailureClassified, JobAbandoned, RetryScheduled
from libs.contracts.gateway import JobArrived, SettingChanged
from libs.contracts.placement import AttemptFailed, JobCancelled, JobSucceeded
from libs.contracts.reasons import Reason
from libs.kernel.machine import Machine, Turn
from libs.kernel.words import counted
from services.failure_analysis.core.classify import STOPPED_FOR, Failure, classify
from services.failure_analysis.core.state import History, State

machine: Machine[State] = Machine(OWNER)

FREE_LOSSES = 3
"""Attempts that may vanish, or never begin, without using up a retry."""
USER = "user"
"""The category of failures that are the program's own."""
NO_FAULT = ("lost", "node_failed", "start_timed_out")
"""Outcomes that are not the job's doing, as far as can be seen."""


@machine.evolves(JobArrived)
def job_arrived(state: State, event: JobArrived, now_s: float) -> None:
    state.jobs.setdefault(event.job_id, History(max_retries=event.spec.max_retries))


@machine.evolves(JobSucceeded, JobCancelled, JobRejected, JobAbandoned)
def job_ended(state: State, event: JobSucceeded | JobCancelled | JobRejected | JobAbandoned, now_s: float) -> None:
    state.jobs.pop(event.job_id, None)


@machine.evolves(SettingChanged)
def setting_changed(state: State, event: SettingChanged, now_s: float) -> None:
    if event.service == OWNER and event.name in settings.names(OWNER):
        setattr(state, event.name, float(event.value))


@machine.evolves(AttemptFailed)
def attempt_failed(state: State, event: AttemptFailed, now_s: float) -> None:
    history = state.jobs.get(event.job_id)
    if history is None:
        return
    if event.outcome in NO_FAULT:
        history.losses += 1
    elif event.trial and _failure_of(event).failure in EXCUSED:
        history.excused = _next_attempt(event)
    elif event.outcome != "interrupted":
        history.failures += 1


@machine.decides(AttemptFailed)
def retry_or_give_up(state: State, event: AttemptFailed, turn: Turn[State]) -> None:
    history = state.jobs.get(event.job_id)
    if history is None:
        return
    failure = _failure_of(event)
    turn.emit(
        FailureClassified(
            job_id=event.job_id,
            attempt=event.attempt,
            failure=failure.failure,
            category=failure.category,
            retry_can_help=failure.retry_can_help,
            deciding_line=failure.deciding_line,
            where=failure.where,
            cause=failure.cause,
            confidence=failure.confidence,
        )
    )
    if history.excused is not None:
        return
    if _can_retry(event, failure) and _may_retry(event, history):
        turn.emit(_retry(state, event, history, failure, turn.now_s))
    else:
        turn.emit(_abandon(event, history, failure))


@machine.evolves(RetryScheduled)
def retried(state: State, event: RetryScheduled, now_s: float) -> None:
    history = state.jobs.get(event.job_id)
    if history is not None:
        history.excused = None


@machine.decides(TrialPassed)
def go_on(state: State, event: TrialPassed, turn: Turn[State]) -> None:
    """The failure of a trial that says nothing of the job uses up no retry."""
    history = state.jobs.get(event.job_id)
    if history is None or history.excused is None:
        return
    reason = Reason(code="TrialExcused", message=f"{event.reason.message}; that uses up no retry")
    retry = RetryScheduled(job_id=event.job_id, attempt=history.excused, not_before_s=turn.now_s, reason=reason)
    turn.emit(retry)


def _failure_of(event: AttemptFailed) -> Failure:
    return classify(
        exit_code=event.exit_code, signal=event.signal, outcome=event.outcome, stderr_tail=event.stderr_tail
    )


def _next_attempt(event: AttemptFailed) -> int:
    return max(event.attempt, event.last_attempt) + 1


def _can_retry(event: AttemptFailed, failure: Failure) -> bool:
    """What a program does wrong in its trial it would do wrong again, whatever the signature of the failure."""
    return failure.retry_can_help and not (event.trial and failure.category == USER)


def _may_retry(event: AttemptFailed, history: History) -> bool:
    """A loss is not the job's fault and uses up no retry, until it looks as if it were; an interruption never does."""
    if event.outcome == "interrupted":
        return True
    if event.outcome in NO_FAULT:
        return history.losses <= FREE_LOSSES or history.failures + history.losses - FREE_LOSSES <= history.max_retries
    return history.failures <= history.max_retries


def _retry(state: State, event: AttemptFailed, history: History, failure: Failure, now_s: float) -> RetryScheduled:
    doublings = max(0, min(history.failures + history.losses - 1, 30))
    delay_s = min(state.retry_cap_s, state.retry_base_s * 2**doublings)
    why = (
        f"{failure.evidence}; failure {history.failures}, {counted(history.max_retries, 'retry', 'retries')} allowed; "
        f"lost {counted(history.losses, 'time')}"
    )
    if event.outcome == "interrupted":
        why = f"{failure.deciding_line}: that uses up no retry"
    reason = Reason(
        code="Interrupted" if event.outcome == "interrupted" else "RetryCanHelp",
        message=f"{why}; next try in {delay_s:g} s",
        numbers={
            "failures": history.failures,
            "losses": history.losses,
            "max_retries": history.max_retries,
            "delay_s": delay_s,
        },
    )
    attempt = _next_attempt(event)
    return RetryScheduled(job_id=event.job_id, attempt=attempt, not_before_s=now_s + delay_s, reason=reason)


def _abandon(event: AttemptFailed, history: History, failure: Failure) -> JobAbandoned:
    if _can_retry(event, failure):
        allowed = counted(history.max_retries, "retry", "retries")
        lost = f" and lost {counted(history.losses, 'time')}" if history.losses else ""
        why = f"{failure.evidence}; failed {counted(history.failures, 'time')}{lost}, {allowed} allowed"
        code = "RetriesUsedUp"
    elif event.outcome in STOPPED_FOR:
        code, why = event.reason.code, f"{failure.deciding_line}; tenant's policy: such a job is stopped"
    else:
        why = f"{failure.evidence}; not retried: {failure.failure} would happen again"
        code = "RetryCannotHelp"
    reason = Reason(
        code=code,
        message=why,
        numbers={"failures": history.failures, "max_retries": history.max_retries},
    )
    return JobAbandoned(
        job_id=event.job_id, attempt=event.attempt, exit_code=event.exit_code, signal=event.signal, reason=reason
    )
