"""Sweeps and their trials, and what the scripts of jobs report."""

from __future__ import annotations

import msgspec

from libs.contracts.agent import MetricsReported
from libs.contracts.gateway import SweepArrived, SweepCancelRequested
from libs.contracts.read_models import FINAL_SWEEP_STATES, ReportRow, SweepRow, SweepState, TrialRow, TrialState
from libs.contracts.sweeps import SweepEnded, TrialDemoted, TrialEnded, TrialPromoted, TrialPruned, TrialStarted
from libs.kernel.words import counted
from services.projection.core.fold import At, on, report_keys
from services.projection.core.rows import Rows


@on(SweepArrived)
def arrived(rows: Rows, event: SweepArrived, at: At) -> None:
    if rows.get(SweepRow, event.sweep_id) is not None:
        return
    rows.put(
        SweepRow(
            id=event.sweep_id,
            name=event.spec.name,
            spec=msgspec.to_builtins(event.spec),
            submitted_by=event.submitted_by,
            reason="Accepted",
            message=f"{counted(event.spec.trials, 'trial')} at most",
            submitted_s=at.time_s,
            arrived_offset=at.offset,
            version=at.offset,
        )
    )


@on(SweepCancelRequested)
def cancel_requested(rows: Rows, event: SweepCancelRequested, at: At) -> None:
    sweep = rows.get(SweepRow, event.sweep_id)
    if sweep is None or sweep.state in FINAL_SWEEP_STATES:
        return
    why = f": {event.note}" if event.note else ""
    sweep.state, sweep.reason = SweepState.STOPPING, "CancelRequested"
    sweep.message, sweep.version = f"{event.requested_by or 'a user'} wants it to end{why}", at.offset
    rows.put(sweep)


@on(SweepEnded)
def ended(rows: Rows, event: SweepEnded, at: At) -> None:
    sweep = rows.get(SweepRow, event.sweep_id)
    if sweep is None:
        return
    sweep.state = SweepState(event.outcome.upper())
    sweep.reason, sweep.message = event.reason.code, event.reason.message
    sweep.best_trial, sweep.best_value = event.best_trial, event.best_value
    sweep.best_parameters = dict(event.best_parameters)
    sweep.ended_s, sweep.version = at.time_s, at.offset
    rows.put(sweep)


@on(TrialStarted)
def started(rows: Rows, event: TrialStarted, at: At) -> None:
    if rows.get(TrialRow, event.job_id) is not None:
        return
    rows.put(
        TrialRow(
            job_id=event.job_id,
            sweep_id=event.sweep_id,
            number=event.number,
            parameters=dict(event.parameters),
            started_s=at.time_s,
            version=at.offset,
        )
    )


@on(TrialPromoted, TrialDemoted)
def ranked(rows: Rows, event: TrialPromoted | TrialDemoted, at: At) -> None:
    trial = rows.get(TrialRow, event.job_id)
    if trial is not None:
        trial.favourite = isinstance(event, TrialPromoted)
        trial.reason, trial.message = event.reason.code, event.reason.message
        trial.version = at.offset
        rows.put(trial)


@on(TrialPruned)
def pruned(rows: Rows, event: TrialPruned, at: At) -> None:
    trial = rows.get(TrialRow, event.job_id)
    if trial is not None:
        trial.state, trial.favourite = TrialState.PRUNED, False
        trial.reason, trial.message = event.reason.code, event.reason.message
        trial.version = at.offset
        rows.put(trial)


@on(TrialEnded)
def trial_ended(rows: Rows, event: TrialEnded, at: At) -> None:
    trial = rows.get(TrialRow, event.job_id)
    if trial is not None:
        trial.state, trial.favourite = TrialState(event.outcome.upper()), False
        trial.best_value, trial.reports = event.value, event.reports
        trial.ended_s, trial.version = at.time_s, at.offset
        rows.put(trial)


@on(MetricsReported)
def reported(rows: Rows, event: MetricsReported, at: At) -> None:
    """A step that is told twice changes nothing: agents may append a report again."""
    known = {row.name for row in rows.fetch(ReportRow, report_keys(event))}
    for name, value in event.values.items():
        if name not in known:
            rows.put(_report(event, name, value, at))
    trial = rows.get(TrialRow, event.job_id)
    if trial is not None and trial.ended_s is None:
        _learn(rows, trial, event, at)


def _report(event: MetricsReported, name: str, value: float, at: At) -> ReportRow:
    return ReportRow(
        job_id=event.job_id,
        attempt=event.attempt,
        name=name,
        step=event.step,
        value=value,
        time_s=at.time_s,
        log_offset=at.offset,
    )


def _learn(rows: Rows, trial: TrialRow, event: MetricsReported, at: At) -> None:
    """What a trial reports of the objective, unless an earlier attempt had come as far."""
    sweep = rows.get(SweepRow, trial.sweep_id)
    if sweep is None:
        return
    value = event.values.get(sweep.spec["objective"]["metric"])
    if value is None or (trial.last_step is not None and event.step <= trial.last_step):
        return
    trial.reports += 1
    trial.last_step, trial.last_value = event.step, value
    if _is_better(sweep, value, trial.best_value):
        trial.best_value = value
    trial.version = at.offset
    rows.put(trial)
    first_of_equals = value == sweep.best_value and trial.number < (sweep.best_trial or 0)
    if first_of_equals or _is_better(sweep, value, sweep.best_value):
        sweep.best_trial, sweep.best_value = trial.number, value
        sweep.best_parameters, sweep.version = dict(trial.parameters), at.offset
        rows.put(sweep)


def _is_better(sweep: SweepRow, value: float, than: float | None) -> bool:
    if than is None:
        return True
    return value > than if sweep.spec["objective"]["maximize"] else value < than
