"""Queries over failed attempts: the columns of Table 6 of the Philly study (ATC'19), by what they have in common."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

import sqlalchemy as sa

from libs.contracts.jobs import JobSpec
from services.gateway.adapters.tables import attempts, failure_notices, jobs
from services.gateway.models.answers import FailureGroup

WARNED_S = 86_400.0
"""How long a user is warned of causes of which the user's jobs fail again and again."""


class FailedBy(StrEnum):
    """What failed attempts are put together by."""

    REASON = "reason"
    CAUSE = "cause"
    USER = "user"
    TENANT = "tenant"
    NODE = "node"
    INPUT = "input"


class Trial(NamedTuple):
    """A failed attempt."""

    job_id: str
    user: str
    tenant: str
    reason: str
    cause: str
    node: str
    inputs: tuple[str, ...]
    gpus: int
    failed_after_s: float
    gpu_s: float

    def keys(self, by: FailedBy) -> tuple[str, ...]:
        """Of the groups that it belongs to: one, but by input."""
        if by is FailedBy.INPUT:
            return self.inputs
        return (str(getattr(self, by.value)),)


def failed(connection: sa.Connection, since_s: float, until_s: float) -> list[Trial]:
    """The attempts that failed from `since_s` to `until_s`, seconds since the epoch."""
    query = (
        sa.select(
            attempts.c.job_id,
            jobs.c.user_name,
            jobs.c.tenant,
            attempts.c.failure,
            attempts.c.cause,
            attempts.c.failed_on,
            jobs.c.spec,
            attempts.c.placement,
            attempts.c.placed_s,
            attempts.c.ended_s,
            attempts.c.gpu_s,
        )
        .select_from(attempts.join(jobs, jobs.c.id == attempts.c.job_id))
        .where(attempts.c.outcome == "failed", attempts.c.ended_s >= since_s, attempts.c.ended_s < until_s)
    )
    return [
        Trial(
            row.job_id,
            row.user_name,
            row.tenant,
            row.failure or "",
            row.cause,
            row.failed_on,
            tuple(dict.fromkeys(row.spec.get("data", ()))),
            sum(len(task["gpu_indices"]) for task in row.placement),
            row.ended_s - row.placed_s,
            row.gpu_s,
        )
        for row in connection.execute(query)
    ]


def grouped(trials: Iterable[Trial], by: FailedBy) -> list[FailureGroup]:
    """The groups, the one with the most attempts first."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        for key in trial.keys(by):
            groups.setdefault(key, []).append(trial)
    return sorted((_group(key, members) for key, members in groups.items()), key=lambda g: (-g.trials, g.key))


def _group(key: str, trials: Sequence[Trial]) -> FailureGroup:
    times = sorted(trial.failed_after_s for trial in trials)
    return FailureGroup(
        key=key,
        trials=len(trials),
        jobs=len({trial.job_id for trial in trials}),
        users=len({trial.user for trial in trials}),
        p50_s=_percentile(times, 50),
        p90_s=_percentile(times, 90),
        p95_s=_percentile(times, 95),
        gpus_1=sum(trial.gpus <= 1 for trial in trials),
        gpus_2_to_4=sum(1 < trial.gpus <= 4 for trial in trials),
        gpus_above_4=sum(trial.gpus > 4 for trial in trials),
        gpu_s=sum(trial.gpu_s for trial in trials),
    )


def _percentile(ascending: Sequence[float], percent: int) -> float:
    """The smallest value that so many in a hundred do not exceed."""
    return ascending[max(0, math.ceil(len(ascending) * percent / 100) - 1)]


def warnings(connection: sa.Connection, spec: JobSpec, now_s: float) -> list[str]:
    """What the user of a job should know before it runs: sentences."""
    c = failure_notices.c
    of_user = sa.and_(c.kind == "user", c.about == spec.user, c.said_s > now_s - WARNED_S)
    of_input = sa.and_(c.kind == "input", c.about.in_(spec.data), c.holds)
    query = sa.select(c.kind, c.about, c.message).where(sa.or_(of_user, of_input)).order_by(c.kind, c.about)
    return [f"{row.kind} {row.about}: {row.message}" for row in connection.execute(query)]


def in_quarantine(connection: sa.Connection) -> list[str]:
    """The inputs that are in quarantine, ascending."""
    c = failure_notices.c
    query = sa.select(c.about).where(c.kind == "input", c.holds).order_by(c.about)
    return [row.about for row in connection.execute(query)]
