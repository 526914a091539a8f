"""A move begins: the job holds its destination, too, and its next attempt is started there."""

from __future__ import annotations

from libs.contracts.cluster import TaskPlacement, width_of
from libs.contracts.placement import DestinationReserved
from libs.contracts.reasons import Number, Reason
from libs.kernel.machine import Turn
from libs.kernel.words import counted
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job, Move
from services.placement.core.lifecycle import ports
from services.placement.core.lifecycle.orders import launch_orders
from services.placement.core.lifecycle.plan import carries_out, occupied, tries
from services.placement.core.lifecycle.suspending.yielding import beside_guests
from services.placement.core.lifecycle.table import machine
from services.placement.core.promises import shortage


def reserved(job: Job, migration_id: str, gang: list[TaskPlacement], code: str) -> DestinationReserved:
    """The decision that the job's next attempt is started there; `code` says why."""
    gpus = width_of(gang)
    numbers: dict[str, Number] = {"gpus": gpus, "nodes": len(gang), "nodes_before": len(job.gang)}
    where = ", ".join(task.node_id for task in gang)
    message = f"is to go on on {where}"
    if gpus != job.width:
        numbers["gpus_before"] = job.width
        message += f" with {counted(gpus, 'GPU')} instead of {job.width}"
    return DestinationReserved(
        migration_id=migration_id,
        job_id=job.job_id,
        from_attempt=job.attempt,
        attempt=job.next_attempt,
        gang=gang,
        reason=Reason(code=code, message=message, numbers=numbers),
    )


@tries(DestinationReserved)
def no_room(cell: Cell, event: DestinationReserved) -> str | None:
    """The GPUs must be free, but for those that the job has already: a resize is a move onto some of them."""
    why_not = occupied(cell, event.gang, [event.job_id])
    no_port = ports.none_left(cell, event.gang)
    return why_not or (no_port.message if no_port is not None else None) or _shortage(cell, event)


def _shortage(cell: Cell, event: DestinationReserved) -> str | None:
    return shortage(cell, [(cell.jobs[event.job_id], event.gang)])


@carries_out(DestinationReserved)
def reserve(cell: Cell, event: DestinationReserved, turn: Turn[Cell]) -> None:
    """Have the processes that are to take over launched."""
    job = cell.jobs[event.job_id]
    staying = beside_guests(cell, job, event.gang, turn)
    orders = launch_orders(cell, job, event.gang, event.attempt, staying, restores=True)
    turn.emit(event)
    for order in orders:
        turn.emit(order)


@machine.evolves(DestinationReserved)
def destination_reserved(cell: Cell, event: DestinationReserved, now_s: float) -> None:
    job = cell.jobs[event.job_id]
    job.move = Move(
        migration_id=event.migration_id,
        attempt=event.attempt,
        gang=event.gang,
        since_s=now_s,
        reason=event.reason,
        meeting=ports.take(cell, event.gang),
    )
    job.last_attempt = event.attempt
    cell.hold(job, event.gang)
    cell.begins(job.job_id, now_s)
