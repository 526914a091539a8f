"""Plans: what is to happen to jobs next, decided but not said yet; and how a plan is carried out.

A plan names each decision by the event that is going to say it. A decision is tried before it is said: one that cannot
be carried out as things are is refused, and nothing of it leaves the core. Each is carried out before the plan is asked
for the next, so a mechanism that works its way through the queue sees what it has given away already. The orders to
agents follow from the decision (`carries_out`): a mechanism gives none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement
from libs.kernel.machine import Turn
from services.placement.core.cell import Cell
from services.placement.core.lifecycle.table import machine
from services.placement.core.lifecycle.transitions import impossible

Plan = Iterator[Event]
CarryOut = Callable[[Cell, Any, Turn[Cell]], None]
Trial = Callable[[Cell, Any], str | None]
C = TypeVar("C", bound=CarryOut)
T = TypeVar("T", bound=Trial)
P = TypeVar("P", bound=Callable[[Cell, Any, float], Plan])

_carry_outs: dict[type[Event], CarryOut] = {}
_trials: dict[type[Event], Trial] = {}


def carries_out(cls: type[Event]) -> Callable[[C], C]:
    """Register what says a decision of this type, and gives the orders that follow from it.

    Raises:
        ValueError: the type has one already.
    """
    return _into(_carry_outs, cls)


def tries(cls: type[Event]) -> Callable[[T], T]:
    """Register what finds out why a decision of this type cannot be carried out, as a sentence; None: it can.

    Raises:
        ValueError: the type has one already.
    """
    return _into(_trials, cls)


def plans(cls: type[Event]) -> Callable[[P], P]:
    """Register what is planned about inputs of this type, and carried out at once: `plan(cell, event, now_s)`."""

    def register(function: P) -> P:
        @machine.decides(cls)
        def decide(cell: Cell, event: Event, turn: Turn[Cell]) -> None:
            carry_out(cell, function(cell, event, turn.now_s), turn)

        return function

    return register


def _into(table: dict[type[Event], Any], cls: type[Event]) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        if cls in table:
            raise ValueError(f"{cls.__name__} has two entries ({table[cls]}, {function})")
        table[cls] = function
        return function

    return register


def carry_out(cell: Cell, plan: Plan, turn: Turn[Cell]) -> None:
    """Say what the plan decides, one decision after another; those that are refused are reported instead."""
    for decision in plan:
        why_not = objection(cell, decision)
        if why_not is not None:
            turn.refuse(decision, why_not)
        elif (said := _carry_outs.get(type(decision))) is not None:
            said(cell, decision, turn)
        else:
            turn.emit(decision)


def objection(cell: Cell, decision: Event) -> str | None:
    """Why the decision cannot be carried out as the cell is now; None: it can."""
    # The job first: what its GPUs are is asked only of one that may have some.
    why_not = impossible(cell, decision)
    trial = _trials.get(type(decision))
    return trial(cell, decision) if why_not is None and trial is not None else why_not


def occupied(cell: Cell, gang: Sequence[TaskPlacement], beside: Sequence[str]) -> str | None:
    """The first GPU of the gang that cannot be given away, as a sentence; None: all can.

    Args:
        beside: jobs that may hold the same GPUs at the same time.
    """
    for task in gang:
        node = cell.nodes.get(task.node_id)
        if node is None or not node.present:
            return f"node {task.node_id} is not there"
        for index in task.gpu_indices:
            if index >= len(node.gpus):
                return f"node {task.node_id} has no GPU {index}"
            holders = node.gpus[index].holders
            if holders and (others := [holder for holder in holders if holder not in beside]):
                return f"GPU {task.node_id}:{index} is held by {' and '.join(others)}"
    return None
