"""A sweep as an Optuna study, made anew for each question: the study keeps nothing that the state has not.

What is drawn follows from the sweep's seed and the trial's number alone, so a replay draws it again (with the same
version of Optuna: another may propose other parameters from the same history).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from libs.contracts.searching import Parameter, Sampler, Scale, SweepSpec, Value
from services.sweeps.core.state import Sweep, Trial

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial


def study_of(sweep: Sweep) -> Study:
    """A study without trials."""
    import optuna  # here, because it takes a second, and most processes that know this service never search

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    directions = optuna.study.StudyDirection
    direction = directions.MAXIMIZE if sweep.spec.objective.maximize else directions.MINIMIZE
    return optuna.create_study(study_name=sweep.sweep_id, direction=direction)


def proposals(sweep: Sweep, count: int) -> list[dict[str, Value]]:
    """Parameters for the next `count` trials, from what the others have shown so far."""
    study = study_of(sweep)
    distributions = {name: _distribution(parameter) for name, parameter in sweep.spec.space.items()}
    if sweep.spec.sampler is not Sampler.RANDOM:
        study.add_trials([_known(sweep, trial, distributions) for trial in sweep.trials])
    found = []
    for number in range(len(sweep.trials), len(sweep.trials) + count):
        study.sampler = _sampler(sweep.spec, number)
        found.append({name: _plain(value) for name, value in study.ask(distributions).params.items()})
    return found


def _plain(value: Value) -> Value:
    """Of a very narrow range Optuna returns NumPy's floats."""
    return float(value) if isinstance(value, float) else value


def _sampler(spec: SweepSpec, number: int) -> BaseSampler:
    """Draws the parameters of the trial with this number."""
    from optuna.samplers import RandomSampler, TPESampler

    seed = int.from_bytes(hashlib.blake2b(f"{spec.seed}/{number}".encode(), digest_size=4).digest())
    if spec.sampler is Sampler.RANDOM:
        return RandomSampler(seed=seed)
    return TPESampler(seed=seed, constant_liar=True)  # trials under way count as poor: the next looks elsewhere


def _distribution(parameter: Parameter) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    low, high, log = parameter.low, parameter.high, parameter.log
    if parameter.scale is Scale.CHOICE:
        return CategoricalDistribution(parameter.choices)
    if parameter.scale is Scale.INT:
        return IntDistribution(int(low), int(high), log=log, step=int(parameter.step or 1))
    return FloatDistribution(low, high, log=log, step=parameter.step)


def _known(sweep: Sweep, trial: Trial, distributions: dict[str, BaseDistribution]) -> FrozenTrial:
    """The trial with all that it has shown, for a sampler."""
    from optuna.trial import TrialState, create_trial

    best = sweep.best_of(trial)
    state = TrialState.RUNNING
    if trial.outcome or trial.pruned:
        state = TrialState.PRUNED if best is not None else TrialState.FAIL
    if trial.outcome == "completed" and best is not None:
        state = TrialState.COMPLETE
    return create_trial(
        state=state,
        value=best.value if state is TrialState.COMPLETE and best is not None else None,
        params=trial.parameters,
        distributions=distributions,
        intermediate_values={int(report.step): report.value for report in trial.reports},
    )


def standing(trial: Trial, step: float, *, judged: bool) -> FrozenTrial:
    """The trial as it stood at a step, for a pruner.

    Optuna's median is taken over completed trials. Here most are under way together, so one that has come to the
    step counts as completed there.

    Args:
        trial: this one.
        step: of the report that is judged.
        judged: whether the trial itself is to be judged.
    """
    from optuna.trial import TrialState, create_trial

    value = next((report.value for report in reversed(trial.reports) if report.step == step), None)
    completed = value is not None and not judged
    return create_trial(
        state=TrialState.COMPLETE if completed else TrialState.RUNNING,
        value=value if completed else None,
        intermediate_values={} if value is None else {int(step): value},
        system_attrs=trial.marks,
    )
