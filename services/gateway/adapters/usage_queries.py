"""Queries over GPU time: how much each tenant, user or job used within a stretch of time, and what has come of it."""

from __future__ import annotations

from enum import StrEnum

import sqlalchemy as sa

from services.gateway.adapters.tables import holdings, jobs
from services.gateway.models.answers import Use


class UsedBy(StrEnum):
    """What GPU time is summed over."""

    TENANT = "tenant"
    USER = "user"
    JOB = "job"
    GPU_TYPE = "gpu-type"


_KEYS: dict[UsedBy, sa.ColumnElement[str]] = {
    UsedBy.TENANT: jobs.c.tenant,
    UsedBy.USER: jobs.c.user_name,
    UsedBy.JOB: jobs.c.id,
    UsedBy.GPU_TYPE: holdings.c.gpu_type,
}


def used(connection: sa.Connection, by: UsedBy, since_s: float, until_s: float) -> list[Use]:
    """What was used from `since_s` to `until_s`, seconds since the epoch; the most GPU time first.

    What lasts is counted up to `until_s`.
    """
    found: dict[str, Use] = {}
    for key, name, state, number, gpu_s in connection.execute(_held(by, since_s, until_s)):
        use = found.setdefault(key, _nothing(key, name if by is UsedBy.JOB else "", by))
        use.jobs += number
        use.gpu_s += gpu_s
        use.by_state[state] = gpu_s
    if by is not UsedBy.GPU_TYPE:
        for key, name, number, wait_s in connection.execute(_waited(by, since_s, until_s)):
            use = found.setdefault(key, _nothing(key, name if by is UsedBy.JOB else "", by))
            use.jobs, use.wait_s = number, wait_s
    return sorted(found.values(), key=lambda use: (-use.gpu_s, use.key))


def _nothing(key: str, name: str, by: UsedBy) -> Use:
    wait_s = None if by is UsedBy.GPU_TYPE else 0.0
    return Use(key=key, name=name, jobs=0, gpu_s=0.0, by_state={}, wait_s=wait_s)


def _held(by: UsedBy, since_s: float, until_s: float) -> sa.Select[tuple[str, str, str, int, float]]:
    """(key, a name, state, jobs, GPU seconds) of the stretches in which GPUs were held."""
    end_s = sa.func.coalesce(holdings.c.end_s, until_s)
    held_s = _earlier(end_s, until_s) - _later(holdings.c.begin_s, since_s)
    key = _KEYS[by]
    return (
        sa.select(
            key,
            sa.func.min(jobs.c.name),
            jobs.c.state,
            sa.func.count(sa.distinct(holdings.c.job_id)),
            sa.func.sum(holdings.c.gpus * held_s),
        )
        .select_from(holdings.join(jobs, jobs.c.id == holdings.c.job_id))
        .where(holdings.c.begin_s < until_s, sa.or_(holdings.c.end_s.is_(None), holdings.c.end_s > since_s))
        .group_by(key, jobs.c.state)
    )


def _waited(by: UsedBy, since_s: float, until_s: float) -> sa.Select[tuple[str, str, int, float]]:
    """(key, a name, jobs, seconds) of all jobs that had arrived and not ended: how long they waited to run at first."""
    key = _KEYS[by]
    began_s = _earlier(sa.func.coalesce(jobs.c.first_started_s, jobs.c.finished_s, until_s), until_s)
    wait_s = _later(began_s - _later(jobs.c.submitted_s, since_s), 0.0)
    ended_s = sa.func.coalesce(jobs.c.finished_s, until_s)
    return (
        sa.select(key, sa.func.min(jobs.c.name), sa.func.count(), sa.func.sum(wait_s))
        .where(jobs.c.submitted_s < until_s, ended_s > since_s)
        .group_by(key)
    )


def _earlier(one: sa.ColumnElement[float], other: float) -> sa.ColumnElement[float]:
    return sa.case((one < other, one), else_=sa.literal(other))


def _later(one: sa.ColumnElement[float], other: float) -> sa.ColumnElement[float]:
    return sa.case((one > other, one), else_=sa.literal(other))
