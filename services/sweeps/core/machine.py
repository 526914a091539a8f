"""Per event: what changes, and what it means for the sweep."""

from __future__ import annotations

from libs.contracts.admission import JobRejected
from libs.contracts.agent import MetricsReported
from libs.contracts.failure_analysis import JobAbandoned
from libs.contracts.gateway import (
    ArrayArrived,
    DagArrived,
    GroupChangeRequested,
    JobArrived,
    JobCancelRequested,
    SweepArrived,
    SweepCancelRequested,
)
from libs.contracts.placement import JobCancelled, JobSucceeded
from libs.contracts.reasons import Number, Reason
from libs.contracts.sweeps import (
    OWNER,
    SweepEnded,
    TrialDemoted,
    TrialEnded,
    TrialPromoted,
    TrialPruned,
    TrialStarted,
)
from libs.kernel.machine import Machine, Turn
from services.sweeps.core import favouring, groups, proposing, pruning
from services.sweeps.core.state import Place, Report, State, Sweep, Trial

machine: Machine[State] = Machine(OWNER)


@machine.evolves(SweepArrived)
def sweep_arrived(state: State, event: SweepArrived, now_s: float) -> None:
    state.sweeps[event.sweep_id] = Sweep(sweep_id=event.sweep_id, spec=event.spec, submitted_by=event.submitted_by)


@machine.decides(SweepArrived)
def start_first_trials(state: State, event: SweepArrived, turn: Turn[State]) -> None:
    proposing.fill(state.sweeps[event.sweep_id], turn)


@machine.evolves(TrialStarted)
def trial_started(state: State, event: TrialStarted, now_s: float) -> None:
    trial = Trial(number=event.number, job_id=event.job_id, parameters=event.parameters)
    state.sweeps[event.sweep_id].trials.append(trial)
    state.jobs[event.job_id] = Place(event.sweep_id, event.number)


@machine.evolves(MetricsReported)
def metrics_reported(state: State, event: MetricsReported, now_s: float) -> None:
    found = state.trial_of(event.job_id)
    if found is None:
        return
    sweep, trial = found
    value = event.values.get(sweep.spec.objective.metric)
    if value is None or (trial.reports and event.step <= trial.reports[-1].step):
        return  # another metric, or a step told twice: a report repeated, or an attempt that began anew
    trial.reports.append(Report(event.step, value))
    pruning.judge(sweep, trial)


@machine.decides(MetricsReported)
def act_on_report(state: State, event: MetricsReported, turn: Turn[State]) -> None:
    found = state.trial_of(event.job_id)
    if found is None or found[0].ended:
        return
    sweep, trial = found
    if trial.reports and sweep.reaches(trial.reports[-1].value):
        _end(sweep, "target_reached", f"trial {trial.number} reached {trial.reports[-1].value:.4g}", turn, keep=trial)
        return
    if trial.hopeless and not trial.pruned:
        _prune(sweep, trial, turn)
    favouring.rank(sweep, turn)


@machine.evolves(TrialPromoted, TrialDemoted)
def trial_ranked(state: State, event: TrialPromoted | TrialDemoted, now_s: float) -> None:
    state.sweeps[event.sweep_id].trials[event.number].favourite = isinstance(event, TrialPromoted)


@machine.evolves(TrialPruned)
def trial_pruned(state: State, event: TrialPruned, now_s: float) -> None:
    trial = state.sweeps[event.sweep_id].trials[event.number]
    trial.pruned, trial.favourite = True, False


@machine.decides(ArrayArrived)
def submit_array(state: State, event: ArrayArrived, turn: Turn[State]) -> None:
    groups.submit_array(event, turn)


@machine.decides(DagArrived)
def submit_dag(state: State, event: DagArrived, turn: Turn[State]) -> None:
    groups.submit_dag(event, turn)


@machine.evolves(JobArrived)
def member_arrived(state: State, event: JobArrived, now_s: float) -> None:
    """It takes effect at once as the service says it, and changes nothing when it comes back from the log."""
    if event.group is not None and event.job_id not in state.group_of:
        state.groups.setdefault(event.group.group_id, {})[event.job_id] = None
        state.group_of[event.job_id] = event.group.group_id


@machine.decides(GroupChangeRequested)
def ask_all(state: State, event: GroupChangeRequested, turn: Turn[State]) -> None:
    groups.ask_all(state, event, turn)


