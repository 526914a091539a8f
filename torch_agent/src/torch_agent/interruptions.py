"""Which tasks were ended from outside, together with their agent: by nothing that they have done themselves.

A service manager that stops everything, or a machine that goes down, tells tasks and agent to end within moments, in
any order. An agent that sees a task end in such a way has perhaps not heard of its own end yet; so that end counts only
when the agent still lives a little later and has not been told to end, which may take it longer: the log may be going
down as well. Otherwise the next agent finds the task, and takes it for interrupted.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence

import msgspec

from libs.node.seen import Ended
from libs.node.task import Status, Task, Want
from torch_agent.folders import TaskFolder
from torch_agent.harness.leaving import LEFT

LEASE_EXPIRED = "lease_expired"
"""As its shim says it of a task that it has ended because its node had no lease any more."""
GRACE_S = 2.0
"""So long the agent waits for its own end before an end from outside counts as the task's own."""


def interrupted(why: str) -> Ended:
    """Ended by nothing that the task has done itself."""
    return Ended(exit_code=None, signal=None, outcome="interrupted", stderr_tail=why)


class Interruptions:
    """Tasks that were ended while the node had no agent, as that was being ended as well."""

    def __init__(self, active: Sequence[Task], folder: Callable[[Task], TaskFolder], *, restarted: bool) -> None:
        """Look at the tasks that an earlier agent has left.

        Args:
            active: those that it has not seen end.
            restarted: the machine has another life than the one in which it has looked last.
        """
        self._restarted = restarted
        self._keys = {task.key for task in active if self._is_interrupted(task, folder(task))}
        self._since_s: dict[str, float] = {}
        """{task key: when an end was seen that may be everything's end}."""
        self._ending = False

    def _is_interrupted(self, task: Task, folder: TaskFolder) -> bool:
        started = task.status is not Status.ACCEPTED
        if folder.is_deserted(started=started):
            return True
        ended = folder.look(starting=False, started=started, before_restart=self._restarted).ended
        return ended is not None and _is_from_outside(task, ended)

    def before_restart(self, task: Task) -> bool:
        """Whether the task was ended in an earlier life of the machine."""
        return self._restarted and task.key in self._keys

    def agent_ends(self) -> None:
        """The agent has been told to end: what ends from outside from now on is left to the next one."""
        self._ending = True

    def judged(self, task: Task, ended: Ended) -> Ended | None:
        """How a task has ended, given what its folder says. None: that is not certain yet."""
        if ended.outcome == LEASE_EXPIRED:
            ordered = task.want is Want.STOP
            return msgspec.structs.replace(ended, outcome="stopped") if ordered else interrupted(ended.stderr_tail)
        if task.key in self._keys:
            return self._interruption(task)
        if _is_from_outside(task, ended):
            since_s = self._since_s.setdefault(task.key, time.monotonic())
            if self._ending or time.monotonic() - since_s < GRACE_S:
                return None
        return ended

    def _interruption(self, task: Task) -> Ended:
        node = task.order.node_id
        if self._restarted:
            return interrupted(f"the machine of node {node} was restarted")
        return interrupted(f"its processes were ended while the agent of node {node} was away")

    def forget(self, key: str) -> None:
        """The task's end is on record."""
        self._keys.discard(key)
        self._since_s.pop(key, None)


def _is_from_outside(task: Task, ended: Ended) -> bool:
    """Whether the task was told to end, and not by the agent."""
    told = ended.signal == signal.SIGTERM or ended.exit_code == LEFT
    return task.want is not Want.STOP and (ended.outcome == "lost" or (told and ended.outcome != "time_limit"))
