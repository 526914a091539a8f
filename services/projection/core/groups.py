"""Arrays and DAGs, as they were submitted."""

from __future__ import annotations

from libs.contracts.gateway import ArrayArrived, DagArrived
from libs.contracts.read_models import GroupRow
from services.projection.core.fold import At, on
from services.projection.core.rows import Rows


@on(ArrayArrived)
def array_arrived(rows: Rows, event: ArrayArrived, at: At) -> None:
    if rows.get(GroupRow, event.group_id) is not None:
        return
    rows.put(
        GroupRow(
            id=event.group_id,
            kind="array",
            name=event.spec.name,
            tenant=event.spec.tenant,
            user_name=event.spec.user,
            size=len(event.indices),
            first_index=event.indices[0],
            at_once=event.at_once,
            submitted_by=event.submitted_by,
            submitted_s=at.time_s,
            arrived_offset=at.offset,
        )
    )


@on(DagArrived)
def dag_arrived(rows: Rows, event: DagArrived, at: At) -> None:
    if rows.get(GroupRow, event.group_id) is not None:
        return
    first = event.jobs[0].spec
    rows.put(
        GroupRow(
            id=event.group_id,
            kind="dag",
            name=event.name,
            tenant=first.tenant,
            user_name=first.user,
            size=len(event.jobs),
            submitted_by=event.submitted_by,
            submitted_s=at.time_s,
            arrived_offset=at.offset,
        )
    )
