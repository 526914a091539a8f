"""Which job or sweep a reference means."""

from __future__ import annotations

from libs.contracts.read_models import JobRow, SweepRow
from services.gateway.adapters.database import TooFarBehind
from services.gateway.adapters.named import JOB, SWEEP, Kind, N, by_id, like_named, recent_names
from services.gateway.adapters.tokens import Principal
from services.gateway.api.common import require_tenant
from services.gateway.door import Gateway
from services.gateway.problems import Problem, not_found, shown, unavailable

_OWN_WRITE_WAIT_S = 5.0
"""What this gateway has accepted is waited for, also without `Prefer: wait`."""


async def find_job(gateway: Gateway, reference: str) -> JobRow:
    """The job that a reference means: its id, the beginning of its id, or its name.

    A job that was accepted a moment ago is waited for.

    Raises:
        Problem: 404, or 409 when the reference is ambiguous.
    """
    return await _find(gateway, JOB, reference)


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


async def _find(gateway: Gateway, kind: Kind[N], reference: str) -> N:
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
    if len(found) == 1:
        return found[0]
    if found:
        ids = [candidate.id for candidate in found]
        detail = f'"{shown(reference)}" means {len(ids)} {kind.word}s: {", ".join(ids)}'
        raise Problem("conflict", detail, more={"candidates": ids})
    known = await gateway.database.read(lambda connection: recent_names(connection, kind))
    raise not_found(kind.word, reference, known)
