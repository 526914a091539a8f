"""Jobs that are submitted together, arrays and DAGs, and what a job waits for before it may start."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from libs.contracts.jobs import JobSpec

ARRAY_PREFIX = "a"
"""Ids of arrays are `a-…`."""
DAG_PREFIX = "d"
"""Ids of DAGs are `d-…`."""


class Condition(StrEnum):
    """How something must have ended, so that what waits for it may start."""

    OK = "ok"
    """It has succeeded; an array or a DAG: all of its jobs have."""
    ANY = "any"
    """It has ended, in whatever way."""
    FAIL = "fail"
    """It has ended without success: failed, cancelled or rejected; an array or a DAG: at least one of its jobs has."""


class Dependency(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a job waits for."""

    on: str
    """Id of a job, an array or a DAG that was accepted before, or of a job of the same DAG."""
    condition: Condition = Condition.OK
    succeeded: bool | None = None
    """How it had ended when the request was accepted, by the read models; None: it had not."""


class GroupPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where in its array or DAG a job stands."""

    group_id: str
    index: int
    """Of an array: the number that the user gave. Of a DAG: from 0, each job behind those that it waits for."""


class GroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """One job of a DAG."""

    job_id: str
    spec: JobSpec
    after: list[Dependency] = []


class GroupChange(StrEnum):
    """What a user may ask of all jobs of an array or a DAG at once."""

    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    PRIORITY = "priority"