@machine.evolves(JobSucceeded, JobCancelled, JobAbandoned, JobRejected)
def member_over(state: State, event: JobSucceeded | JobCancelled | JobAbandoned | JobRejected, now_s: float) -> None:
    group_id = state.group_of.pop(event.job_id, None)
    if group_id is not None:
        del state.groups[group_id][event.job_id]
        if not state.groups[group_id]:
            del state.groups[group_id]


@machine.decides(JobSucceeded, JobCancelled, JobAbandoned, JobRejected)
def job_over(state: State, event: JobSucceeded | JobCancelled | JobAbandoned | JobRejected, turn: Turn[State]) -> None:
    found = state.trial_of(event.job_id)
    if found is None:
        return
    sweep, trial = found
    best = sweep.best_of(trial)
    turn.emit(
        TrialEnded(
            sweep_id=sweep.sweep_id,
            number=trial.number,
            job_id=trial.job_id,
            outcome=_outcome(trial, event),
            value=None if best is None else best.value,
            reports=len(trial.reports),
        )
    )
    if sweep.ended:
        return
    proposing.fill(sweep, turn)
    if sweep.under_way:
        favouring.rank(sweep, turn)
    else:
        trials = len(sweep.trials)
        _end(sweep, "exhausted", "the only trial is over" if trials == 1 else f"all {trials} trials are over", turn)


@machine.evolves(TrialEnded)
def trial_ended(state: State, event: TrialEnded, now_s: float) -> None:
    sweep = state.sweeps[event.sweep_id]
    sweep.trials[event.number].outcome = event.outcome
    del state.jobs[event.job_id]
    _forget_if_over(state, sweep)


@machine.decides(SweepCancelRequested)
def cancel(state: State, event: SweepCancelRequested, turn: Turn[State]) -> None:
    sweep = state.sweeps.get(event.sweep_id)
    if sweep is not None and not sweep.ended:
        _end(sweep, "cancelled", f"by {event.requested_by}{f': {event.note}' if event.note else ''}", turn)


@machine.evolves(SweepEnded)
def sweep_ended(state: State, event: SweepEnded, now_s: float) -> None:
    sweep = state.sweeps[event.sweep_id]
    sweep.ended = True
    _forget_if_over(state, sweep)


def _forget_if_over(state: State, sweep: Sweep) -> None:
    if sweep.ended and not sweep.under_way:
        del state.sweeps[sweep.sweep_id]


def _outcome(trial: Trial, event: JobSucceeded | JobCancelled | JobAbandoned | JobRejected) -> str:
    if isinstance(event, JobSucceeded):
        return "completed"
    if isinstance(event, JobCancelled):
        return "pruned" if trial.pruned else "stopped"
    return "failed"


def _prune(sweep: Sweep, trial: Trial, turn: Turn[State]) -> None:
    latest = trial.reports[-1]
    numbers: dict[str, Number] = {"step": latest.step, "value": latest.value, "reports": len(trial.reports)}
    turn.emit(
        TrialPruned(
            sweep_id=sweep.sweep_id,
            number=trial.number,
            job_id=trial.job_id,
            step=latest.step,
            value=latest.value,
            reason=Reason(code="Hopeless", message=trial.hopeless, numbers=numbers),
        )
    )
    _cancel_job(sweep, trial, "hopeless", turn)


def _end(sweep: Sweep, outcome: str, why: str, turn: Turn[State], *, keep: Trial | None = None) -> None:
    """Say that the sweep is over, and cancel its trials but the one that has found what was looked for."""
    best = sweep.best()
    under_way = sweep.under_way
    turn.emit(
        SweepEnded(
            sweep_id=sweep.sweep_id,
            outcome=outcome,
            best_trial=best[0].number if best else None,
            best_value=best[1].value if best else None,
            best_parameters=best[0].parameters if best else {},
            reason=Reason(code=_CODES[outcome], message=why, numbers={"trials": len(sweep.trials)}),
        )
    )
    for trial in under_way:
        if trial is not keep and not trial.pruned:
            _cancel_job(sweep, trial, "the sweep is over", turn)


_CODES = {"target_reached": "TargetReached", "exhausted": "AllTrialsOver", "cancelled": "CancelRequested"}


def _cancel_job(sweep: Sweep, trial: Trial, note: str, turn: Turn[State]) -> None:
    turn.emit(JobCancelRequested(job_id=trial.job_id, requested_by=f"sweep {sweep.sweep_id}", note=note))
