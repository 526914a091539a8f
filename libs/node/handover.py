"""How a GPU is handed over from one task of a node to another."""

from __future__ import annotations

from collections.abc import Collection

from libs.node.task import GUEST, Status, Task, Want


def gpus_taken(task: Task, active: Collection[Task]) -> bool:
    """Whether another task has not left the task's GPUs yet: it is being stopped or suspended, or was thought lost.

    Of two tasks that have not been launched yet the one goes first that was ordered first. Guests wait for no task and
    none waits for them: the node's coordination divides the GPU.

    Args:
        active: the node's tasks that have not ended, in the order of their launch orders.
    """
    wanted = set(task.wanted_gpus if task.status is Status.SUSPENDED else task.gpu_indices)
    before = True
    for other in active:
        before = before and other is not task
        if other is task or wanted.isdisjoint(other.gpu_indices) or not other.occupies:
            continue
        if other.order.job_id in task.partners or _runs_beside(other, task):
            continue
        if other.order.job_id == task.order.job_id and (task.prepares or other.prepares):
            continue
        if before or other.status is not Status.ACCEPTED:
            return True
    return False


def _runs_beside(other: Task, task: Task) -> bool:
    """Whether one of the two is a guest, and the other is to go on: the node's coordination divides the GPU.

    A task that is to leave is waited for: placement has found that there is no room for both.
    """
    return GUEST in (task.role, other.role) and other.want is Want.RUN
