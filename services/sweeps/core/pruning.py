"""Which trials are hopeless."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libs.contracts.searching import Pruner, SweepSpec
from services.sweeps.core import curves, optuna_study
from services.sweeps.core.state import Sweep, Trial

if TYPE_CHECKING:
    from optuna.pruners import BasePruner

HOPELESS_CHANCE = 0.05
"""A trial that reaches what is looked for with less likelihood is given up."""
FEWEST_OTHERS = 3
"""Trials that have come as far before a median of them means anything."""


def judge(sweep: Sweep, trial: Trial) -> None:
    """Note on the trial what its latest report says of its prospects."""
    spec = sweep.spec
    if spec.last_step is not None and (spec.favourites or spec.pruner is Pruner.CURVE):
        trial.forecast = curves.forecast(trial.reports, spec.last_step)
    if spec.pruner is Pruner.NONE or trial.pruned or len(trial.reports) < spec.warmup_reports:
        return
    trial.hopeless = _by_curve(sweep, trial) if spec.pruner is Pruner.CURVE else _by_optuna(sweep, trial)


def _by_curve(sweep: Sweep, trial: Trial) -> str:
    """Its chance to reach what the sweep wants a curve to promise."""
    best = sweep.best()
    if trial.forecast is None or best is None or best[0] is trial:
        return ""
    wanted = (sweep.spec.give_up_below, sweep.spec.objective.target, best[1].value)
    bar = next(value for value in wanted if value is not None)
    likely = curves.chance(trial.forecast, bar, maximize=sweep.spec.objective.maximize)
    if likely >= HOPELESS_CHANCE:
        return ""
    return (
        f"comes to {trial.forecast.mean:.4g} ± {trial.forecast.deviation:.2g}: {bar:.4g} with a chance of {likely:.2%}"
    )


def _by_optuna(sweep: Sweep, trial: Trial) -> str:
    """What Optuna's pruner says; what it notes on the way is kept."""
    pruner = _pruner(sweep.spec)
    study = optuna_study.study_of(sweep)
    latest = trial.reports[-1]
    for other in sweep.trials:
        study.add_trial(optuna_study.standing(other, latest.step, judged=other is trial))
    hopeless = pruner.prune(study, study.get_trials(deepcopy=False)[trial.number])
    trial.marks = dict(study.get_trials(deepcopy=False)[trial.number].system_attrs)
    return f"{latest.value:.4g} at step {latest.step:g} is not enough for {sweep.spec.pruner}" if hopeless else ""


def _pruner(spec: SweepSpec) -> BasePruner:
    from optuna.pruners import HyperbandPruner, MedianPruner, SuccessiveHalvingPruner

    if spec.pruner is Pruner.MEDIAN:
        return MedianPruner(n_startup_trials=FEWEST_OTHERS, n_min_trials=FEWEST_OTHERS)
    if spec.pruner is Pruner.ASHA:
        return SuccessiveHalvingPruner(min_resource=spec.warmup_reports, reduction_factor=3)
    assert spec.last_step is not None, "checked at the gateway"
    return HyperbandPruner(min_resource=1, max_resource=int(spec.last_step), reduction_factor=3)
