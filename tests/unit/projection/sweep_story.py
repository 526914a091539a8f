"""What the gateway, the sweeps service and agents say of a sweep."""

from __future__ import annotations

from typing import Any

from libs.contracts.agent import MetricsReported
from libs.contracts.gateway import JobArrived, SweepArrived
from libs.contracts.jobs import GpuRequest, JobSpec
from libs.contracts.reasons import Reason
from libs.contracts.searching import Objective, Parameter, Scale, SweepSpec, Value
from libs.contracts.sweeps import SweepEnded, TrialEnded, TrialPromoted, TrialPruned, TrialStarted
from libs.kernel.ids import short_id

SPACE = {"lr": Parameter(scale=Scale.FLOAT, low=1e-4, high=1.0, log=True)}


def sweep_spec(*, maximize: bool = True, target: float | None = 0.95, **fields: Any) -> SweepSpec:
    """Three trials of a script that reports its accuracy."""
    trial = JobSpec(name="train", command=["python", "train.py", "{lr}"], gpus=GpuRequest(count=1), user="ada")
    objective = Objective(metric="accuracy", maximize=maximize, target=target)
    return SweepSpec(**{"name": "digits", "trial": trial, "space": SPACE, "objective": objective, "trials": 3} | fields)


def sweep_arrived(sweep_id: str = "s", **fields: Any) -> SweepArrived:
    return SweepArrived(sweep_id=sweep_id, spec=sweep_spec(**fields), submitted_by="ada")


def job_of(number: int, sweep_id: str = "s") -> str:
    """Id of the trial's job."""
    return short_id("j", f"{sweep_id}/{number}")


def trial(number: int, sweep_id: str = "s", **parameters: Value) -> list[TrialStarted | JobArrived]:
    """A trial is started and its job submitted."""
    spec = JobSpec(name=f"digits-{number}", command=["x"], gpus=GpuRequest(count=1), priority=2)
    job_id, tried = job_of(number, sweep_id), parameters or {"lr": 0.1 * (number + 1)}
    return [
        TrialStarted(sweep_id=sweep_id, number=number, job_id=job_id, parameters=tried),
        JobArrived(job_id=job_id, spec=spec, submitted_by="ada"),
    ]


def report(number: int, step: float, accuracy: float, *, attempt: int = 1, **more: float) -> MetricsReported:
    values = {"accuracy": accuracy, **more}
    return MetricsReported(job_id=job_of(number), attempt=attempt, node_id="n1", step=step, values=values)


def because(code: str, message: str) -> Reason:
    return Reason(code=code, message=message)


def promoted(number: int) -> TrialPromoted:
    why = because("MostPromising", "comes to 0.97 ± 0.01")
    return TrialPromoted(sweep_id="s", number=number, job_id=job_of(number), priority=3, reason=why)


def pruned(number: int) -> TrialPruned:
    why = because("Hopeless", "comes to 0.5 ± 0.1")
    return TrialPruned(sweep_id="s", number=number, job_id=job_of(number), step=3.0, value=0.4, reason=why)


def trial_ended(number: int, outcome: str, value: float | None = None, reports: int = 0) -> TrialEnded:
    return TrialEnded(sweep_id="s", number=number, job_id=job_of(number), outcome=outcome, value=value, reports=reports)


def sweep_ended(outcome: str, best_trial: int | None = None, best_value: float | None = None) -> SweepEnded:
    return SweepEnded(
        sweep_id="s",
        outcome=outcome,
        best_trial=best_trial,
        best_value=best_value,
        best_parameters={} if best_trial is None else {"lr": 0.1 * (best_trial + 1)},
        reason=because("Over", "it is over"),
    )
