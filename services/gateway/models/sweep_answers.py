"""What the gateway answers about sweeps. Times are seconds since the epoch, or since something that they name."""

from __future__ import annotations

from typing import Any

from libs.contracts.read_models import JobState, SweepState, TrialState
from libs.contracts.searching import Value
from services.gateway.models.answers import Answer


class SweepSubmitted(Answer):
    """A sweep that was accepted. The same for a repeated request."""

    id: str
    name: str
    tenant: str
    state: SweepState
    offset: int
    """Of its SweepArrived on the control topic."""
    url: str


class Sweep(Answer):
    """A sweep, as lists show it."""

    id: str
    name: str
    tenant: str
    user: str
    state: SweepState
    reason: str
    """CamelCase token: why it is in this state."""
    message: str
    metric: str
    direction: str
    """`maximize` or `minimize`."""
    target: float | None
    planned: int
    """Trials at most."""
    counts: dict[str, int]
    """{state: number} of the trials that have been started."""
    best_trial: int | None
    best_value: float | None
    best_parameters: dict[str, Value]
    submitted_s: float
    ended_s: float | None
    version: int
    """Offset of the last event that changed it, what concerns a trial alone aside."""


class Trial(Answer):
    """One trial of a sweep."""

    number: int
    job_id: str
    parameters: dict[str, Value]
    state: TrialState
    job_state: JobState | None
    """null before its job is known."""
    priority: int | None
    favourite: bool
    """It goes before the others now, because it promises most."""
    reason: str
    """CamelCase token: why it was promoted, demoted or pruned last; empty when it never was."""
    message: str
    reports: int
    best_value: float | None
    last_step: float | None
    last_value: float | None
    started_s: float
    ended_s: float | None


class SweepDetail(Sweep):
    """A sweep with all its trials."""

    spec: dict[str, Any]
    submitted_by: str
    trials: list[Trial]


class SweepList(Answer):
    """One page of sweeps."""

    items: list[Sweep]
    next_cursor: str | None


class CurvePoint(Answer):
    """One report of the objective's metric."""

    step: float
    value: float
    time_s: float
    """Since the arrival of the sweep."""


class TrialCurve(Answer):
    """A trial's learning curve; a step that an attempt repeats is left out."""

    number: int
    job_id: str
    points: list[CurvePoint]


class Improvement(Answer):
    """A report that was better than all before it, of whichever trial."""

    number: int
    """Of the trial."""
    step: float
    value: float
    time_s: float
    """Since the arrival of the sweep."""


class SweepCurves(Answer):
    """What the trials of a sweep have reported of its objective."""

    sweep_id: str
    metric: str
    direction: str
    target: float | None
    trials: list[TrialCurve]
    best: list[Improvement]
    """The best value so far, over time."""


SWEEP_ANSWERS: tuple[type[Answer], ...] = (SweepCurves, SweepDetail, SweepList, SweepSubmitted)
