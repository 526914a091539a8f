"""How long the agent waits before it looks at its tasks again, if nothing wakes it."""

from __future__ import annotations

from collections.abc import Sequence

from libs.node.advance import next_look_s
from libs.node.task import Status, Task

STARTING_LOOK_S = 0.03
TURNING_LOOK_S = 0.005
"""While a task is being suspended or resumed: others wait for its GPUs."""
ACTIVE_LOOK_S = 0.25
"""Also how often output and reports are read."""


def patience_s(active: Sequence[Task], now_s: float) -> float | None:
    """None: there is nothing to look at.

    Args:
        active: tasks that have not ended.
    """
    if not active:
        return None
    if any(_turns(task) for task in active):
        return TURNING_LOOK_S
    if any(task.status in (Status.ACCEPTED, Status.WARMING) for task in active):
        return STARTING_LOOK_S
    looks = [at - now_s for task in active if (at := next_look_s(task)) is not None]
    return max(STARTING_LOOK_S, min([ACTIVE_LOOK_S, *looks]))


def _turns(task: Task) -> bool:
    """Whether others wait for what its processes are doing right now."""
    return task.asked_since_s is not None or (task.status is Status.READY and task.restore is not None)
