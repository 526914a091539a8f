"""The next trial: its parameters, and the job that tries them."""

from __future__ import annotations

import re

import msgspec

from libs.contracts.gateway import JobArrived
from libs.contracts.jobs import JobSpec
from libs.contracts.searching import PARAMETERS_VARIABLE, SweepSpec, Value
from libs.contracts.sweeps import TrialStarted
from libs.kernel.ids import short_id
from libs.kernel.machine import Turn
from services.sweeps.core import optuna_study
from services.sweeps.core.state import State, Sweep


def fill(sweep: Sweep, turn: Turn[State]) -> None:
    """Start trials while the sweep has some left and may have more under way."""
    first = len(sweep.trials)
    most = sweep.spec.at_once or sweep.spec.trials
    last = min(sweep.spec.trials, first + most - len(sweep.under_way))
    if first >= last:
        return
    for number, parameters in enumerate(optuna_study.proposals(sweep, last - first), first):
        job_id = short_id("j", f"{sweep.sweep_id}/{number}")
        turn.emit(TrialStarted(sweep_id=sweep.sweep_id, number=number, job_id=job_id, parameters=parameters))
        job = trial_job(sweep.sweep_id, sweep.spec, number, parameters)
        turn.emit(JobArrived(job_id=job_id, spec=job, submitted_by=sweep.submitted_by))


def trial_job(sweep_id: str, spec: SweepSpec, number: int, parameters: dict[str, Value]) -> JobSpec:
    """The job of a trial: the template with the parameters in its command, environment and labels."""
    job = spec.trial
    known = {name: str(value) for name, value in parameters.items()}
    placeholder = re.compile("|".join(re.escape(f"{{{name}}}") for name in known))
    command = [placeholder.sub(lambda found: known[found.group()[1:-1]], word) for word in job.command]
    env = {PARAMETERS_VARIABLE: msgspec.json.encode(parameters).decode()}
    labels = {"sweep": sweep_id, "trial": str(number)}
    return msgspec.structs.replace(
        job,
        name=f"{spec.name[:56]}-{number}",
        command=command,
        env=job.env | env,
        labels=job.labels | labels,
    )
