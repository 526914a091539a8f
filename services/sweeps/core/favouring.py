"""Which trials go before the others: the top M by what their curves come to."""

from __future__ import annotations

from libs.contracts.gateway import JobPriorityChanged
from libs.contracts.reasons import Reason
from libs.contracts.sweeps import TrialDemoted, TrialPromoted
from libs.kernel.machine import Turn
from services.sweeps.core.state import State, Sweep, Trial


def rank(sweep: Sweep, turn: Turn[State]) -> None:
    """Promote and demote, so that the most promising trials are the favourites."""
    if sweep.spec.favourites == 0:
        return
    promising = [trial for trial in sweep.under_way if trial.forecast is not None and not trial.pruned]
    promising.sort(key=lambda trial: (-_promise(sweep, trial), trial.number))
    chosen = {trial.number: None for trial in promising[: sweep.spec.favourites]}
    for trial in sweep.under_way:
        if trial.favourite and trial.number not in chosen:
            _demote(sweep, trial, turn)
    for trial in promising:
        if trial.number in chosen and not trial.favourite:
            _promote(sweep, trial, turn)


def _promise(sweep: Sweep, trial: Trial) -> float:
    """What the curve comes to, more is better; a favourite is left for one that is better beyond doubt."""
    assert trial.forecast is not None
    return sweep.gain(trial.forecast.mean) + (trial.forecast.deviation if trial.favourite else 0.0)


def _promote(sweep: Sweep, trial: Trial, turn: Turn[State]) -> None:
    _rank(TrialPromoted, "MostPromising", sweep.spec.trial.priority + sweep.spec.favourite_priority, sweep, trial, turn)


def _demote(sweep: Sweep, trial: Trial, turn: Turn[State]) -> None:
    _rank(TrialDemoted, "OthersPromiseMore", sweep.spec.trial.priority, sweep, trial, turn)


def _rank(
    said: type[TrialPromoted | TrialDemoted],
    code: str,
    priority: int,
    sweep: Sweep,
    trial: Trial,
    turn: Turn[State],
) -> None:
    """Say it, and ask for the priority that goes with it."""
    turn.emit(
        said(
            sweep_id=sweep.sweep_id,
            number=trial.number,
            job_id=trial.job_id,
            priority=priority,
            reason=_reason(code, trial),
        )
    )
    turn.emit(JobPriorityChanged(job_id=trial.job_id, priority=priority, requested_by=f"sweep {sweep.sweep_id}"))


def _reason(code: str, trial: Trial) -> Reason:
    if trial.forecast is None:
        return Reason(code=code, message="nothing is known of its curve any more", numbers={})
    mean, deviation = trial.forecast.mean, trial.forecast.deviation
    return Reason(
        code=code,
        message=f"comes to {mean:.4g} ± {deviation:.2g}",
        numbers={"forecast": mean, "deviation": deviation},
    )
