"""A small core with everything that a shell must get right: decisions, orders, a timer, an invariant, a bad day."""

from __future__ import annotations

import msgspec

from libs.contracts.base import Event
from libs.contracts.gateway import JobArrived, JobCancelRequested, JobPriorityChanged
from libs.contracts.placement import OWNER, JobQueued, StopTask
from libs.contracts.reasons import Reason
from libs.contracts.runtime import TimerFired
from libs.kernel.machine import Machine, Turn
from libs.kernel.service import InvariantViolated, Service

PATIENCE_S = 5.0


class ToyState(msgspec.Struct, kw_only=True):
    """Initially empty."""

    due_s: dict[str, float] = {}
    """{job id: when it is stopped}"""
    stopped: int = 0
    priorities: int = 0


machine: Machine[ToyState] = Machine(OWNER)


@machine.evolves(JobArrived)
def due(state: ToyState, event: JobArrived, now_s: float) -> None:
    """Every job is stopped 5 s later."""
    state.due_s[event.job_id] = now_s + PATIENCE_S


@machine.decides(JobArrived)
def arrived(state: ToyState, event: JobArrived, turn: Turn[ToyState]) -> None:
    """Every job is queued."""
    turn.emit(JobQueued(job_id=event.job_id, attempt=1, reason=Reason(code="Toy", message="waits")))


@machine.judges
def impossible(state: ToyState, event: Event) -> str | None:
    """A job that waits to be stopped does not arrive again."""
    if isinstance(event, JobArrived) and event.job_id in state.due_s:
        return f"JobArrived cannot be said of job {event.job_id}, which has arrived; expected: an unknown job"
    return None


@machine.evolves(TimerFired)
def time_passes(state: ToyState, event: TimerFired, now_s: float) -> list[str]:
    """Which jobs are due."""
    over = [job_id for job_id, due_s in state.due_s.items() if due_s <= now_s]
    for job_id in over:
        del state.due_s[job_id]
    state.stopped += len(over)
    return over


@machine.decides(TimerFired)
def woken(state: ToyState, event: TimerFired, turn: Turn[ToyState]) -> None:
    """Stop what is due: an order for the agent of node n1."""
    for job_id in turn.changed:
        reason = Reason(code="Toy", message="was due")
        turn.emit(StopTask(node_id="n1", job_id=job_id, attempt=1, grace_s=0.0, reason=reason))


@machine.evolves(JobPriorityChanged)
def priority_changed(state: ToyState, event: JobPriorityChanged, now_s: float) -> None:
    """A negative number breaks the state."""
    state.priorities += event.priority


@machine.decides(JobCancelRequested)
def cannot(state: ToyState, event: JobCancelRequested, turn: Turn[ToyState]) -> None:
    """Decide what cannot be decoded, where the note is a number that is infinite, or fail: the bugs."""
    if event.note:
        for number in (0.0, float(event.note)):
            reason = Reason(code="Toy", message="waits", numbers={"number": number})
            turn.emit(JobQueued(job_id=event.job_id, attempt=1, reason=reason))
        return
    raise RuntimeError(f"cannot cancel {event.job_id}")


def _next_wakeup(state: ToyState) -> float | None:
    return min(state.due_s.values(), default=None)


def _check(state: ToyState) -> None:
    if state.priorities < 0:
        raise InvariantViolated(f"the sum of priorities is {state.priorities}, never below 0")


TOY = Service(
    name=OWNER,
    question="Does the shell work?",
    machine=machine,
    state_type=ToyState,
    next_wakeup=_next_wakeup,
    check=_check,
)
"""Has placement's name, because decisions belong to their owner."""
