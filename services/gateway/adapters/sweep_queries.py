"""Queries over sweeps, their trials and their learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from libs.contracts.read_models import SweepRow, SweepState, TrialRow
from services.gateway.adapters.named import SWEEP, by_id
from services.gateway.adapters.tables import jobs, reports, rows_of, sweeps, trials

_BEFORE = (None, -1)
"""The rows of a window from its first to the one before the current."""


@dataclass(frozen=True)
class TrialOfJob:
    """A trial with what its job is like."""

    row: TrialRow
    job_state: str | None
    priority: int | None


@dataclass(frozen=True)
class Told:
    """One report of the objective's metric by a trial."""

    number: int
    job_id: str
    step: float
    value: float
    time_s: float


def sweep(connection: sa.Connection, sweep_id: str) -> SweepRow | None:
    """One sweep by its id."""
    return by_id(connection, SWEEP, sweep_id)


def page(connection: sa.Connection, states: Sequence[SweepState], *, limit: int, after: int | None) -> list[SweepRow]:
    """One page of sweeps, newest first, from before the arrival offset `after` on; no states: all."""
    key = sweeps.c.arrived_offset
    query = sa.select(sweeps)
    if states:
        query = query.where(sweeps.c.state.in_([state.value for state in states]))
    if after is not None:
        query = query.where(key < after)
    return rows_of(SweepRow, connection.execute(query.order_by(key.desc()).limit(limit)))


def counts(connection: sa.Connection, sweep_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """{sweep id: {state: number}} of the trials that have been started."""
    query = (
        sa.select(trials.c.sweep_id, trials.c.state, sa.func.count())
        .where(trials.c.sweep_id.in_(sweep_ids))
        .group_by(trials.c.sweep_id, trials.c.state)
        .order_by(trials.c.sweep_id, trials.c.state)
    )
    found: dict[str, dict[str, int]] = {sweep_id: {} for sweep_id in sweep_ids}
    for sweep_id, state, number in connection.execute(query):
        found[sweep_id][state] = number
    return found


def trials_of(connection: sa.Connection, sweep_id: str) -> list[TrialOfJob]:
    """The sweep's trials by number, with the states of their jobs."""
    query = (
        sa.select(trials, jobs.c.state, jobs.c.priority)
        .select_from(trials.outerjoin(jobs, jobs.c.id == trials.c.job_id))
        .where(trials.c.sweep_id == sweep_id)
        .order_by(trials.c.number)
    )
    found = connection.execute(query).all()
    rows = rows_of(TrialRow, (values[:-2] for values in found))
    return [TrialOfJob(row, *values[-2:]) for row, values in zip(rows, found, strict=True)]


def curves(connection: sa.Connection, found: SweepRow, *, most: int) -> list[Told]:
    """The trials' reports of the objective, by trial and time.

    Args:
        most: points of each trial; a longer curve is thinned out evenly, and keeps its last.
    """
    told = _told(found)
    place = sa.func.row_number().over(partition_by=told.c.number, order_by=told.c.log_offset)
    total = sa.func.count().over(partition_by=told.c.number)
    placed = sa.select(told, place.label("place"), total.label("total")).subquery()
    every = (placed.c.total + most - 1) // most
    kept = ((placed.c.place - 1) % every == 0) | (placed.c.place == placed.c.total)
    query = sa.select(*(placed.c[name] for name in Told.__dataclass_fields__)).where(kept)
    return [Told(*values) for values in connection.execute(query.order_by(placed.c.number, placed.c.log_offset))]


def improvements(connection: sa.Connection, found: SweepRow) -> list[Told]:
    """The reports that were better than all before them, oldest first."""
    told = _told(found)
    gain = told.c.value if found.spec["objective"]["maximize"] else -told.c.value
    before = sa.func.max(gain).over(order_by=told.c.log_offset, rows=_BEFORE)
    compared = sa.select(told, gain.label("gain"), before.label("before")).subquery()
    better = compared.c.before.is_(None) | (compared.c.gain > compared.c.before)
    query = sa.select(*(compared.c[name] for name in Told.__dataclass_fields__)).where(better)
    return [Told(*values) for values in connection.execute(query.order_by(compared.c.log_offset))]


def _told(found: SweepRow) -> sa.Subquery:
    """Reports of the objective, but for steps that a later attempt repeats: those are no news to the sweep."""
    reached = sa.func.max(reports.c.step).over(
        partition_by=reports.c.job_id, order_by=reports.c.log_offset, rows=_BEFORE
    )
    of_objective = (
        sa.select(trials.c.number, reports, reached.label("reached"))
        .select_from(trials.join(reports, reports.c.job_id == trials.c.job_id))
        .where(trials.c.sweep_id == found.id, reports.c.name == found.spec["objective"]["metric"])
        .subquery()
    )
    is_news = of_objective.c.reached.is_(None) | (of_objective.c.step > of_objective.c.reached)
    return sa.select(of_objective).where(is_news).subquery()
