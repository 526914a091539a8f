"""What a job waits for, as it goes on the log: by id, and with its end where it has ended."""

from __future__ import annotations

from collections.abc import Container, Sequence

from libs.contracts.groups import Dependency
from libs.contracts.read_models import FINAL_STATES, GroupRow, JobRow, JobState
from services.gateway.adapters import group_queries
from services.gateway.adapters.intake import CONTROL
from services.gateway.adapters.named import GROUP, JOB, recent_names
from services.gateway.api.common import caught_up
from services.gateway.api.finding import find_job_or_group
from services.gateway.core import group_views
from services.gateway.door import Gateway
from services.gateway.models.group_request import After
from services.gateway.problems import Problem, nearest


async def resolved(
    gateway: Gateway, wanted: Sequence[After], pointer: str, known: Container[str] = ()
) -> list[Dependency]:
    """The dependencies that a request names.

    The read models are waited for: admission remembers only the latest ends, so that an older one has to stand in the
    request.

    Args:
        pointer: the list's place in the request.
        known: names that need no look: they are left out.

    Raises:
        Problem: 422 for one that does not exist, 409 for one that is ambiguous, 503: the read models are behind.
    """
    asked = [(number, after) for number, after in enumerate(wanted) if after.on not in known]
    if not asked:
        return []
    await caught_up(gateway, await gateway.bus.end_offset(CONTROL))
    found: dict[str, Dependency] = {}
    for number, after in asked:
        row = await find_job_or_group(gateway, after.on)
        if row is None:
            raise await _unknown(gateway, after.on, f"{pointer}/{number}")
        found[row.id] = Dependency(on=row.id, condition=after.condition, succeeded=await _succeeded(gateway, row))
    return list(found.values())


async def _succeeded(gateway: Gateway, row: JobRow | GroupRow) -> bool | None:
    if isinstance(row, JobRow):
        return row.state is JobState.SUCCEEDED if row.state in FINAL_STATES else None
    counts = await gateway.database.read(lambda connection: group_queries.counts(connection, [row.id]))
    return group_views.succeeded(row.size, counts[row.id])


async def _unknown(gateway: Gateway, reference: str, pointer: str) -> Problem:
    names = await gateway.database.read(
        lambda connection: [*recent_names(connection, JOB), *recent_names(connection, GROUP)]
    )
    near = nearest(reference, names)
    message = f'there is no job, array or DAG "{reference}"' + (f' (did you mean "{near}"?)' if near else "")
    error = {"pointer": pointer, "in": "body", "message": message, "value": reference}
    return Problem("invalid", f"{pointer}: {message}", errors=[error], did_you_mean=near)
