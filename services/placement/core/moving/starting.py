"""A job is asked to move: where to, and can it move live?"""

from __future__ import annotations

from libs.contracts.gateway import SLICING_POLICIES
from libs.contracts.migration import MigrationStarted
from libs.contracts.placement import DestinationReserved, MoveAbandoned
from libs.contracts.reasons import Number, Reason
from libs.kernel.machine import Turn
from services.placement.core import gangs
from services.placement.core.attempts import active
from services.placement.core.orders import launch_orders
from services.placement.core.placing import preempt, use_port
from services.placement.core.policies import QUEUE_POLICIES
from services.placement.core.state import Job, Move, State
from services.placement.core.table import machine


@machine.decides(MigrationStarted)
def move_or_preempt(state: State, event: MigrationStarted, turn: Turn[State]) -> None:
    job = active(state, event.job_id, event.attempt)
    if job is None or not job.lasts or job.cancellation is not None or job.move is not None:
        return
    obstacle = _obstacle(state, job)
    fit = None if obstacle else _destination(state, job, event)
    if fit is not None:
        _reserve(state, job, event, fit, turn)
    elif event.must_leave:
        preempt(state, job, event.reason, turn)
    else:
        reason = obstacle or Reason(code="NoRoom", message="there are no free GPUs for it where it was to go")
        turn.emit(
            MoveAbandoned(migration_id=event.migration_id, job_id=job.job_id, from_attempt=job.attempt, reason=reason)
        )


def _obstacle(state: State, job: Job) -> Reason | None:
    """Why the job cannot be moved live, wherever to."""
    if state.policy not in (*SLICING_POLICIES, *QUEUE_POLICIES):
        return Reason(code="RoundsMoveJobs", message=f"under {state.policy} jobs change places between rounds")
    if job.job_id in state.partners:
        return Reason(code="Packed", message=f"it shares its GPUs with {state.partners[job.job_id]}")
    if any(task.node_id not in job.movable for task in job.gang):
        return Reason(code="NotMovable", message="its processes do not hand over their state")
    return None


def _destination(state: State, job: Job, event: MigrationStarted) -> gangs.Fit | None:
    reserved = state.reservation.node_ids if state.reservation is not None else ()
    nodes = [
        node
        for node in state.nodes.values()
        if node.usable
        and node.node_id not in reserved
        and (node.node_id in event.to_nodes if event.to_nodes else node.node_id not in event.from_nodes)
    ]
    return gangs.best_fit(job.spec.gpus, nodes)


def _reserve(state: State, job: Job, event: MigrationStarted, fit: gangs.Fit, turn: Turn[State]) -> None:
    attempt, gang = job.next_attempt, fit.gang
    orders = launch_orders(state, job, gang, attempt, restores=True)
    numbers: dict[str, Number] = {"gpus": job.spec.gpus.count, "nodes": fit.nodes, "nodes_before": len(job.gang)}
    where = ", ".join(task.node_id for task in gang)
    turn.emit(
        DestinationReserved(
            migration_id=event.migration_id,
            job_id=job.job_id,
            from_attempt=job.attempt,
            attempt=attempt,
            gang=gang,
            reason=Reason(code=event.reason.code, message=f"is to go on on {where}", numbers=numbers),
        )
    )
    for order in orders:
        turn.emit(order)


@machine.evolves(DestinationReserved)
def destination_reserved(state: State, event: DestinationReserved, now_s: float) -> None:
    job = state.jobs[event.job_id]
    job.move = Move(migration_id=event.migration_id, attempt=event.attempt, gang=event.gang)
    job.last_attempt = event.attempt
    state.hold(job, event.gang)
    use_port(state, event.gang)


@machine.evolves(MigrationStarted)
def must_leave(state: State, event: MigrationStarted, now_s: float) -> None:
    """Noted for the case that the live move fails."""
    job = active(state, event.job_id, event.attempt)
    if job is not None:
        job.must_leave = event.reason if event.must_leave else None
