"""A move begins."""

from __future__ import annotations

from libs.contracts.migration import MigrationStarted
from libs.contracts.placement import DestinationReserved
from libs.contracts.reasons import Reason
from libs.kernel.ids import move_id
from libs.kernel.machine import Turn
from services.migration.core.state import Move, State
from services.migration.core.table import machine


def start(
    state: State,
    job_id: str,
    reason: Reason,
    turn: Turn[State],
    *,
    to_nodes: list[str],
    must_leave: bool,
    gpus: int | None = None,
) -> None:
    """Ask placement to move the job, or to give it so many GPUs."""
    assignment = state.assignments[job_id]
    turn.emit(
        MigrationStarted(
            migration_id=move_id(f"{job_id}/{assignment.attempt}/{turn.cause_id}"),
            job_id=job_id,
            attempt=assignment.attempt,
            from_nodes=assignment.nodes,
            to_nodes=to_nodes,
            must_leave=must_leave,
            gpus=gpus,
            reason=reason,
        )
    )


@machine.evolves(MigrationStarted)
def move_started(state: State, event: MigrationStarted, now_s: float) -> None:
    state.moves[event.job_id] = Move(
        migration_id=event.migration_id,
        attempt=event.attempt,
        from_nodes=event.from_nodes,
        must_leave=event.must_leave,
    )


@machine.evolves(DestinationReserved)
def destination_reserved(state: State, event: DestinationReserved, now_s: float) -> None:
    move = state.moves.get(event.job_id)
    if move is not None and move.migration_id == event.migration_id:
        move.reserved = event.gang
