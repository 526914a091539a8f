"""How a task that takes over gets the state of an earlier attempt: where, when, and for how long it asks."""

from __future__ import annotations

from enum import StrEnum

from libs.contracts.placement import RestoreTask, StateSource
from libs.node.task import Status, Task, Want

FETCH_PATIENCE_S = 60.0
"""How long a source is asked again that cannot be reached, does not stand still yet, or gives a damaged state."""
FETCH_RETRY_S = 0.5
"""From one such answer to the next question."""


class Answer(StrEnum):
    """What a node says when it is asked for the state of a task."""

    HERE = "stands still, here it is"
    LATER = "does not stand still"
    NEVER = "is not here"


def answer(task: Task | None) -> Answer:
    """What the source says.

    Args:
        task: its state is asked for; None: the node does not know it.
    """
    if task is None or task.status is Status.EXITED:
        return Answer.NEVER
    return Answer.HERE if stands_still(task) else Answer.LATER


def stands_still(task: Task) -> bool:
    """Whether the task is suspended and is to stay so: nothing changes its state meanwhile."""
    return task.status is Status.SUSPENDED and task.asked_since_s is None and task.want is Want.SUSPEND


def source_of(order: RestoreTask, rank: int) -> tuple[StateSource, int]:
    """The node that has the state which a rank takes over, and the rank of the earlier attempt that it is of."""
    from_rank = rank if order.ranks is None else rank % order.ranks
    return [source for source in order.sources if source.first_rank <= from_rank][-1], from_rank


def asks_again(began_s: float, now_s: float) -> bool:
    """Whether a source that has not given the state so far is asked once more.

    Args:
        began_s: when it was asked first, on the clock of `now_s`.
    """
    return now_s <= began_s + FETCH_PATIENCE_S
