"""What a reference means: a job, an array, a DAG or a sweep."""

from __future__ import annotations

import re

from libs.contracts.groups import ARRAY_PREFIX, DAG_PREFIX
from libs.contracts.read_models import GroupRow, JobRow, SweepRow
from services.gateway.adapters import group_queries
from services.gateway.adapters.database import TooFarBehind
from services.gateway.adapters.named import GROUP, JOB, SWEEP, Kind, N, by_id, like_named, recent_names
from services.gateway.adapters.tokens import Principal
from services.gateway.api.callers import require_tenant
from services.gateway.door import Gateway
from services.gateway.problems import Problem, not_found, shown, unavailable

_OWN_WRITE_WAIT_S = 5.0
"""What this gateway has accepted is waited for, also without `Prefer: wait`."""
_MEMBER = re.compile(r"(.+)\[([0-9]{1,9})\]")
_OF_GROUPS = (f"{ARRAY_PREFIX}-", f"{DAG_PREFIX}-")


async def find_job(gateway: Gateway, reference: str) -> JobRow:
    """The job that a reference means: its id, the beginning of its id, or its name; `ARRAY[7]` for one of an array.

    A job that was accepted a moment ago is waited for.

    Raises:
        Problem: 404, or 409 when the reference is ambiguous.
    """
    return await _member(gateway, reference) or await _find(gateway, JOB, reference)


async def find_group(gateway: Gateway, reference: str) -> GroupRow:
    """The array or the DAG that a reference means, as `find_job`.

    Raises:
        Problem: 404, or 409 when the reference is ambiguous.
    """
    return await _find(gateway, GROUP, reference)


async def own_job(gateway: Gateway, caller: Principal, reference: str) -> JobRow:
    """As `find_job`, of a job of a tenant that the caller's token is for.

    Raises:
        Problem: 403 when it is not; 404 and 409 as there.
    """
    row = await find_job(gateway, reference)
    require_tenant(caller, row.tenant)
    return row


async def find_sweep(gateway: Gateway, reference: str) -> SweepRow:
    """The sweep that a reference means, as `find_job`.

    Raises:
        Problem: 404, or 409 when the reference is ambiguous.
    """
    return await _find(gateway, SWEEP, reference)


async def find_job_or_group(gateway: Gateway, reference: str) -> JobRow | GroupRow | None:
    """What a reference means, an array or a DAG among it; a name that a job has means the job. None: nothing.

    Raises:
        Problem: 409 when the reference is ambiguous.
    """
    member = await _member(gateway, reference)
    if member is not None:
        return member
    if reference.startswith(_OF_GROUPS):
        return await _look(gateway, GROUP, reference) or await _look(gateway, JOB, reference)
    return await _look(gateway, JOB, reference) or await _look(gateway, GROUP, reference)


async def _member(gateway: Gateway, reference: str) -> JobRow | None:
    """The job of an array that `ARRAY[INDEX]` means."""
    named = _MEMBER.fullmatch(reference)
    group = await _look(gateway, GROUP, named[1]) if named is not None else None
    if named is None or group is None:
        return None
    index = int(named[2])
    return await gateway.database.read(lambda connection: group_queries.member(connection, group.id, index))


async def _find(gateway: Gateway, kind: Kind[N], reference: str) -> N:
    found = await _look(gateway, kind, reference)
    if found is not None:
        return found
    known = await gateway.database.read(lambda connection: recent_names(connection, kind))
    raise not_found(kind.word, reference, known)


async def _look(gateway: Gateway, kind: Kind[N], reference: str) -> N | None:
    row = await gateway.database.read(lambda connection: by_id(connection, kind, reference))
    arrival = await gateway.intake.arrival_of(reference) if row is None else None
    if row is None and arrival is not None:
        try:
            await gateway.database.wait_for(arrival + 1, _OWN_WRITE_WAIT_S)
        except TooFarBehind as error:
            raise unavailable(f"{kind.word} {reference} was accepted; {error}", 1) from None
        row = await gateway.database.read(lambda connection: by_id(connection, kind, reference))
    if row is not None:
        return row
    found = await gateway.database.read(lambda connection: like_named(connection, kind, reference))
    if len(found) > 1:
        ids = [candidate.id for candidate in found]
        detail = f'"{shown(reference)}" means {len(ids)} {kind.word}s: {", ".join(ids)}'
        raise Problem("conflict", detail, more={"candidates": ids})
    return found[0] if found else None
