"""What the sweeps service knows: every sweep that is not over, its trials and what they have reported."""

from __future__ import annotations

from typing import Any

import msgspec

from libs.contracts.searching import SweepSpec, Value
from libs.kernel.service import InvariantViolated


class Report(msgspec.Struct, frozen=True, array_like=True):
    """One value of the objective's metric."""

    step: float
    value: float


class Forecast(msgspec.Struct, frozen=True):
    """What a trial's curve comes to at the last step."""

    mean: float
    deviation: float
    """One standard deviation."""


class Trial(msgspec.Struct, kw_only=True):
    """One choice of parameters, and the job that tries it."""

    number: int
    job_id: str
    parameters: dict[str, Value]
    reports: list[Report] = []
    """By step, each step once."""
    forecast: Forecast | None = None
    """None: too few reports, or it is not asked for."""
    marks: dict[str, Any] = {}
    """What Optuna's pruner has noted of the trial."""
    hopeless: str = ""
    """Why the trial should be given up; empty: it should not."""
    favourite: bool = False
    pruned: bool = False
    """It was given up; its job may not be over yet."""
    outcome: str = ""
    """As in TrialEnded; empty: under way."""


class Sweep(msgspec.Struct, kw_only=True):
    """One sweep."""

    sweep_id: str
    spec: SweepSpec
    submitted_by: str
    trials: list[Trial] = []
    """By number."""
    ended: bool = False
    """SweepEnded was said; trials may still be on their way out."""

    @property
    def under_way(self) -> list[Trial]:
        """The trials with jobs that are not over."""
        return [trial for trial in self.trials if not trial.outcome]

    def gain(self, value: float) -> float:
        """The value so that more is better."""
        return value if self.spec.objective.maximize else -value

    def best_of(self, trial: Trial) -> Report | None:
        """The trial's best report, the first of equals."""
        return max(trial.reports, key=lambda report: self.gain(report.value), default=None)

    def best(self) -> tuple[Trial, Report] | None:
        """The best report of all, the first trial's of equals."""
        found = [(trial, report) for trial in self.trials if (report := self.best_of(trial)) is not None]
        return max(found, key=lambda pair: self.gain(pair[1].value), default=None)

    def reaches(self, value: float) -> bool:
        """Whether the value is as good as what is looked for."""
        target = self.spec.objective.target
        return target is not None and self.gain(value) >= self.gain(target)


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Of which sweep a job is a trial."""

    sweep_id: str
    number: int


class State(msgspec.Struct, kw_only=True):
    """Initially empty."""

    sweeps: dict[str, Sweep] = {}
    """{sweep id: sweep}, until it has ended and its last trial is over."""
    jobs: dict[str, Place] = {}
    """{job id: its place} of the trials under way."""
    groups: dict[str, dict[str, None]] = {}
    """{id of an array or a DAG: ids of its jobs that have not ended, in order of arrival}, while there are any."""
    group_of: dict[str, str] = {}
    """{job id: id of its array or DAG}, of the jobs that have not ended."""

    def trial_of(self, job_id: str) -> tuple[Sweep, Trial] | None:
        """The trial under way that the job is, None for a job of no sweep."""
        place = self.jobs.get(job_id)
        if place is None:
            return None
        sweep = self.sweeps[place.sweep_id]
        return sweep, sweep.trials[place.number]


def check(state: State) -> None:
    """Raises InvariantViolated when trials or groups and their jobs do not belong together."""
    members = {job_id: group_id for group_id, jobs in state.groups.items() for job_id in jobs}
    if members != state.group_of:
        job_id, group_id = sorted(members.items() ^ state.group_of.items())[0]
        raise InvariantViolated(f"job {job_id} and its array or DAG {group_id} disagree")
    under_way = {
        trial.job_id: Place(sweep.sweep_id, trial.number)
        for sweep in state.sweeps.values()
        for trial in sweep.under_way
    }
    if under_way != state.jobs:
        odd = sorted(under_way.items() ^ state.jobs.items())[0]
        raise InvariantViolated(f"job {odd[0]} and trial {odd[1].number} of sweep {odd[1].sweep_id} disagree")
    for sweep in state.sweeps.values():
        _check_sweep(sweep)


def _check_sweep(sweep: Sweep) -> None:
    numbers = [trial.number for trial in sweep.trials]
    if numbers != list(range(len(numbers))) or len(numbers) > sweep.spec.trials:
        raise InvariantViolated(f"sweep {sweep.sweep_id} of {sweep.spec.trials} trials has the trials {numbers}")
    favourites = [trial.number for trial in sweep.under_way if trial.favourite]
    if len(favourites) > sweep.spec.favourites:
        raise InvariantViolated(f"sweep {sweep.sweep_id} has favourites {favourites}, at most {sweep.spec.favourites}")
    if sweep.ended and not sweep.under_way:
        raise InvariantViolated(f"sweep {sweep.sweep_id} is over and not forgotten")
