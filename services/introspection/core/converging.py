"""Follows the losses of jobs that asked for it, and says when one improves no more (Philly study, ATC'19, section 4.2).

Three of four of the study's jobs were within 0.1 % of their lowest loss after 40 % of their epochs. A job is stopped
for that only if it has asked to be.
"""

from __future__ import annotations

from libs import lifecycle
from libs.contracts.agent import MetricsReported
from libs.contracts.base import Event
from libs.contracts.failure_analysis import RetryScheduled
from libs.contracts.gateway import JobArrived, JobCancelRequested, SettingChanged
from libs.contracts.introspection import OWNER, JobConverged
from libs.contracts.quota import OpportunityGranted, QuotaDeferred, QuotaGranted
from libs.contracts.reasons import Number, Reason
from libs.kernel.machine import Turn
from libs.kernel.settings import take_setting
from libs.kernel.words import counted
from libs.lifecycle import curves
from libs.lifecycle.curves import Epoch
from libs.lifecycle.life import begin
from services.introspection.core.state import Followed, State
from services.introspection.core.table import machine

STOP = "stop"
"""Value of a job's `when_converged`."""


@machine.evolves(JobArrived)
def job_arrived(state: State, event: JobArrived, now_s: float) -> None:
    spec = event.spec
    if spec.when_converged and event.job_id not in state.followed:
        state.followed[event.job_id] = Followed(
            life=begin(event, now_s),
            metric=spec.loss_metric,
            stops=spec.when_converged == STOP,
            epochs=spec.converge_epochs,
            ratio=spec.converge_ratio,
        )


@machine.evolves(SettingChanged)
def setting_changed(state: State, event: SettingChanged, now_s: float) -> None:
    take_setting(event, OWNER, state)


@machine.evolves(QuotaGranted, OpportunityGranted, QuotaDeferred, RetryScheduled)
def waits(
    state: State,
    event: QuotaGranted | OpportunityGranted | QuotaDeferred | RetryScheduled,
    now_s: float,
) -> None:
    account(state, event.job_id, event, now_s)


def account(state: State, job_id: str, event: Event, now_s: float) -> None:
    """Keep the books of the job's GPU time, if it is followed."""
    followed = state.followed.get(job_id)
    if followed is not None:
        lifecycle.fold(followed.life, event, lifecycle.At(time_s=now_s))


def forget(state: State, job_id: str) -> None:
    """The job has ended."""
    state.followed.pop(job_id, None)


@machine.evolves(MetricsReported)
def reported(state: State, event: MetricsReported, now_s: float) -> Followed | None:
    """The job, if the report is of its present attempt and tells its loss."""
    followed = state.followed.get(event.job_id)
    if followed is None or event.attempt != followed.life.attempt or followed.metric not in event.values:
        return None
    gpu_s = followed.life.books.gpu_s_until(now_s)
    epoch = Epoch(epoch=event.step, loss=event.values[followed.metric], gpu_s=gpu_s)
    followed.curve = curves.take(followed.curve, epoch, _ratio(state, followed))
    return followed


@machine.decides(MetricsReported)
def judge_convergence(state: State, event: MetricsReported, turn: Turn[State]) -> None:
    followed: Followed | None = turn.changed
    if followed is None or followed.told:
        return
    patience = state.converge_epochs if followed.epochs is None else followed.epochs
    if patience <= 0 or followed.curve.unimproved < patience:
        return
    fact = _converged(event, followed, _ratio(state, followed))
    turn.emit(fact)
    if followed.stops:
        note = f"{fact.reason.message}; the job asked to be stopped then"
        turn.emit(JobCancelRequested(job_id=event.job_id, requested_by=OWNER, note=note))


def _ratio(state: State, followed: Followed) -> float:
    return state.converge_ratio if followed.ratio is None else followed.ratio


def _converged(event: MetricsReported, followed: Followed, ratio: float) -> JobConverged:
    curve = followed.curve
    last, best, near, improved = curve.last, curve.best, curve.near_best, curve.improved
    assert last is not None and best is not None and near is not None and improved is not None
    passed = counted(round(curve.unimproved), "epoch")
    since_s = last.gpu_s - near.gpu_s
    message = (
        f"{followed.metric} has not fallen by {ratio:.2%} for {passed}; the lowest is {best.loss:.6g} at epoch "
        f"{best.epoch:g}, as good since epoch {near.epoch:g}, {since_s:.1f} of {last.gpu_s:.1f} GPU seconds ago"
    )
    numbers: dict[str, Number] = {
        "ratio": ratio,
        "unimproved_epochs": curve.unimproved,
        "improved_epoch": improved.epoch,
        "improved_loss": improved.loss,
        "epochs_seen": curve.epochs,
    }
    return JobConverged(
        job_id=event.job_id,
        attempt=event.attempt,
        metric=followed.metric,
        epoch=last.epoch,
        best=best.loss,
        best_epoch=best.epoch,
        converged_epoch=near.epoch,
        gpu_s=round(last.gpu_s, 6),
        gpu_s_since=round(since_s, 6),
        reason=Reason(code="Converged", message=message, numbers=numbers),
    )


@machine.evolves(JobConverged)
def converged(state: State, event: JobConverged, now_s: float) -> None:
    followed = state.followed.get(event.job_id)
    if followed is not None:
        followed.told = True
