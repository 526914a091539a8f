"""What the sweeps service decides: which trials are run, favoured and given up.

It makes users' requests as well (`JobArrived`, `JobPriorityChanged`, `JobCancelRequested`): a trial is a job like
any other, and the record's source says where it comes from.
"""

from __future__ import annotations

from libs.contracts.base import Event, event
from libs.contracts.reasons import Reason
from libs.contracts.searching import Value

OWNER = "sweeps"


@event("trial.started.v1", owner=OWNER, subject="sweep_id")
class TrialStarted(Event, frozen=True, kw_only=True):
    """The sweep has chosen parameters; the job that tries them is submitted with the same cause."""

    sweep_id: str
    number: int
    """From 0, in the order of their start."""
    job_id: str
    parameters: dict[str, Value]


@event("trial.promoted.v1", owner=OWNER, subject="sweep_id")
class TrialPromoted(Event, frozen=True, kw_only=True):
    """The trial is among the most promising and goes before the others: its job's priority is raised."""

    sweep_id: str
    number: int
    job_id: str
    priority: int
    reason: Reason


@event("trial.demoted.v1", owner=OWNER, subject="sweep_id")
class TrialDemoted(Event, frozen=True, kw_only=True):
    """Others promise more by now: the trial's job has its own priority again."""

    sweep_id: str
    number: int
    job_id: str
    priority: int
    reason: Reason


@event("trial.pruned.v1", owner=OWNER, subject="sweep_id")
class TrialPruned(Event, frozen=True, kw_only=True):
    """The trial is hopeless: its job is to be cancelled."""

    sweep_id: str
    number: int
    job_id: str
    step: float
    value: float
    reason: Reason


@event("trial.ended.v1", owner=OWNER, subject="sweep_id")
class TrialEnded(Event, frozen=True, kw_only=True):
    """The trial's job is over."""

    sweep_id: str
    number: int
    job_id: str
    outcome: str
    """`completed`, `pruned`, `failed` (its job failed or was rejected), or `stopped` (from outside, or by the end of
    the sweep)."""
    value: float | None
    """The best that it reported; None: nothing."""
    reports: int


@event("sweep.ended.v1", owner=OWNER, subject="sweep_id")
class SweepEnded(Event, frozen=True, kw_only=True):
    """No more trials are started; those under way are cancelled."""

    sweep_id: str
    outcome: str
    """`target_reached`, `exhausted` (all trials are over) or `cancelled`."""
    best_trial: int | None
    """None: no trial reported anything."""
    best_value: float | None
    best_parameters: dict[str, Value]
    reason: Reason
